// Package explore lets a test decide who runs next.
//
// The library is sprinkled with points: calls of [At] where another goroutine could do something that
// matters, such as between the look at the head of a queue and the claim of it. In a normal build they
// are not compiled. With the build tag kdapl_explore a test makes
// goroutines the participants of an Explorer: then one of them runs at a time, and at each
// point, and wherever one would block, a generator of random numbers says who goes on. So a seed
// determines the whole schedule: whatever goes wrong under it goes wrong again.
//
// A point is written
//
//	if explore.On {
//		explore.At(explore.Take)
//	}
//
// so that nothing of it is compiled; a call without the condition can leave an instruction that does nothing.
//
// What is serialized in this way shows faults of order: lost wake-ups, events taken twice, calls after the end. It cannot show
// faults of memory order; for those there is the race detector.
package explore

// Point is a place in the library at which the schedule may change.
type Point uint8

// The points.
const (
	// Start is the begin of a participant's function.
	Start Point = iota
	// Lock: an EVD is about to be locked.
	Lock
	// Append: room was found for an event, which is about to be put there.
	Append
	// Refill: the CQ is about to be polled.
	Refill
	// Arm: nothing was left in the CQ, which is about to be armed.
	Arm
	// Armed: the CQ has been armed; what was appended is not published.
	Armed
	// Settle: the EVD is unlocked; activations are to be started, waiters to be woken, CNOs to be triggered.
	Settle
	// Empty: a consumer has found the ring empty, and has not looked at the CQ.
	Empty
	// Take: the head of the ring was looked at, and is about to be claimed.
	Take
	// Call: an event was claimed, with which the consumer is about to be called up.
	Call
	// Return: the consumer's function has returned.
	Return
	// Modify: the policy of an EVD is about to be changed, or upcalls torn down.
	Modify
	// Move: the old ring is frozen, the events are about to be moved to a new one.
	Move
	// Moved: the new ring is in place, the old one is not unlocked.
	Moved
	// Free: the EVD is marked as gone, its ring is in place.
	Free
	// Trigger: a CNO is about to be triggered.
	Trigger
	// Look: a CNO's waiter is about to look at a member.
	Look
	// Step is a point of the test's own.
	Step
	// Blocked: a participant waits for a lock, an event or the end of upcalls.
	Blocked
	// End is the end of a participant.
	End
	numPoints
)

var pointNames = [numPoints]string{"start", "lock", "append", "refill", "arm", "armed", "settle", "empty", "take", "call", "return",
	"modify", "move", "moved", "free", "trigger", "look", "step", "blocked", "end"}

func (p Point) String() string { return pointNames[p] }

// Closed reports whether a channel is closed on which nothing is sent.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

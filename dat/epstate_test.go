package dat

import (
	"fmt"
	"strings"
	"testing"
)

// epTable is the EP machine as the DAT specification tells it (5.2 transitions, 5.4 disconnect, 5.7 reset, and the
// choices of its open questions), typed from there and not from the code: state, cause, next state, and the event if
// there is one. "ends" stands where everything posted is flushed before the event, "free" where the EP goes away.
// What is not here is refused or, from the network, ignored.
const epTable = `
# before a connection (5.2)
UNCONNECTED                   reserve        RESERVED
UNCONNECTED                   accept         COMPLETION_PENDING
UNCONNECTED                   connect        ACTIVE_CONNECTION_PENDING
RESERVED                      unreserve      UNCONNECTED
RESERVED                      request        PASSIVE_CONNECTION_PENDING
PASSIVE_CONNECTION_PENDING    accept         COMPLETION_PENDING
PASSIVE_CONNECTION_PENDING    reject         UNCONNECTED
TENTATIVE_CONNECTION_PENDING  accept         COMPLETION_PENDING
TENTATIVE_CONNECTION_PENDING  reject         UNCONNECTED                free

# the unconfigured twins (5.1): they become their twin when they get what is missing, and connect only then
UNCONFIGURED_UNCONNECTED      configure      UNCONNECTED
UNCONFIGURED_RESERVED         configure      RESERVED
UNCONFIGURED_PASSIVE          configure      PASSIVE_CONNECTION_PENDING
UNCONFIGURED_TENTATIVE        configure      TENTATIVE_CONNECTION_PENDING
UNCONFIGURED_UNCONNECTED      reserve        UNCONFIGURED_RESERVED
UNCONFIGURED_RESERVED         unreserve      UNCONFIGURED_UNCONNECTED
UNCONFIGURED_RESERVED         request        UNCONFIGURED_PASSIVE
UNCONFIGURED_PASSIVE          reject         UNCONFIGURED_UNCONNECTED
UNCONFIGURED_TENTATIVE        reject         UNCONNECTED                free

# datagrams (10.1): no connection; the first connect or accept makes the EP fit to send
UNCONNECTED                   introduce      CONNECTED
PASSIVE_CONNECTION_PENDING    introduce      CONNECTED
TENTATIVE_CONNECTION_PENDING  introduce      CONNECTED
CONNECTED                     introduce      CONNECTED

# set-up (5.2)
ACTIVE_CONNECTION_PENDING     established    CONNECTED                  CONNECTION_EVENT_ESTABLISHED
COMPLETION_PENDING            established    CONNECTED                  CONNECTION_EVENT_ESTABLISHED
ACTIVE_CONNECTION_PENDING     peer-rejected  DISCONNECTED               CONNECTION_EVENT_PEER_REJECTED ends
ACTIVE_CONNECTION_PENDING     refused        DISCONNECTED               CONNECTION_EVENT_NON_PEER_REJECTED ends
ACTIVE_CONNECTION_PENDING     broken         DISCONNECTED               CONNECTION_EVENT_NON_PEER_REJECTED ends
ACTIVE_CONNECTION_PENDING     unreachable    DISCONNECTED               CONNECTION_EVENT_UNREACHABLE ends
ACTIVE_CONNECTION_PENDING     timed-out      DISCONNECTED               CONNECTION_EVENT_TIMED_OUT ends
COMPLETION_PENDING            accept-failed  DISCONNECTED               CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR ends
COMPLETION_PENDING            timed-out      DISCONNECTED               CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR ends
COMPLETION_PENDING            broken         DISCONNECTED               CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR ends
# ended from this side or by the peer's wish (5.2, 5.4: treated as abrupt)
ACTIVE_CONNECTION_PENDING     graceful       DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
ACTIVE_CONNECTION_PENDING     abrupt         DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
ACTIVE_CONNECTION_PENDING     aborted        DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
ACTIVE_CONNECTION_PENDING     disconnected   DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
COMPLETION_PENDING            graceful       DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
COMPLETION_PENDING            abrupt         DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
COMPLETION_PENDING            aborted        DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
COMPLETION_PENDING            disconnected   DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends

# a connection and its end (5.2, 5.4, 5.8)
CONNECTED                     graceful       DISCONNECT_PENDING
CONNECTED                     abrupt         DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
CONNECTED                     disconnected   DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
CONNECTED                     broken         DISCONNECTED               CONNECTION_EVENT_BROKEN ends
CONNECTED_SINGLE_PATH         graceful       DISCONNECT_PENDING
CONNECTED_SINGLE_PATH         abrupt         DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
CONNECTED_SINGLE_PATH         disconnected   DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
CONNECTED_SINGLE_PATH         broken         DISCONNECTED               CONNECTION_EVENT_BROKEN ends
CONNECTED_SINGLE_PATH         path-up        CONNECTED_MULTI_PATH       HA_UP_TO_MULTI_PATH
CONNECTED_MULTI_PATH          graceful       DISCONNECT_PENDING
CONNECTED_MULTI_PATH          abrupt         DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
CONNECTED_MULTI_PATH          disconnected   DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
CONNECTED_MULTI_PATH          broken         DISCONNECTED               CONNECTION_EVENT_BROKEN ends
CONNECTED_MULTI_PATH          path-down      CONNECTED_SINGLE_PATH      HA_DOWN_TO_1
DISCONNECT_PENDING            graceful       DISCONNECT_PENDING
DISCONNECT_PENDING            abrupt         DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
DISCONNECT_PENDING            disconnected   DISCONNECTED               CONNECTION_EVENT_DISCONNECTED ends
DISCONNECT_PENDING            broken         DISCONNECTED               CONNECTION_EVENT_BROKEN ends
DISCONNECTED                  graceful       DISCONNECTED
DISCONNECTED                  abrupt         DISCONNECTED

# reset (5.7) and free (1.4)
UNCONNECTED                   reset          UNCONNECTED
DISCONNECTED                  reset          UNCONNECTED
UNCONNECTED                   free           DISCONNECTED               ends free
UNCONFIGURED_UNCONNECTED      free           DISCONNECTED               ends free
ACTIVE_CONNECTION_PENDING     free           DISCONNECTED               ends free
COMPLETION_PENDING            free           DISCONNECTED               ends free
CONNECTED                     free           DISCONNECTED               ends free
CONNECTED_SINGLE_PATH         free           DISCONNECTED               ends free
CONNECTED_MULTI_PATH          free           DISCONNECTED               ends free
DISCONNECT_PENDING            free           DISCONNECTED               ends free
DISCONNECTED                  free           DISCONNECTED               ends free
`

const numEPStates = int(StateConnectedMultiPath) + 1

// typedEPTable reads the table.
func typedEPTable(t *testing.T) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for line := range strings.Lines(epTable) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		key := f[0] + " " + f[1]
		if rows[key] != "" {
			t.Fatalf("%s is there twice", key)
		}
		rows[key] = strings.Join(f[2:], " ")
	}
	return rows
}

func (m epMove) describe() string {
	s := m.next.String()
	if m.event != 0 {
		s += " " + m.event.String()
	}
	if m.ends {
		s += " ends"
	}
	if m.free {
		s += " free"
	}
	return s
}

// All states with all causes.
func TestEPMachineIsTheOneOfTheSpecification(t *testing.T) {
	rows := typedEPTable(t)
	for s := range numEPStates {
		for c := range numEPCauses {
			if epCauseNames[c] == "" {
				t.Fatalf("cause %d has no name", c)
			}
			key := fmt.Sprintf("%v %s", EPState(s), epCauseNames[c])
			got := ""
			if m, ok := EPState(s).next(c); ok {
				got = m.describe()
			}
			if got != rows[key] {
				t.Errorf("%s: %q, want %q", key, got, rows[key])
			}
			delete(rows, key)
		}
	}
	for key := range rows {
		t.Errorf("no such state and cause: %s", key)
	}
}

// An EP reaches every state, from those in which it can be made, but those of adapters with several paths; every cause
// is of use in some reachable state but theirs, and DISCONNECTED is reached from wherever there is something to end.
func TestEPMachineReachesEveryState(t *testing.T) {
	made := []EPState{StateUnconnected, StateUnconfiguredUnconnected, StateTentativeConnectionPending, StateUnconfiguredTentative}
	reached := map[EPState]bool{}
	used := map[epCause]bool{}
	for queue := made; len(queue) > 0; {
		s := queue[0]
		queue = queue[1:]
		if reached[s] {
			continue
		}
		reached[s] = true
		for c := range numEPCauses {
			if m, ok := s.next(c); ok {
				used[c] = true
				queue = append(queue, m.next)
			}
		}
	}
	for s := range numEPStates {
		several := EPState(s) == StateConnectedSinglePath || EPState(s) == StateConnectedMultiPath
		if reached[EPState(s)] == several {
			t.Errorf("%v is reached: %v", EPState(s), !several)
		}
	}
	for c := range numEPCauses {
		several := c == causePathDown || c == causePathUp
		if used[c] == several {
			t.Errorf("%s is of use: %v", epCauseNames[c], !several)
		}
	}
}

// Whatever has happened, an EP that is not freed comes back to where it can connect, by what the consumer and the end of
// whatever holds it can do.
func TestEPMachineHasNoDeadEnd(t *testing.T) {
	for s := range numEPStates {
		seen := map[EPState]bool{}
		found := false
		for queue := []EPState{EPState(s)}; len(queue) > 0 && !found; {
			at := queue[0]
			queue = queue[1:]
			if seen[at] {
				continue
			}
			seen[at] = true
			found = at == StateUnconnected
			for _, c := range []epCause{causeUnreserve, causeReject, causeAbrupt, causeReset, causeConfigure} {
				if m, ok := at.next(c); ok {
					queue = append(queue, m.next)
				}
			}
		}
		if !found {
			t.Errorf("no way from %v to UNCONNECTED", EPState(s))
		}
	}
}

// At most one terminal event comes of a connection: whoever ends leaves nothing to end again.
func TestEPMachineEndsOnce(t *testing.T) {
	for s := range numEPStates {
		for c := range numEPCauses {
			m, ok := EPState(s).next(c)
			if !ok || !m.ends {
				continue
			}
			for c := range numEPCauses {
				if again, ok := m.next.next(c); ok && again.ends && !again.free {
					t.Errorf("%v ends by %s, and again by %s", EPState(s), epCauseNames[c], epCauseNames[c])
				}
			}
		}
	}
}

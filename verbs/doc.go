// Package verbs is the contract between package dat and a device: the objects,
// work requests, completions and events of an RDMA adapter, and nothing else.
//
// The names are those of the InfiniBand and RDMA-consortium verbs: a [Device]
// opens to a [Context], which makes protection domains ([PD]), completion
// queues ([CQ]) and listeners; a PD makes memory regions ([MR]), memory windows
// ([MW]), shared receive queues ([SRQ]) and queue pairs ([QP]). The package
// verbstest checks that a device keeps this contract; what a device lacks or
// does in its own way it says in its [Attr], and callers branch on those
// attributes only, never on a device's name.
//
// # Values
//
// Work requests and completions are plain values without pointers. A post takes
// a slice that stays the caller's: the device copies what it keeps before the
// call returns. Memory is named by a key and a number (virtual address or
// offset), never by a Go pointer; a device looks the key up at each access.
//
// # What blocks
//
// No call of this contract waits for the network, for a peer or for another
// call's callback, and no call is made with a device's lock held towards the
// caller. Destroy, Dereg and Close wait at most for memory copies in progress.
//
// # Callbacks
//
// A device calls up in four places: the notify function of a CQ, the Conn
// function of a QP, the Request function of a listener and the Async function of
// a context. It does so with none of its own locks held, possibly in the stack of
// another object's call (a post on one QP may notify the CQ of its peer), and
// never concurrently with itself for one object's connection events. A callback
// must not block; it may call any function of this contract.
//
// # Order and exactly-once
//
//   - Each work request that a post accepted completes exactly once, unless it is
//     a send-side request that was not [SendSignaled] and succeeded.
//   - Completions of one queue of one QP come in the order of posting. For receives
//     from an SRQ that is the order in which the QP took them.
//   - When a QP leaves RTS (or fails to reach it) everything outstanding completes
//     with [StatusFlushed], and behind the last real completion of each queue the
//     device delivers exactly one [OpDrained] mark, in CQ order, with the QP's
//     UserData. [QP.Destroy] and a move to [QPReset] deliver completions and marks
//     that are still owed before they return. A queue that never left QPReset owes
//     none, nor does a queue without a CQ. A request posted in QPError completes
//     behind the mark.
//   - A connection event may come before or after the marks of the same end; a
//     caller that wants the order waits for both.
//   - After [QP.Destroy] returned, the QP's Conn is not called any more, except that a
//     call in progress is not waited for.
//   - A QP's terminal connection event ([ConnDisconnected] or [ConnBroken]) is
//     delivered once for each ConnEstablished.
//   - [CQ.Arm] never under-notifies: a completion that is added after Arm returned
//     false leads to a call of notify. It may over-notify.
//
// # Readings
//
// Where the words above leave room, this is meant, and checked by verbstest:
//
//   - Limits, CQ capacities and queue depths that a device grants may be higher than asked for; a
//     number beyond its own limit gives ErrInvalid, ErrLimit or ErrLength, whichever fits.
//   - An RDMA of length 0 checks no key.
//   - Private data may reach the peer padded with zeros.
//   - The end of a connection that a Destroy or Close of this side causes need not be told to this side's Conn.
//   - An abrupt end is ConnDisconnected at the peer; with traffic under way it may be ConnBroken.
//   - Atomics work on words in the byte order of their host.
//   - A type 1 window cannot be invalidated. A request behind an OpRegMR, in the same list too, may name
//     its key.
package verbs

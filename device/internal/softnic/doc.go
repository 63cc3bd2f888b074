// Package softnic is what software devices share: memory keys, protection domains, regions and
// windows, completion queues, work queues, shared receive queues, the states of a QP, flushing, and the checks
// of requests at both ends. A device adds a transport.
//
// # The seam
//
// A device gives each [Context] a [Driver], which makes a [Wire] for each QP. The QP checks a
// posted request, resolves its memory and hands it to Wire.Start when its turn has come. The wire
// answers Done, with a status, Stalled, if it must wait, or Running, if it will call [QP.Finish]. Requests
// start in order and complete in order, whatever the order in which they end; depths of reads
// and fences are kept by the queue. A wire that never answers Running makes the context direct: a request
// that finds the queue empty is started straight from the poster's list, and is written to a slot only
// if it stalls.
//
// At the other end the transport calls the Target methods of the receiving QP, which do what a message asks
// for, with all checks, and tell a [Verdict]; what that means for the sender is the transport's
// business. Transports that cut messages have the finer methods of segment.go.
//
// A connection, or an attempt at one, is a [Link]. [QP.Begin], [QP.Establish] and [QP.EndWith] move the QP
// through its states; each names the link, so that late news of an old one have no effect, and
// each set-up and connection ends once.
//
// # Locks
//
// Outermost is a QP's control lock, for its state and link. Inside is the [Lane]: the
// lock of one direction of a connection, under which posts are checked, payload is copied and completions are
// made. A QP's send side has a lane of its own; the receive side uses whichever one its transport sets,
// and in one process that is the peer's send lane. Inside of a lane are the lane of an SRQ, the lock of a CQ and the
// context's memory lock. No goroutine holds the lanes of two send sides.
//
// What must happen with no lock held, notifications above all, is noted in the lane and runs when it is
// released: see batch.
//
// # Memory
//
// A key is an index into a table and a generation, sealed by a secret bijection per context (keys.go). The
// entry holds the region as a byte slice; an access is look-up, checks and slicing, and no number
// from a request ever becomes a pointer. What makes the end of a region safe is that accesses
// happen under lanes: the entry remembers which lanes have used it, and to end its key is to clear
// it and then to wait until each of those lanes has been seen free (region.go). So an access writes to no
// shared memory, and remembered keys (lastKey) make it a few loads.
//
// # Room
//
// A work queue counts its requests and its unpolled completions together against its depth, as adapters do
// whose queue entries are freed by polling. A CQ that is as long as its work queues together never
// overflows. Queue memory is made at first use; a QP that is connected and idle has well
// under a kilobyte.
package softnic

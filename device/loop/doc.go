// Package loop is an adapter without hardware or network: it connects the queue pairs of one process
// and moves data by memory copy. It needs no privilege and works on every platform of Go.
//
// # Addresses
//
// [New] makes an adapter with a name and an IP address, loop0 at 127.0.0.1 by default. The address
// belongs to the loop's own little network and to no interface of the machine: nothing leaves the
// process. All adapters of the process share that network, so a program can give its parts adapters and
// addresses of their own and let them connect to each other. Adapters with the same address
// share its ports, which are 64-bit numbers. An address that no adapter has is unreachable.
//
// # What happens in a post
//
// PostSend does the whole of a request before it returns if the peer is ready: it checks keys, rights and bounds
// on both sides, copies the payload once, from the source's segments to the target's, and queues the
// completions of both ends. It neither allocates nor starts a goroutine. A request whose
// peer has no receive posted waits in the send queue, with those behind it, and goes on in the peer's PostRecv.
// So the time of a copy is spent in whichever of the two calls came last.
//
// A connection has a lock for each direction, which is held during a copy. While one end sends a large
// message, posts to the same direction wait for it: sends of the one end, and receives of the
// other. Nothing else does, except that Dereg, Destroy and Close wait for copies that touch what they end.
//
// Connection events, requests and asynchronous events come from goroutines that live as long as there
// is something to deliver. The notify functions of completion queues are called in the stack of the call
// that queued the completion, a post or the end of a connection, when all locks are released. The
// last events of a QP come in the stack of its Destroy, if no callback is in progress.
//
// # What a completion means
//
// With [verbs.RemoteAcked], the default, the peer's verdict comes back: StatusRemoteAccess for a
// key, right or bound that is wrong there, StatusRemoteInvalidRequest for a message that does not fit
// its receive, and after Config.RNRTimeout StatusRNRRetryExceeded if there is no receive. The connection then
// breaks on both sides.
//
// With [verbs.SourceReusable] the adapter behaves as iWARP does: a send or write succeeds as soon as its
// source has been read, a message without a receive is an error, and what the peer refuses shows as
// ConnBroken, with a [Fault] that tells the request and the layer, type and code of the
// Terminate message that would have crossed a wire. Reads and atomics still report StatusRemoteAccess.
//
// # Memory
//
// RDMA atomics are atomic towards sync/atomic operations of the process on the same word, if the word
// is aligned to 8 bytes; otherwise only among themselves. An RDMA write of one aligned 8-byte word is written at
// once, and is seen only after the writes before it on the same QP, so that the target may watch it with
// sync/atomic. Other payload is copied in no order, and may be looked at when a completion says so.
//
// Unreliable datagrams go to QPs of any adapter. They are dropped if the address, QP number or key
// is wrong, if no receive is posted, or if the first one is too short for the message and
// the 40 bytes of route header in front.
//
// # Tests
//
// Config.Adjust makes an adapter that can less, and [Device.Remove] takes one away as if it were
// unplugged. Time-outs use package time, so a program under testing/synctest has them in fake time.
package loop

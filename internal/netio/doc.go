// Package netio is the seam between a software device and the network: byte streams that are read
// and written without blocking, and waited for separately.
//
// The shape follows from who calls it. A post writes in the consumer's own call and must come back
// at once, so TryWritev never blocks. Each connection has one thin goroutine that sleeps until there
// is input, and a polling consumer that overtakes it and reads by itself; so reading (TryReadv) and
// sleeping (WaitReadable) are two calls, may run at the same time in two goroutines, and share no
// lock. A device that spins before it parks calls TryReadv in a loop of its own.
//
// Three things implement Conn: sockets of this process ([TCP], [FromNet]), any other net.Conn
// ([FromNet]), and the simulated network of package faultnet. netiotest holds the tests that all of
// them pass.
//
// # What blocks
//
// TryReadv, TryWritev, CloseWrite, Close, Abort, MSS and the addresses never block on the peer. On
// Linux a Try call is one raw system call on a non-blocking socket, without a word to the Go
// scheduler: it keeps its processor until the kernel has copied the bytes, so a caller passes at
// most [MaxBytes] at a time. WaitReadable and WaitWritable block until there is something to do, the
// deadline, or Close. Dial blocks, under its context; Listen does not; Accept does, until Close.
//
// # Who may call what at the same time
//
// One goroutine at a time in TryReadv, one in WaitReadable, one on the write side (TryWritev,
// CloseWrite), one in WaitWritable; these four do not exclude each other. Everything else may be
// called from anywhere at any time.
//
// # After Close
//
// Close and Abort make every wait in progress return, and every call after them report
// net.ErrClosed. A second Close reports nil.
//
// # Other operating systems
//
// Go offers a non-blocking read of a net.Conn nowhere: a read with a deadline in the past fails
// before it looks. So where there is no raw path the connection has a pump: a goroutine that is
// always in Read with a fixed buffer, and one that lives only while there are bytes to write. Both
// buffers are bounded, and a full one holds back the peer or the caller as a socket buffer would. It
// costs one more copy and one more hand-over in each direction; that is why Linux does without.
//
// Neither is the user time-out of TCP (RFC 5482) known outside Linux: there a peer that vanishes
// while data is outstanding is noticed by the system's own retransmission limit.
package netio

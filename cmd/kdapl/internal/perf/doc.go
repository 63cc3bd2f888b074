// Package perf measures latency and throughput between two end points through the API of
// package dat.
//
// A measurement has two ends. The requester connects and posts the operations that are measured;
// the responder answers sends, returns credits, and otherwise only owns memory. Both are
// state machines that are driven by events alone, in one of three ways: an EVD calls them up,
// a goroutine dequeues and polls, or a goroutine waits. [Run] drives both ends of a pair in one
// process ([Measure]), or the requester of a remote pair ([Request]), whose responder a [Server] of another process drives.
//
// Each measurement has a connection of its own. What the responder must know travels in the
// private data of the connection request, and where its memory is in that of the accept:
//
//	requester                                  responder
//	    connect (spec)                    →
//	                                      ←    accept (address and context of its memory)
//	    warm-up: every message is checked, byte by byte, by whoever receives it
//	    RDMA: "begin"                     →   so that it knows when its processor time is to be taken
//	    measurement: status, length and order of every completion are checked
//	    empty send: that was all          →
//	                                      ←    ack
//	    checks what lies in its memory         checks what lies in its memory
//	                                      ←    report
//
// The payload of a message is a function of its place in memory and of a number drawn for the
// measurement, so that nothing of an earlier one, and nothing at the wrong place, passes. Filling
// and checking are not part of the time that is measured.
//
// What is measured:
//
//   - Latency of a send: half of the time from posting a message until the answer, of the same size,
//     has arrived. Latency of an RDMA write or read: from posting to its completion. One is
//     under way at a time. The clock is read at the beginning and at the end of each sample;
//     what one reading costs ([ClockCost]) is subtracted.
//   - Throughput: as many messages as the depth allows are under way. The time runs from the first post,
//     with nothing under way, to the last completion; on adapters whose completions do not mean
//     that the peer has the data, to the peer's ack behind it.
//
// Between those clock readings nothing is allocated.
package perf

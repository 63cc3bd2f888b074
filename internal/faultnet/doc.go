// Package faultnet is a network in memory, with the faults of real ones: it splits reads and writes
// at any byte, delays, stalls, corrupts, cuts off, resets and falls silent, at positions that a test
// names or a seed draws.
//
// A [Network] has hosts, and a [Host] is a netio.Network: a device under test dials and listens on it
// with the code that ships. A connection's [Plan] says what befalls it; it prints as a text from
// which [Parse] makes it again, so a failing test names its plan and any other test can replay it.
// [Wrap] and [WrappedNetwork] put the same plans between a device and real sockets. Datagrams
// ([Host.ListenPacket]) have fates instead of plans.
//
// # Time
//
// Nothing runs in the background, except for Wrap: what should have happened by now is worked out
// whenever somebody calls, and who waits sleeps until the next thing that will happen. Waiting uses
// channels and timers alone. So under testing/synctest time is fake, an idle network counts as
// durably blocked, and hours pass in microseconds; outside a bubble delays are real.
//
// # How far it is TCP
//
// A stream has one window, which stands for the send buffer of one side and the receive buffer of
// the other: bytes taken and not yet read. A reset destroys what has not been read (on Linux, what
// has arrived may still be read; [Stream.KeepOnReset]). Closing with unread input, and receiving
// input after closing, sends a reset instead of an end. Acknowledgements are not modelled, so a
// sender knows at once when the other side reads. A connection in the dark ([Dark]) delivers nothing
// in either direction; each end notices by its user time-out, if it has sent something, or its
// keepalive time, as the host has them set, and not at all if they are 0.
package faultnet

package perf

import (
	"fmt"
	"strings"
	"time"

	"kdapl/dat"
)

// ConnectionError says that a connection could not be made, or ended.
type ConnectionError struct {
	// Event is what happened.
	Event dat.EventNumber
	// Reason is what the peer said when it rejected.
	Reason string
	// Cause is what the adapter knows.
	Cause error
}

// Error describes it on one line.
func (e *ConnectionError) Error() string {
	parts := []string{e.Event.String()}
	switch e.Event {
	case dat.ConnectionDisconnected:
		parts = append(parts, "the other side ended the connection")
	case dat.ConnectionNonPeerRejected:
		parts = append(parts, "nobody answers there; is kdapl perf --server running?")
	}
	if e.Reason != "" {
		parts = append(parts, "the peer says: "+e.Reason)
	}
	if e.Cause != nil {
		parts = append(parts, e.Cause.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Cause }

// CompletionError says that an operation failed.
type CompletionError struct {
	Operation dat.Operation
	Status    dat.Status
}

// Error describes it on one line.
func (e *CompletionError) Error() string {
	return fmt.Sprintf("%v completed with %v", e.Operation, e.Status)
}

// OrderError says that a completion is not the one that is due, or has another length.
type OrderError struct {
	Operation dat.Operation
	// Message and WantMessage count messages of the measurement; Length and WantLength
	// are bytes.
	Message, WantMessage uint64
	Length, WantLength   int
}

// Error describes it on one line.
func (e *OrderError) Error() string {
	return fmt.Sprintf("%v: message %d of %d bytes completed, due was message %d of %d bytes",
		e.Operation, e.Message, e.Length, e.WantMessage, e.WantLength)
}

// DataError says that data did not arrive as it was sent.
type DataError struct {
	// By is the end that found it.
	By string
	// Checked and Bad count messages.
	Checked, Bad uint64
	// Buffer and Offset are the place of the first bad byte.
	Buffer, Offset uint32
}

// Error describes it on one line.
func (e *DataError) Error() string {
	return fmt.Sprintf("bad data: the %s checked %d messages, and %d are not what was sent; the first bad byte is at offset %d of buffer %d",
		e.By, e.Checked, e.Bad, e.Offset, e.Buffer)
}

// StallError says that nothing happens any more.
type StallError struct {
	After time.Duration
}

// Error describes it on one line.
func (e *StallError) Error() string {
	return fmt.Sprintf("nothing has completed for %v; the peer is gone or stuck", e.After)
}

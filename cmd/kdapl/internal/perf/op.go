package perf

import (
	"fmt"
	"slices"
	"strings"

	"kdapl/dat"
)

// Op is the operation that is measured.
type Op uint8

// The operations.
const (
	Send Op = iota
	Write
	Read
)

// Ops are all operations.
var Ops = []Op{Send, Write, Read}

var opNames = []string{"send", "write", "read"}

// String returns the name that commands use.
func (o Op) String() string { return opNames[o] }

// MarshalText returns String.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (o *Op) UnmarshalText(b []byte) error { return parse(o, b, opNames) }

// dto is the DAT operation.
func (o Op) dto() dat.Operation {
	return [...]dat.Operation{Send: dat.OpSend, Write: dat.OpRDMAWrite, Read: dat.OpRDMARead}[o]
}

// Kind is what is measured of an operation.
type Kind uint8

// The kinds.
const (
	Latency Kind = iota
	Throughput
)

var kindNames = []string{"latency", "throughput"}

// String returns the name.
func (k Kind) String() string { return kindNames[k] }

// Completion is how an end learns of its completions.
type Completion uint8

// The ways.
const (
	// Upcall: the EVD calls the end up, one upcall at a time (UpcallSingleInstance).
	Upcall Completion = iota
	// Dequeue: a goroutine dequeues and polls. Both ends of a pair in one process share one
	// goroutine, which alternates.
	Dequeue
	// Wait: a goroutine for each end waits.
	Wait
)

var completionNames = []string{"upcall", "dequeue", "wait"}

// String returns the name that commands use.
func (c Completion) String() string { return completionNames[c] }

// MarshalText returns String.
func (c Completion) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (c *Completion) UnmarshalText(b []byte) error { return parse(c, b, completionNames) }

func parse[T ~uint8](v *T, b []byte, names []string) error {
	i := slices.Index(names, string(b))
	if i < 0 {
		return fmt.Errorf("%q is none of %s", b, strings.Join(names, ", "))
	}
	*v = T(i)
	return nil
}

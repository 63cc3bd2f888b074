package dat_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"kdapl/dat"
)

func TestErrorMessage(t *testing.T) {
	const (
		object = "EP 3 of loop0"
		peer   = "127.0.0.1 port 5000"
	)
	for _, c := range []struct {
		err  dat.Error
		want string
	}{
		{dat.Error{Type: dat.InvalidState, Sub: dat.InvalidStateEPConnected, Op: "ep_connect", Object: object, Peer: peer, Hint: "disconnect and reset it first"},
			"dat: ep_connect: EP 3 of loop0 → 127.0.0.1 port 5000: INVALID_STATE (EP_CONNECTED): disconnect and reset it first"},
		{dat.Error{Type: dat.InvalidAddress, Sub: dat.InvalidAddressUnreachable, Op: "ep_connect", Object: object, Peer: peer, Err: io.ErrUnexpectedEOF, Hint: "check the route"},
			"dat: ep_connect: EP 3 of loop0 → 127.0.0.1 port 5000: INVALID_ADDRESS (UNREACHABLE): unexpected EOF; check the route"},
		{dat.Error{Type: dat.InternalError, Err: io.EOF}, "dat: INTERNAL_ERROR: EOF"},
		{dat.Error{Type: dat.QueueEmpty}, "dat: QUEUE_EMPTY"},
		{dat.Error{Type: dat.QueueFull, Hint: "dequeue"}, "dat: QUEUE_FULL: dequeue"},
		{dat.Error{Type: dat.Abort, Op: "evd_wait"}, "dat: evd_wait: ABORT"},
		{dat.Error{Type: dat.InvalidHandle, Sub: dat.InvalidHandleEVDRecv, Op: "ep_create", Object: "IA loop0"},
			"dat: ep_create: IA loop0: INVALID_HANDLE (EVD_RECV)"},
		{dat.Error{Type: dat.PortInUse, Peer: peer}, "dat: → 127.0.0.1 port 5000: PORT_IN_USE"},
		{dat.Error{Type: dat.InvalidParameter, Sub: dat.InvalidArg3, Op: "evd_wait"}, "dat: evd_wait: INVALID_PARAMETER (ARG3)"},
		{dat.Error{Type: dat.InvalidHandle, Sub: dat.InvalidHandle2}, "dat: INVALID_HANDLE (HANDLE2)"},
		{dat.Error{Type: dat.InsufficientResources, Sub: dat.ResourceTEVD}, "dat: INSUFFICIENT_RESOURCES (RESOURCE_TEVD)"},
		{dat.Error{Type: dat.PrivilegesViolation, Sub: dat.PrivilegesRDMAWrite}, "dat: PRIVILEGES_VIOLATION (RDMA_WRITE)"},
		{dat.Error{Type: dat.ProtectionViolation, Sub: dat.ProtectionRead}, "dat: PROTECTION_VIOLATION (READ)"},
		{dat.Error{Type: dat.ProviderNotFound, Sub: dat.NameNotRegistered}, "dat: PROVIDER_NOT_FOUND (NAME_NOT_REGISTERED)"},
		// A subtype of another type keeps its whole name.
		{dat.Error{Type: dat.Abort, Sub: dat.InvalidStateEVDWaiter}, "dat: ABORT (INVALID_STATE_EVD_WAITER)"},
		{dat.Error{Type: 0x0018_0000, Sub: 200}, "dat: Type(0x180000) (Subtype(0xc8))"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	if got, want := dat.InvalidState.Error(), "dat: INVALID_STATE"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := dat.InvalidStateEVDInUse.Error(), "dat: INVALID_STATE_EVD_IN_USE"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestErrorsIsMatchesTypeSubtypeAndError(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("opening: %w", &dat.Error{Type: dat.InvalidState, Sub: dat.InvalidStateEVDInUse, Op: "evd_free", Err: cause})
	for _, c := range []struct {
		target error
		want   bool
	}{
		{dat.InvalidState, true},
		{dat.InvalidHandle, false},
		{dat.InvalidStateEVDInUse, true},
		{dat.InvalidStateEVDOpen, false},
		{dat.NoSubtype, false},
		{&dat.Error{Type: dat.InvalidState}, true},
		{&dat.Error{Type: dat.InvalidState, Sub: dat.InvalidStateEVDInUse}, true},
		{&dat.Error{Type: dat.InvalidState, Sub: dat.InvalidStateEVDInUse, Op: "ep_free"}, true},
		{&dat.Error{Type: dat.InvalidState, Sub: dat.InvalidStateEVDOpen}, false},
		{&dat.Error{Type: dat.Abort, Sub: dat.InvalidStateEVDInUse}, false},
		{&dat.Error{}, false},
		{(*dat.Error)(nil), false},
		{dat.ErrQueueEmpty, false},
		{cause, true},
		{io.EOF, false},
	} {
		if got := errors.Is(err, c.target); got != c.want {
			t.Errorf("Is(%v) is %v", c.target, got)
		}
	}
	var e *dat.Error
	if !errors.As(err, &e) || e.Op != "evd_free" || e.Unwrap() != cause {
		t.Errorf("As found %+v", e)
	}
	// An error of the same type, with what it knows, is still a static one.
	if !errors.Is(&dat.Error{Type: dat.QueueEmpty, Op: "cno_wait"}, dat.ErrQueueEmpty) {
		t.Error("QUEUE_EMPTY is not ErrQueueEmpty")
	}
	// A static error has no subtype.
	//lint:ignore SA1032 a subtype is the target here
	if !errors.Is(dat.ErrTimeout, dat.NoSubtype) || errors.Is(dat.ErrTimeout, dat.SubInterrupted) {
		t.Error("ErrTimeout does not have just NO_SUBTYPE")
	}
}

func TestStaticErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		typ  dat.Type
		bits uint32
	}{
		{dat.ErrQueueEmpty, dat.QueueEmpty, 0x800D_0000},
		{dat.ErrQueueFull, dat.QueueFull, 0x800E_0000},
		{dat.ErrTimeout, dat.TimeoutExpired, 0x800F_0000},
	} {
		e := c.err.(*dat.Error)
		if !errors.Is(c.err, c.typ) || e.Return() != c.bits {
			t.Errorf("%v has return code %#x, want %#x", c.err, e.Return(), c.bits)
		}
		for _, ret := range []uint32{c.bits, c.bits &^ 0x8000_0000} {
			if got := dat.ErrFromReturn(ret); got != c.err {
				t.Errorf("%#x gives %v, another error", ret, got)
			}
		}
		if n := testing.AllocsPerRun(100, func() { _ = dat.ErrFromReturn(c.bits) }); n != 0 {
			t.Errorf("%v costs %v allocations", c.err, n)
		}
	}
}

// Every type alone and every subtype with its type goes to a DAT_RETURN and back.
func TestReturnCodesGoThereAndBack(t *testing.T) {
	var pairs []dat.Error
	for _, v := range errTables[0].values[1:] {
		pairs = append(pairs, dat.Error{Type: v.value.(dat.Type)})
	}
	for _, v := range errTables[1].values[1:] {
		s := v.value.(dat.Subtype)
		pairs = append(pairs, dat.Error{Type: s.Type(), Sub: s})
	}
	// Pairs that the specification uses across the tables, and numbers of somebody else.
	pairs = append(pairs,
		dat.Error{Type: dat.QueueFull, Sub: dat.InvalidStateEVDInUse},
		dat.Error{Type: dat.ProtectionViolation, Sub: dat.InvalidStateEPNotReady},
		dat.Error{Type: 0x2345_0000, Sub: 0xFFFF},
	)
	for _, p := range pairs {
		ret := p.Return()
		if want := 0x8000_0000 | uint32(p.Type) | uint32(p.Sub); ret != want {
			t.Errorf("%v has return code %#x, want %#x", &p, ret, want)
		}
		for _, r := range []uint32{ret, ret &^ 0x8000_0000} {
			var e *dat.Error
			if !errors.As(dat.ErrFromReturn(r), &e) || e.Type != p.Type || e.Sub != p.Sub {
				t.Errorf("%#x gives %v, want %v", r, e, &p)
			}
		}
	}
	if err := dat.ErrFromReturn(0); err != nil {
		t.Errorf("DAT_SUCCESS gives %v", err)
	}
}

func TestReturnCodesOfTheCInterface(t *testing.T) {
	// What C programs and the C registry were seen to compare with.
	for _, c := range []struct {
		err  dat.Error
		want uint32
	}{
		{dat.Error{Type: dat.ProviderNotFound, Sub: dat.NameNotRegistered}, 0x800A_0064},
		{dat.Error{Type: dat.InvalidState, Sub: dat.InvalidStateEPConnected}, 0x8007_0033},
		{dat.Error{Type: dat.NotImplemented}, 0xBFFF_0000},
		{dat.Error{Type: dat.IBCollectiveError}, 0x9000_0001},
		{dat.Error{}, 0x8004_0000}, // never a success
	} {
		if got := c.err.Return(); got != c.want {
			t.Errorf("%v has return code %#x, want %#x", &c.err, got, c.want)
		}
	}
}

func TestReturnCodesWithoutMeaningAreInternalErrors(t *testing.T) {
	for _, ret := range []uint32{0x8000_0000, 0x8000_0033, 0x0000_0033, 0x4007_0000, 0xC007_0000} {
		err := dat.ErrFromReturn(ret)
		if !errors.Is(err, dat.InternalError) {
			t.Errorf("%#x gives %v", ret, err)
		}
		if want := fmt.Sprintf("dat: INTERNAL_ERROR: return code 0x%08x is no DAT error", ret); err.Error() != want {
			t.Errorf("%#x gives %v, want %s", ret, err, want)
		}
	}
}

func TestStrerrorNamesEveryCode(t *testing.T) {
	for _, typ := range errTables[0].values {
		wantMajor := "DAT_" + errTables[0].text(typ)
		for _, ret := range []uint32{uint32(typ.num), uint32(typ.num) | 0x8000_0000, uint32(typ.num) | 0x4000_0000} {
			if major, minor, err := dat.Strerror(ret); major != wantMajor || minor != "" || err != nil {
				t.Errorf("%#x is %q, %q, %v, want %q", ret, major, minor, err, wantMajor)
			}
		}
	}
	for _, sub := range errTables[1].values[1:] {
		ret := (&dat.Error{Type: dat.InvalidState, Sub: sub.value.(dat.Subtype)}).Return()
		if major, minor, err := dat.Strerror(ret); major != "DAT_INVALID_STATE" || minor != sub.name || err != nil {
			t.Errorf("%#x is %q, %q, %v, want %q", ret, major, minor, err, sub.name)
		}
	}
	for _, ret := range []uint32{0x8018_0000, 0x8007_0068, 0x8007_FFFF, 0x9001_0000} {
		if major, minor, err := dat.Strerror(ret); !errors.Is(err, dat.InvalidParameter) || major+minor != "" {
			t.Errorf("%#x is %q, %q, %v, want INVALID_PARAMETER", ret, major, minor, err)
		}
	}
}

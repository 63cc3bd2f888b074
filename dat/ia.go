package dat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"

	"kdapl/internal/foreign"
	"kdapl/verbs"
)

// Config is what Open needs to know beside the device. The zero value is good.
type Config struct {
	// Name is the IA's name in attributes and messages; "" is the device's.
	Name string
	// AsyncEVD receives the IA's asynchronous events. nil makes one, which dies with the IA, of
	// AsyncEVDMinLen events (8 if 0).
	AsyncEVD       *EVD
	AsyncEVDMinLen int
	// MaxUpcalls limits the upcalls that run at once for an EVD with UpcallMany; 0 is 8.
	MaxUpcalls int
	// Spin is how many turns a Wait looks for events before it sleeps; in each it yields the
	// processor. 0 is the default of 64, negative is none: choose that when processors are
	// scarce and latency is not.
	Spin int
	// Logger receives diagnostics: connections at Debug, overflows and failed devices at
	// Warn. nil is silence.
	Logger *slog.Logger
}

const (
	defaultAsyncEVDLen = 8
	defaultMaxUpcalls  = 8
	defaultSpin        = 64
)

// IA is an open interface adapter. All methods may be called concurrently; all but
// Close may be called from upcalls.
type IA struct {
	base
	name       string
	device     verbs.Context
	attr       IAAttr
	provider   ProviderAttr
	maxUpcalls int
	spin       int
	log        *slog.Logger
	objects    table
	contexts   contextTable // by remote context
	locals     contextTable // LMRs by local context

	async    atomic.Pointer[EVD]
	ownAsync bool
	guest    uint64 // the IA's number at an asynchronous EVD of another IA's; 0 at its own

	srqMu sync.Mutex // which EVDs the EPs of SRQs feed; before EVD locks

	mu     sync.Mutex
	sink   *EVD // completions that the consumer wants no events of
	closed bool
}

// Open makes an IA of a device (dat_ia_open). Several IAs of one device are independent. It does
// not block.
//
// INVALID_HANDLE (EVD_ASYNC): cfg.AsyncEVD was freed or lacks StreamAsync.
// INVALID_PARAMETER: a negative length or number of upcalls, a name of more than 255 bytes, a nil device.
// PROVIDER_NOT_FOUND: the device is gone. INSUFFICIENT_RESOURCES: the device has no more.
func Open(device verbs.Device, cfg Config) (*IA, error) {
	const op = "ia_open"
	bad := func(sub Subtype, hint string) (*IA, error) {
		return nil, &Error{Type: InvalidParameter, Sub: sub, Op: op, Object: cfg.Name, Hint: hint}
	}
	if device == nil {
		return bad(InvalidArg1, "no device")
	}
	if cfg.Name == "" {
		cfg.Name = device.Name()
	}
	switch {
	case len(cfg.Name) >= NameMaxLength:
		return bad(InvalidArg1, fmt.Sprintf("the name has %d bytes, at most %d are allowed", len(cfg.Name), NameMaxLength-1))
	case cfg.AsyncEVDMinLen < 0:
		return bad(InvalidArg2, fmt.Sprintf("AsyncEVDMinLen is %d", cfg.AsyncEVDMinLen))
	case cfg.MaxUpcalls < 0:
		return bad(NoSubtype, fmt.Sprintf("MaxUpcalls is %d", cfg.MaxUpcalls))
	}
	ia := &IA{name: cfg.Name, maxUpcalls: cfg.MaxUpcalls, spin: cfg.Spin, log: cfg.Logger}
	ia.base = base{self: ia, ia: ia, kind: HandleIA}
	if ia.maxUpcalls == 0 {
		ia.maxUpcalls = defaultMaxUpcalls
	}
	ia.maxUpcalls = min(ia.maxUpcalls, math.MaxInt32)
	if ia.spin == 0 {
		ia.spin = defaultSpin
	}
	if ia.log == nil {
		ia.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if ia.device, err = device.Open(verbs.OpenConfig{Async: ia.onAsync}); err != nil {
		return nil, ia.deviceError(op, &ia.base, err)
	}
	ia.attr, ia.provider = attributes(ia.name, ia.device.Attr())
	ia.objects.add(&ia.base, 1)
	if err := ia.openAsync(cfg); err != nil {
		ia.device.Close()
		return nil, err
	}
	ia.log.Debug("opened", "ia", ia.name)
	return ia, nil
}

// openAsync finds or makes the EVD of asynchronous events.
func (ia *IA) openAsync(cfg Config) error {
	e := cfg.AsyncEVD
	if e == nil {
		if cfg.AsyncEVDMinLen == 0 {
			cfg.AsyncEVDMinLen = min(defaultAsyncEVDLen, ia.attr.MaxEVDQLen)
		}
		var err error
		if e, err = ia.NewEVD(EVDConfig{MinLen: cfg.AsyncEVDMinLen, Streams: StreamAsync}); err != nil {
			return err
		}
		ia.ownAsync = true
	} else if e.gone() || e.streams&StreamAsync == 0 {
		return ia.fail("ia_open", InvalidHandle, InvalidHandleEVDAsync, nil, "AsyncEVD was freed or lacks StreamAsync")
	} else {
		ia.guest = e.addGuest(ia)
	}
	if err := e.attach("ia_open", 0, discNone); err != nil {
		return err
	}
	ia.async.Store(e)
	return nil
}

// check returns the error of a call on an IA that is closed or nil.
func (ia *IA) check(op string) error {
	if ia.gone() {
		return ia.errGone(op)
	}
	return nil
}

// Name is the name that the IA was opened by.
func (ia *IA) Name() string {
	if ia == nil {
		return ""
	}
	return ia.name
}

// AsyncEVD is the EVD that receives the IA's asynchronous events.
func (ia *IA) AsyncEVD() *EVD {
	if ia == nil {
		return nil
	}
	return ia.async.Load()
}

// IAParam is what Query tells.
type IAParam struct {
	// Attr describes the adapter, Provider the library over it.
	Attr     IAAttr
	Provider ProviderAttr
	// AsyncEVD receives asynchronous events.
	AsyncEVD *EVD
	// Counters count the IA's objects.
	Counters IACounters
}

// IACounters count the live objects of an IA.
type IACounters struct {
	PZs, LMRs, RMRs, EPs, SRQs, EVDs, CNOs, PSPs, RSPs, CSPs, CRs, AddressHandles int
}

// Query tells the IA's attributes (dat_ia_query). It does not block.
func (ia *IA) Query() (IAParam, error) {
	if err := ia.check("ia_query"); err != nil {
		return IAParam{}, err
	}
	n := ia.objects.size
	return IAParam{Attr: ia.attr, Provider: ia.provider, AsyncEVD: ia.AsyncEVD(), Counters: IACounters{
		PZs: n(HandlePZ), LMRs: n(HandleLMR), RMRs: n(HandleRMR), EPs: n(HandleEP), SRQs: n(HandleSRQ), EVDs: n(HandleEVD),
		CNOs: n(HandleCNO), PSPs: n(HandlePSP), RSPs: n(HandleRSP), CSPs: n(HandleCSP), CRs: n(HandleCR),
		AddressHandles: n(HandleExtensionBase),
	}}, nil
}

// Objects are the live objects of a kind, in no order, such as all EPs for HandleEP; for programs that show
// what an IA is doing. Some may be freed when the caller comes to them. None for a kind that there is not, and after
// Close. It does not block. An extension of ours.
func (ia *IA) Objects(kind HandleType) []Object {
	if ia == nil || ia.gone() {
		return nil
	}
	return ia.objects.live(kind)
}

// Address is the address that peers connect to.
func (ia *IA) Address() netip.Addr {
	if ia == nil {
		return netip.Addr{}
	}
	return ia.attr.Address
}

// register puts a new object into the table; false if the IA has no more of the kind or was closed.
func (ia *IA) register(b *base, max int) bool {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	return !ia.closed && ia.objects.add(b, max)
}

func (ia *IA) unregister(b *base, until ...evdPosition) { ia.objects.remove(b, until...) }

// full is the error of a call that finds the IA's limit of objects reached.
func (ia *IA) full(op string, sub Subtype) error {
	ia.mu.Lock()
	closed := ia.closed
	ia.mu.Unlock()
	if closed {
		return ia.errFreed(op)
	}
	return ia.fail(op, InsufficientResources, sub, nil, "the IA has no more; free some first, see its attributes")
}

// discardEVD is the hidden EVD for completions that the consumer wants no events of.
func (ia *IA) discardEVD() (*EVD, error) {
	ia.mu.Lock()
	e := ia.sink
	ia.mu.Unlock()
	if e != nil {
		return e, nil
	}
	e = &EVD{streams: StreamDTO | StreamRMRBind, qlen: 1, draining: 1}
	e.base = base{self: e, ia: ia, kind: HandleEVD}
	e.discs.exact = true // nobody is notified
	e.setRun()
	e.waiter.wake = make(chan struct{}, 1)
	ring, _, err := e.newRing(1, 0)
	if err != nil {
		return nil, err
	}
	e.ring.Store(ring)
	if e.cq, err = ia.device.CreateCQ(1, e.pump); err != nil {
		return nil, ia.deviceError("ep_create", &ia.base, err)
	}
	e.preparePolls()
	ia.mu.Lock()
	defer ia.mu.Unlock()
	if ia.sink != nil {
		e.cq.Destroy()
		return ia.sink, nil
	}
	ia.sink = e
	return e, nil
}

// raise posts an asynchronous event.
func (ia *IA) raise(n EventNumber, about *base, reason AsyncReason) {
	ia.log.Warn("asynchronous event", "ia", ia.name, "event", n, "object", about.title(), "reason", reason)
	e := ia.async.Load()
	if e == nil {
		return
	}
	ev := Event{Number: n, extra: uint64(reason) | ia.guest<<evGuestShift}
	if about.kind != HandleIA {
		ev.ref = about.ref
	}
	if !e.post(&ev) {
		ia.log.Warn("the asynchronous EVD is full; event lost", "ia", ia.name, "event", n)
	}
}

// onAsync receives the device's asynchronous events.
func (ia *IA) onAsync(ev verbs.AsyncEvent) {
	about := &ia.base
	if b := ia.objects.lookup(ref(ev.UserData)); b != nil && ev.UserData != 0 {
		about = b
	}
	switch ev.Kind {
	case verbs.AsyncDeviceFatal:
		ia.raise(AsyncErrorIACatastrophic, &ia.base, ReasonIACatastrophic)
	case verbs.AsyncCQError:
		for _, o := range ia.objects.live(HandleEVD) {
			if e := o.(*EVD); e.cq == ev.CQ {
				about = &e.base
			}
		}
		ia.raise(AsyncErrorEVDOverflow, about, ReasonEVDOverflow)
		go ia.cqFailed(ev.CQ, ev.Err)
	case verbs.AsyncQPFatal:
		ia.raise(AsyncErrorEPBroken, about, ReasonEPTransferTo)
		if ep, ok := about.self.(*EP); ok {
			ep.failed(ev.Err)
		}
	case verbs.AsyncSRQLimit:
		ia.raise(AsyncWatermark, about, ReasonSRQLowWatermark)
	case verbs.AsyncSRQError:
		if s, ok := about.self.(*SRQ); ok {
			s.failed.Store(true)
		}
		ia.raise(AsyncErrorProviderInternal, about, ReasonSRQOther)
	case verbs.AsyncLastWQE:
		// dat tells the consumer itself, when the EP has drained.
	}
}

// creationError is deviceError for a call that makes an object: a device that has no more lacks the resource.
func (ia *IA) creationError(op string, about *base, err error, resource Subtype) error {
	e := ia.deviceError(op, about, err).(*Error)
	if errors.Is(err, verbs.ErrLimit) {
		e.Sub = resource
	}
	return e
}

// deviceError makes a DAT error of a device's.
func (ia *IA) deviceError(op string, about *base, err error) error {
	t, sub := InternalError, NoSubtype
	for _, m := range [...]struct {
		cause error
		t     Type
		sub   Subtype
	}{
		{verbs.ErrLimit, InsufficientResources, ResourceDevice},
		{verbs.ErrQueueFull, InsufficientResources, ResourceTEP},
		{verbs.ErrNotSupported, ModelNotSupported, NoSubtype},
		{verbs.ErrInvalid, InvalidParameter, NoSubtype},
		{verbs.ErrProtection, ProtectionViolation, NoSubtype},
		{verbs.ErrAccess, PrivilegesViolation, NoSubtype},
		{verbs.ErrBounds, ProtectionViolation, NoSubtype},
		{verbs.ErrLength, LengthError, NoSubtype},
		{verbs.ErrBusy, InvalidState, NoSubtype},
		{verbs.ErrState, InvalidState, NoSubtype},
		{verbs.ErrPeerGone, InvalidState, NoSubtype},
		{verbs.ErrClosed, InvalidHandle, handleSubtypes[about.kind]},
		{verbs.ErrAddrInUse, ConnQualInUse, NoSubtype},
		{verbs.ErrAddr, InvalidAddress, InvalidAddressUnsupported},
		{verbs.ErrNoDevice, ProviderNotFound, NameNotRegistered},
	} {
		if errors.Is(err, m.cause) {
			t, sub = m.t, m.sub
			break
		}
	}
	return about.fail(op, t, sub, err, "")
}

// Close closes the IA (dat_ia_close).
//
// CloseGraceful refuses with INVALID_STATE (IA_IN_USE) while the consumer has objects of it.
// CloseAbrupt ends connections abruptly and destroys everything in the order RMRs, service
// points, EPs, SRQs, LMRs, PZs, EVDs; waiters return with ABORT; upcalls are disabled first
// and running ones awaited, for as long as the context allows: past that, Close goes on and
// returns INTERRUPTED_CALL with the context's cause, and the upcalls that still run find their
// objects freed. No events are promised afterwards.
//
// Close does not wait for the network. INVALID_STATE: called in an upcall. INVALID_PARAMETER
// (ARG2): unknown flag. INVALID_HANDLE: closed before.
func (ia *IA) Close(ctx context.Context, flags CloseFlags) error {
	const op = "ia_close"
	if err := ia.check(op); err != nil {
		return err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	switch {
	case flags != CloseAbrupt && flags != CloseGraceful:
		return ia.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("unknown flag %v", flags))
	case inUpcall():
		return ia.fail(op, InvalidState, NoSubtype, nil, "close in an upcall would wait for itself; close from another goroutine")
	}
	ia.mu.Lock()
	if ia.closed {
		ia.mu.Unlock()
		return ia.errFreed(op)
	}
	if flags == CloseGraceful {
		if left := ia.inUse(); left != nil {
			ia.mu.Unlock()
			return ia.fail(op, InvalidState, InvalidStateIAInUse, nil, fmt.Sprintf("%v is left; free it, or close abruptly", left))
		}
	}
	ia.closed = true
	ia.mu.Unlock()
	err := ia.cascade(ctx)
	ia.freed.Store(true)
	ia.device.Close()
	ia.log.Debug("closed", "ia", ia.name)
	if err != nil {
		return ia.fail(op, InterruptedCall, NoSubtype, err, "upcalls still run; the IA is closed")
	}
	return nil
}

// inUse returns an object of the consumer's that is left.
func (ia *IA) inUse() Object {
	for _, kind := range cascadeOrder {
		for _, o := range ia.objects.live(kind) {
			if e, ok := o.(*EVD); ok && ia.ownAsync && e == ia.async.Load() {
				continue
			}
			return o
		}
	}
	return nil
}

var cascadeOrder = []HandleType{HandleRMR, HandleRSP, HandleCSP, HandlePSP, HandleCR, HandleEP, HandleSRQ, HandleLMR, HandlePZ, HandleEVD, HandleCNO}

// destroyer is what every object but the IA can do when its IA closes abruptly.
type destroyer interface{ abandon() }

// cascade destroys everything.
func (ia *IA) cascade(ctx context.Context) error {
	var interrupted error
	evds := ia.objects.live(HandleEVD)
	for _, o := range evds {
		o.(*EVD).abort()
	}
	for _, o := range ia.objects.live(HandleCNO) {
		o.(*CNO).abort()
	}
	for _, kind := range cascadeOrder {
		if kind == HandleEVD {
			// Nothing feeds the EVDs any more. Those who run upcalls are awaited before their EVDs go.
			for _, o := range evds {
				if err := o.(*EVD).teardown(ctx, nil); err != nil && context.Cause(ctx) != nil {
					interrupted = context.Cause(ctx)
				}
			}
		}
		for _, o := range ia.objects.live(kind) {
			o.(destroyer).abandon()
		}
	}
	if e := ia.async.Load(); e != nil && !ia.ownAsync {
		e.detach(0, discNone)
	}
	ia.mu.Lock()
	sink := ia.sink
	ia.mu.Unlock()
	if sink != nil {
		sink.cq.Destroy()
	}
	return interrupted
}

// abort is the first step of an EVD's end with its IA: no more upcalls, no more waits.
func (e *EVD) abort() {
	var a after
	e.begin(&a)
	e.tearDown()
	a.ring.Turn()
	e.waiter.unwaitable = true
	e.foreign.Mark(foreign.StatusUnwaitable, true)
	e.abortWait(&a, e.errAborted())
	e.end(&a)
}

func (e *EVD) errAborted() error {
	return e.fail("evd_wait", Abort, NoSubtype, nil, "the IA was closed")
}

// abandon destroys the EVD with its IA.
func (e *EVD) abandon() {
	var a after
	e.begin(&a)
	if e.freed.Load() {
		e.end(&a)
		return
	}
	e.destroy(&a)
}

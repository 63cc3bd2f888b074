package loop

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"kdapl/device/internal/softnic"
	"kdapl/verbs"
)

// Config describes an adapter. The zero value is loop0 at 127.0.0.1.
type Config struct {
	// Name is the adapter's name; "loop0" if empty.
	Name string
	// Addr is its address; 127.0.0.1 if not valid. Adapters may share one: then they share its
	// ports too.
	Addr netip.Addr
	// Completion is what a successful completion of a send or write means.
	Completion verbs.CompletionMeaning
	// RNRTimeout is how long a request waits for the peer to post a receive, with
	// verbs.RemoteAcked; 0 is without limit.
	RNRTimeout time.Duration
	// Adjust, if not nil, may lower limits and take away capabilities except
	// CapPostChecks, to look like a lesser adapter.
	Adjust func(*verbs.Attr)
}

// Device is an adapter. It implements [verbs.Device].
type Device struct {
	cfg  Config
	attr verbs.Attr

	mu       sync.Mutex
	removed  bool
	contexts map[*softnic.Context]*driver
}

// ErrRemoved is the cause of what happens when an adapter is removed.
var ErrRemoved = errors.New("loop: adapter was removed")

// New makes an adapter. Its address can be connected to from now on.
func New(cfg Config) *Device {
	if cfg.Name == "" {
		cfg.Name = "loop0"
	}
	if !cfg.Addr.IsValid() {
		cfg.Addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	cfg.Addr = cfg.Addr.Unmap()
	d := &Device{cfg: cfg, attr: attributes(cfg), contexts: map[*softnic.Context]*driver{}}
	fabric.addAdapter(cfg.Addr)
	return d
}

// Name implements [verbs.Device].
func (d *Device) Name() string {
	if d == nil {
		return ""
	}
	return d.cfg.Name
}

// Open implements [verbs.Device].
func (d *Device) Open(cfg verbs.OpenConfig) (verbs.Context, error) {
	if d == nil {
		return nil, verbs.ErrNoDevice
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.removed {
		return nil, verbs.ErrNoDevice
	}
	drv := &driver{dev: d, listeners: map[*listener]struct{}{}}
	c := softnic.New(softnic.Config{
		Attr: d.attr, Driver: drv, Direct: true, QPN: fabric.qpn, Async: cfg.Async,
	})
	d.contexts[c] = drv
	return c, nil
}

// Remove takes the adapter away, as if it were unplugged: every context gets
// AsyncDeviceFatal, every connection breaks, everything posted is flushed, and Open fails. Close
// of the contexts still works. Nothing is left to Remove a second time.
func (d *Device) Remove() {
	d.mu.Lock()
	if d.removed {
		d.mu.Unlock()
		return
	}
	d.removed = true
	all := make(map[*softnic.Context]*driver, len(d.contexts))
	for c, drv := range d.contexts {
		all[c] = drv
	}
	d.mu.Unlock()
	fabric.removeAdapter(d.cfg.Addr)
	for c, drv := range all {
		drv.closeListeners()
		c.Lose(fmt.Errorf("%s: %w", d.cfg.Name, ErrRemoved))
	}
}

// driver is the adapter's part of one context.
type driver struct {
	dev *Device

	mu        sync.Mutex
	closed    bool
	listeners map[*listener]struct{}
}

// NewWire implements [softnic.Driver].
func (d *driver) NewWire(q *softnic.QP) softnic.Wire {
	return &wire{qp: q, dev: d.dev}
}

// Resolve implements [softnic.Driver].
func (d *driver) Resolve(a verbs.Address) error {
	if !a.IP.IsValid() {
		return verbs.ErrAddr
	}
	return nil
}

// Closing implements [softnic.Driver].
func (d *driver) Closing(c *softnic.Context) {
	d.closeListeners()
	d.dev.mu.Lock()
	delete(d.dev.contexts, c)
	d.dev.mu.Unlock()
}

// closeListeners refuses what waits for an answer, and lets nothing come after it.
func (d *driver) closeListeners() {
	d.mu.Lock()
	d.closed = true
	ls := make([]*listener, 0, len(d.listeners))
	for l := range d.listeners {
		ls = append(ls, l)
	}
	d.mu.Unlock()
	for _, l := range ls {
		l.shut(true)
	}
}

func (d *driver) forget(l *listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.listeners, l)
}

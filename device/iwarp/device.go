package iwarp

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/verbs"
)

// Device is an adapter. It implements [verbs.Device].
type Device struct {
	cfg  Config
	attr verbs.Attr
	caps atomic.Uint32 // captures begun
}

// New makes an adapter. Nothing is opened, and nothing listens, before Open.
func New(cfg Config) verbs.Device {
	cfg.complete()
	return &Device{cfg: cfg, attr: attributes(&cfg)}
}

// Name implements [verbs.Device].
func (d *Device) Name() string {
	if d == nil {
		return ""
	}
	return d.cfg.Name
}

// nextQPN counts the QP numbers of the process.
var nextQPN atomic.Uint32

func qpn() uint32 {
	for {
		if n := nextQPN.Add(1) & 0xFFFFFF; n > 1 {
			return n
		}
	}
}

// Open implements [verbs.Device].
func (d *Device) Open(cfg verbs.OpenConfig) (verbs.Context, error) {
	if d == nil {
		return nil, verbs.ErrNoDevice
	}
	drv := &driver{dev: d, cfg: &d.cfg, listeners: map[*listener]struct{}{}}
	drv.ticker.every = d.cfg.tick
	drv.starting.limit = d.cfg.StartTimeout
	if err := drv.openCapture(); err != nil {
		return nil, err
	}
	drv.ctx = softnic.New(softnic.Config{
		Attr: d.attr, Driver: drv, Direct: true, Feed: drv.newFeed, QPN: qpn, Async: cfg.Async,
	})
	return drv.ctx, nil
}

// driver is the adapter's part of one context.
type driver struct {
	dev *Device
	cfg *Config
	ctx *softnic.Context
	cap *capture

	mu        sync.Mutex
	closed    bool
	listeners map[*listener]struct{}

	ticker   ticker
	starting starting
}

// NewWire implements [softnic.Driver].
func (d *driver) NewWire(q *softnic.QP) softnic.Wire {
	w := &wire{qp: q, drv: d}
	q.SetRecvLane(&w.recv)
	return w
}

// Resolve implements [softnic.Driver]; there are no address handles.
func (d *driver) Resolve(verbs.Address) error { return verbs.ErrNotSupported }

// Closing implements [softnic.Driver].
func (d *driver) Closing(*softnic.Context) {
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
	d.ticker.stop()
	d.starting.stop()
	d.cap.flush()
}

func (d *driver) forget(l *listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.listeners, l)
}

// local is this side's wishes for a negotiation.
func (d *driver) local(p *verbs.ConnParams) mpa.Local {
	return mpa.Local{
		Rev: uint8(d.cfg.Rev), CRC: !d.cfg.NoCRC, Markers: d.cfg.Markers, GSO: d.cfg.GSO,
		PeerToPeer: !d.cfg.NoPeerToPeer, RTR: mpa.RTRWrite | mpa.RTRRead,
		IRD: uint16(p.ReadsIn), ORD: uint16(p.ReadsOut),
	}
}

// address is an address of package verbs.
func address(a netip.AddrPort) verbs.Address {
	return verbs.Address{IP: a.Addr().Unmap(), Port: uint64(a.Port())}
}

func addrPort(a verbs.Address) netip.AddrPort {
	return netip.AddrPortFrom(a.IP.Unmap(), uint16(a.Port))
}

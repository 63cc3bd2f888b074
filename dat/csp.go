package dat

import (
	"fmt"
	"net/netip"
	"syscall"

	"kdapl/verbs"
)

// Comm is the kind of communicator of a common service point, as the arguments of socket(2) (DAT_COMM). The zero
// value, in each field, is the adapter's own.
type Comm struct {
	Domain, Type, Protocol int
}

// fits reports whether adapters have the communicator: streams over IP, of the address's family.
func (c Comm) fits(a netip.Addr) bool {
	switch c.Domain {
	case 0:
	case syscall.AF_INET:
		if a.IsValid() && !a.Unmap().Is4() {
			return false
		}
	case syscall.AF_INET6:
		if a.IsValid() && !a.Is6() {
			return false
		}
	default:
		return false
	}
	return (c.Type == 0 || c.Type == syscall.SOCK_STREAM) && (c.Protocol == 0 || c.Protocol == syscall.IPPROTO_TCP)
}

// CSPConfig describes a common service point (the arguments of dat_csp_create).
type CSPConfig struct {
	// Comm is the kind of communicator; the zero value is good.
	Comm Comm
	// Address is the socket address to listen on: an address of the adapter, or none for its own, and a
	// port, 0 for a free one.
	Address netip.AddrPort
	// EVD receives a ConnectionRequest event for each request; it needs StreamConnectionRequest.
	EVD *EVD
	// MakeEP makes each request come with an EP of the provider's, in StateUnconfiguredTentative,
	// whose PZ and EVDs Modify supplies. Otherwise the consumer names one in Accept.
	MakeEP bool
}

// CSP is a common service point: a listener on a socket address.
type CSP struct {
	service
	cfg CSPConfig
}

// NewCSP creates a service point on a socket address and starts to listen (dat_csp_create); peers use
// CommonConnect. It does not block.
//
// INVALID_HANDLE (EVD_CR). COMM_NOT_SUPPORTED. PORT_IN_USE. INVALID_ADDRESS: not an address of the adapter's.
func (ia *IA) NewCSP(cfg CSPConfig) (*CSP, error) {
	const op = "csp_create"
	if err := ia.check(op); err != nil {
		return nil, err
	}
	if !cfg.Comm.fits(cfg.Address.Addr()) {
		return nil, ia.fail(op, CommNotSupported, NoSubtype, nil, fmt.Sprintf("communicator %+v at %v; streams over IP are possible", cfg.Comm, cfg.Address))
	}
	c := &CSP{service: service{evd: cfg.EVD, local: verbs.Address{IP: cfg.Address.Addr(), Port: uint64(cfg.Address.Port())}}, cfg: cfg}
	c.base = base{self: c, ia: ia, kind: HandleCSP}
	if err := c.listen(op, c.onRequest); err != nil {
		return nil, err
	}
	return c, nil
}

// Address is where the CSP listens.
func (c *CSP) Address() netip.AddrPort {
	if c == nil || c.ia == nil {
		return netip.AddrPort{}
	}
	a := c.address()
	return netip.AddrPortFrom(a.IP, uint16(a.Port))
}

// CSPParam is what Query tells (DAT_CSP_PARAM).
type CSPParam struct {
	// IA is the adapter.
	IA      *IA
	Comm    Comm
	Address netip.AddrPort
	EVD     *EVD
	MakeEP  bool
}

// Query tells the CSP's parameters (dat_csp_query). It does not block.
func (c *CSP) Query() (CSPParam, error) {
	if c.gone() {
		return CSPParam{}, c.errGone("csp_query")
	}
	return CSPParam{IA: c.ia, Comm: c.cfg.Comm, Address: c.Address(), EVD: c.evd, MakeEP: c.cfg.MakeEP}, nil
}

// Free ends the listening (dat_csp_free); see PSP.Free.
func (c *CSP) Free() error {
	if c.gone() || !c.stop() {
		return c.errGone("csp_free")
	}
	return nil
}

func (c *CSP) abandon() { c.stop() }

func (c *CSP) onRequest(req verbs.ConnRequest) {
	var ep *EP
	if c.cfg.MakeEP && !c.gone() {
		var err error
		if ep, err = c.ia.makeEP(StateUnconfiguredTentative, req); err != nil {
			req.Refuse()
			return
		}
	}
	if c.gone() || !c.deliver(req, c, ep) {
		req.Refuse()
		ep.unmake()
	}
}

package iwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"kdapl/internal/netio"
	"kdapl/verbs"
)

// Config describes an adapter. The zero value is iwarp0 at 127.0.0.1 with the defaults that are
// named below.
type Config struct {
	// Name is the adapter's name; "iwarp0" if empty.
	Name string
	// Addr is the address that it listens on and connects from, IPv4 or IPv6; 127.0.0.1 if not valid.
	Addr netip.Addr
	// Network is where connections come from; nil is the host's TCP, with KeepAlive and UserTimeout.
	Network netio.Network
	// KeepAlive is the silence after which an idle connection whose peer does not answer probes is
	// broken, UserTimeout how long sent data may stay unacknowledged, and a received FPDU incomplete. 0 is
	// the default of package netio, half a minute; less than 0 is off.
	KeepAlive, UserTimeout time.Duration

	// Rev is the MPA revision of requests, and the highest one that is accepted; 0 is 2. A peer
	// that resets the connection when it sees revision 2 is tried again with revision 1.
	Rev int
	// NoCRC gives up CRC32c if the peer does not ask for it either (RFC 5044 section 7.1.1: an
	// administrator's wish on both sides).
	NoCRC bool
	// Markers asks the peer for markers in what it sends. What the peer asks for, it gets.
	Markers bool
	// GSO offers FPDUs larger than a TCP segment by the Linux siw driver's experimental bit.
	GSO bool
	// NoPeerToPeer does without the RTR message of RFC 6581: as the active side asks for none, so that
	// the passive side has to wait until the active side has sent something.
	NoPeerToPeer bool

	// Spin is how many times a receiver looks for more input, yielding between, before it sleeps;
	// 0 is the default, less than 0 is off. It looks only while that has paid off lately.
	Spin int
	// StartTimeout bounds the time that a peer may take for its request, and for the first FPDU after an
	// Accept in peer-to-peer mode; 0 is 10 seconds.
	StartTimeout time.Duration
	// Linger bounds the time that an ended connection waits for its peer to end it too, before it is
	// reset; 0 is 5 seconds.
	Linger time.Duration
	// MaxHalfOpen is how many connections of one listener may be in the start-up phase; 0 is 1024. More are
	// closed at once.
	MaxHalfOpen int

	// CaptureFile, if not empty, is where each open instance writes all streams, in pcapng form as TCP
	// packets. Instances of one process append a number to it, but for the first.
	CaptureFile string

	// Adjust, if not nil, may lower limits and take away capabilities, to look like a lesser adapter.
	Adjust func(*verbs.Attr)

	tick time.Duration // how often it is looked whether a CQ is still polled
}

const (
	defaultStart    = 10 * time.Second
	defaultLinger   = 5 * time.Second
	defaultTick     = 2 * time.Millisecond
	defaultHalfOpen = 1024
	defaultBacklog  = 128
	defaultSpin     = 192
)

// complete fills in the defaults.
func (c *Config) complete() {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	if c.Name == "" {
		c.Name = "iwarp0"
	}
	if !c.Addr.IsValid() {
		c.Addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	c.Addr = c.Addr.Unmap()
	if c.Network == nil {
		c.Network = &netio.TCP{KeepAlive: c.KeepAlive, UserTimeout: c.UserTimeout}
	}
	if c.Rev != 1 {
		c.Rev = 2
	}
	switch {
	case c.Spin == 0:
		c.Spin = defaultSpin
	case c.Spin < 0:
		c.Spin = 0
	}
	def(&c.StartTimeout, defaultStart)
	def(&c.Linger, defaultLinger)
	def(&c.tick, defaultTick)
	if c.MaxHalfOpen <= 0 {
		c.MaxHalfOpen = defaultHalfOpen
	}
}

// stall is how long a peer may leave an FPDU incomplete; 0 is without limit.
func (c *Config) stall() time.Duration {
	if c.UserTimeout == 0 {
		return netio.DefaultUserTimeout
	}
	return max(c.UserTimeout, 0)
}

// ErrConfig is what every error of ParseConfig matches.
var ErrConfig = errors.New("iwarp: bad configuration")

// option parses the value of one option.
type option struct {
	help  string
	parse func(c *Config, v string) error
}

var options = map[string]option{
	"name":      {"the adapter's name", func(c *Config, v string) error { c.Name = v; return nil }},
	"addr":      {"IPv4 or IPv6 address to listen on and connect from", parseAddr},
	"rev":       {"MPA revision, 1 or 2", parseRev},
	"crc":       {"on, or off if the peer agrees", func(c *Config, v string) error { return parseNot(&c.NoCRC, v) }},
	"markers":   {"on: ask the peer for markers", func(c *Config, v string) error { return parseBool(&c.Markers, v) }},
	"gso":       {"on: offer FPDUs larger than a TCP segment, as siw does", func(c *Config, v string) error { return parseBool(&c.GSO, v) }},
	"peer2peer": {"off: no RTR message", func(c *Config, v string) error { return parseNot(&c.NoPeerToPeer, v) }},
	"spin":      {"turns before a receiver sleeps, or off", parseSpin},
	"start":     {"time for the start-up phase", func(c *Config, v string) error { return parseTime(&c.StartTimeout, v) }},
	"linger":    {"time for the end of a connection", func(c *Config, v string) error { return parseTime(&c.Linger, v) }},
	"halfopen":  {"connections in the start-up phase", func(c *Config, v string) error { return parseCount(&c.MaxHalfOpen, v) }},
	"keepalive": {"silence before an idle peer is given up, or off", func(c *Config, v string) error { return parseTimeOff(&c.KeepAlive, v) }},
	"timeout":   {"time that sent data may stay unacknowledged, or off", func(c *Config, v string) error { return parseTimeOff(&c.UserTimeout, v) }},
	"pcap":      {"file for a capture", func(c *Config, v string) error { c.CaptureFile = v; return nil }},
}

// ParseConfig reads options of the form name=value, separated by spaces or commas, as they stand in a
// dat.conf or on a command line: name, addr, rev, crc, markers, gso, peer2peer, spin, start, linger,
// halfopen, keepalive, timeout, pcap. Switches take on and off, times what time.ParseDuration
// takes. Errors match ErrConfig.
func ParseConfig(s string) (Config, error) {
	var c Config
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
		name, value, _ := strings.Cut(f, "=")
		if err := c.Set(name, value); err != nil {
			return Config{}, err
		}
	}
	return c, nil
}

// Set sets one option of those that ParseConfig knows. The value may hold any character, such as the
// spaces of a file's name. Errors match ErrConfig and leave the configuration as it was.
func (c *Config) Set(name, value string) error {
	o, known := options[name]
	switch {
	case !known:
		return fmt.Errorf("%w: unknown option %q", ErrConfig, name)
	case value == "":
		return fmt.Errorf("%w: option %s needs a value (%s)", ErrConfig, name, o.help)
	}
	set := *c
	if err := o.parse(&set, value); err != nil {
		return fmt.Errorf("%w: %s=%s: %v (%s)", ErrConfig, name, value, err, o.help)
	}
	*c = set
	return nil
}

func parseAddr(c *Config, v string) (err error) {
	c.Addr, err = netip.ParseAddr(v)
	if err == nil && (c.Addr.IsUnspecified() || c.Addr.IsMulticast()) {
		err = errors.New("not the address of an adapter")
	}
	return err
}

func parseRev(c *Config, v string) error {
	if v != "1" && v != "2" {
		return errors.New("no such revision")
	}
	c.Rev = int(v[0] - '0')
	return nil
}

func parseBool(to *bool, v string) error {
	switch v {
	case "on":
		*to = true
	case "off":
		*to = false
	default:
		return errors.New("neither on nor off")
	}
	return nil
}

func parseNot(to *bool, v string) error {
	var on bool
	err := parseBool(&on, v)
	*to = !on
	return err
}

func parseSpin(c *Config, v string) error {
	if v == "off" || v == "0" {
		c.Spin = -1
		return nil
	}
	return parseCount(&c.Spin, v)
}

func parseCount(to *int, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 1<<20 {
		return errors.New("not a number from 1 to 1048576")
	}
	*to = n
	return nil
}

func parseTime(to *time.Duration, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return errors.New("not a time above 0")
	}
	*to = d
	return nil
}

func parseTimeOff(to *time.Duration, v string) error {
	if v == "off" {
		*to = -1
		return nil
	}
	return parseTime(to, v)
}

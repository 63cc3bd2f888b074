package ucmatose

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"kdapl/cmd/kdapl/internal/link"
	"kdapl/cmd/kdapl/internal/perf"
	"kdapl/dat"
	"kdapl/registry"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const iwarp = "iwarp addr=127.0.0.1"

// host makes a host on an adapter: a name, or settings.
func host(t *testing.T, adapter string) *link.Host {
	t.Helper()
	open := func() (*dat.IA, error) { return registry.Open(adapter) }
	if strings.HasPrefix(adapter, "iwarp ") {
		open = func() (*dat.IA, error) { return registry.OpenParams(adapter, dat.Config{}) }
	}
	ia, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n, err := ia.Query(); err != nil || n.Counters.EPs != 0 || n.Counters.LMRs != 0 {
			t.Errorf("left are %+v, %v", n.Counters, err)
		}
		if err := ia.Close(context.Background(), dat.CloseAbrupt); err != nil {
			t.Error(err)
		}
	})
	h, err := link.NewHost(ia, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// run runs both roles, and returns how they ended.
func run(t *testing.T, server, client *link.Host, scfg, ccfg Config) (serr, cerr error) {
	t.Helper()
	ln, err := server.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- Server(ctx, server, ln, scfg) }()
	cerr = Client(ctx, client, server.IA.Address(), ln.Port(), ccfg)
	if scfg.Connections > ccfg.Connections {
		cancel() // it waits for more
	}
	serr = <-done
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	return serr, cerr
}

func TestBothRoles(t *testing.T) {
	for _, adapter := range []string{"loop0", iwarp, iwarp + " crc=off"} {
		for _, cfg := range []Config{
			{Connections: 1, Count: DefaultCount, Size: DefaultSize},
			{Connections: 10, Count: DefaultCount, Size: DefaultSize},
			{Connections: 2, Count: 3, Size: 100_000},
			{Connections: 2, Count: 3, Size: 0},
			{Connections: 3, Count: 0, Size: 8},
		} {
			t.Run(fmt.Sprintf("%s/%+v", adapter, cfg), func(t *testing.T) {
				serr, cerr := run(t, host(t, adapter), host(t, adapter), cfg, cfg)
				if serr != nil || cerr != nil {
					t.Errorf("server: %v; client: %v", serr, cerr)
				}
			})
		}
	}
}

func TestDisagreementIsTold(t *testing.T) {
	usual := Config{Connections: 1, Count: 4, Size: 64}
	for name, c := range map[string]struct {
		server, client Config
		serr, cerr     string // parts of the errors
	}{
		"size of the server smaller": {Config{1, 4, 32}, usual, "CONNECTION_EVENT_", "message 1 of 4: the peer sent a message of 32 bytes instead of 64"},
		"size of the server larger":  {Config{1, 4, 65}, usual, "CONNECTION_EVENT_BROKEN", "connection 1: message 1 of 4: "},
		"server sends more":          {Config{1, 5, 64}, usual, "CONNECTION_EVENT_BROKEN", ""},
		"server sends less":          {Config{1, 3, 64}, usual, "waited in vain", "waited in vain"},
		"server wants more":          {Config{2, 4, 64}, usual, "INTERRUPTED_CALL", "waited in vain"},
	} {
		t.Run(name, func(t *testing.T) {
			server, client := host(t, iwarp), host(t, iwarp)
			if strings.Contains(c.cerr, "waited") {
				client.Quiet = 100 * time.Millisecond
			}
			if name == "server sends less" {
				c.serr = "CONNECTION_EVENT_" // the client gives up first
			}
			serr, cerr := run(t, server, client, c.server, c.client)
			if serr == nil || !strings.Contains(serr.Error(), c.serr) {
				t.Errorf("server: %v", serr)
			}
			if cerr == nil || !strings.Contains(cerr.Error(), c.cerr) {
				t.Errorf("client: %v", cerr)
			}
		})
	}
}

func TestServerOfAClientWithoutPeerToPeerModeWaitsInVain(t *testing.T) {
	server, client := host(t, iwarp), host(t, iwarp+" peer2peer=off")
	server.Quiet, client.Quiet = 50*time.Millisecond, 10*time.Second
	cfg := Config{Connections: 1, Count: 1, Size: 1}
	serr, cerr := run(t, server, client, cfg, cfg)
	if s := new(perf.StallError); !errors.As(serr, &s) || s.After != server.Quiet {
		t.Errorf("server: %v", serr)
	}
	if c := new(perf.ConnectionError); !errors.As(cerr, &c) {
		t.Errorf("client: %v", cerr)
	}
}

func TestLimits(t *testing.T) {
	a := dat.IAAttr{MaxEPs: 10, MaxDTOPerEP: 20, MaxMessageSize: 30}
	for _, c := range []struct {
		cfg Config
		ok  bool
	}{
		{Config{1, 0, 0}, true}, {Config{10, 20, 30}, true},
		{Config{0, 1, 1}, false}, {Config{11, 1, 1}, false}, {Config{1, -1, 1}, false},
		{Config{1, 21, 1}, false}, {Config{1, 1, -1}, false}, {Config{1, 1, 31}, false},
	} {
		if err := c.cfg.Check(a); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}

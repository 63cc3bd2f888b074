package stat_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"kdapl/dat"
	"kdapl/registry"
	"kdapl/stat"
)

func TestExporterTellsWhatTheObjectsCount(t *testing.T) {
	ia, err := registry.Open("loop0")
	if err != nil {
		t.Fatal(err)
	}
	defer ia.Close(context.Background(), dat.CloseAbrupt)
	evd, err := ia.NewEVD(dat.EVDConfig{MinLen: 4, Streams: dat.StreamSoftware | dat.StreamConnection | dat.StreamDTO})
	if err != nil {
		t.Fatal(err)
	}
	pz, err := ia.NewPZ()
	if err != nil {
		t.Fatal(err)
	}
	ep, err := pz.NewEP(dat.EPConfig{Recv: evd, Request: evd, Connect: evd})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := evd.PostSE(0); err != nil {
			t.Fatal(err)
		}
	}
	if err := ep.PostRecv(0, dat.CompletionDefault); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{filepath.Join(t.TempDir(), "socket"), "127.0.0.1:0"} {
		x, err := stat.Serve(address, ia)
		if err != nil {
			t.Fatal(err)
		}
		s, err := stat.Get(context.Background(), x.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if s.PID != os.Getpid() || len(s.IAs) != 1 || s.IAs[0].Name != "loop0" || s.IAs[0].Objects.EPs != 1 || len(s.IAs[0].EPs) != 1 {
			t.Fatalf("%+v", s)
		}
		if got := s.IAs[0].EPs[0]; got.Name != ep.String() || got.State == "" || got.Recv.Posted != 1 {
			t.Errorf("%+v", got)
		}
		found := false
		for _, got := range s.IAs[0].EVDs {
			if got.Name == evd.String() {
				found = true
				if got.Queued != 3 || got.Counters.Events != 3 {
					t.Errorf("%+v", got)
				}
			}
		}
		if !found {
			t.Errorf("the EVD is not among %+v", s.IAs[0].EVDs)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if _, err := stat.Get(context.Background(), x.Addr()); err == nil {
			t.Error("it answers after Close")
		}
	}
}

func TestClosedIAIsShownNoMore(t *testing.T) {
	ia, err := registry.Open("loop0")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(stat.Take(ia).IAs); n != 1 {
		t.Errorf("%d IAs", n)
	}
	if err := ia.Close(context.Background(), dat.CloseGraceful); err != nil {
		t.Fatal(err)
	}
	if n := len(stat.Take(ia, nil).IAs); n != 0 {
		t.Errorf("%d IAs after Close", n)
	}
	if got := ia.Objects(dat.HandleEP); got != nil {
		t.Errorf("objects after Close: %v", got)
	}
}

func TestServeRefusesAnAddressThatIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{path, "", filepath.Join(t.TempDir(), "missing", "socket")} {
		if x, err := stat.Serve(address); err == nil {
			x.Close()
			t.Errorf("%q is served", address)
		}
	}
}

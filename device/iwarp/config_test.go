package iwarp

import (
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

func TestParseConfig(t *testing.T) {
	got, err := ParseConfig("name=iw1 addr=::1,rev=1 crc=off markers=on gso=on peer2peer=off spin=off start=2s linger=1s halfopen=7 keepalive=off timeout=3s pcap=x.pcapng")
	want := Config{
		Name: "iw1", Addr: netip.IPv6Loopback(), Rev: 1, NoCRC: true, Markers: true, GSO: true, NoPeerToPeer: true, Spin: -1,
		StartTimeout: 2 * time.Second, Linger: time.Second, MaxHalfOpen: 7, KeepAlive: -1, UserTimeout: 3 * time.Second, CaptureFile: "x.pcapng",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseConfig("crc=on peer2peer=on markers=off spin=7"); err != nil || !reflect.DeepEqual(got, Config{Spin: 7}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseConfig(""); err != nil || !reflect.DeepEqual(got, Config{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for _, s := range []string{
		"speed=11", "crc", "crc=", "crc=maybe", "rev=3", "rev=0", "addr=nowhere", "addr=0.0.0.0", "addr=224.0.0.1", "spin=-1", "spin=x",
		"start=0s", "start=soon", "linger=-1s", "halfopen=0", "timeout=", "=on",
	} {
		if c, err := ParseConfig(s); !errors.Is(err, ErrConfig) || !reflect.DeepEqual(c, Config{}) {
			t.Errorf("%q: %+v, %v", s, c, err)
		}
	}
}

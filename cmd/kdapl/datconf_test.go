package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kdapl/registry"
)

func TestDatConf(t *testing.T) {
	code, out, errs := kdapl(context.Background(), "dat-conf")
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	golden(t, "dat-conf.txt", []byte(out))
	code, out, errs = kdapl(context.Background(), "dat-conf", "--library", "/usr/local/my lib/libkdapl.so.2", "--addr", "::1", "--crc", "off",
		"--set", "spin=off", "--set", "rev=1", "--set", "pcap=/nowhere/at/all")
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	golden(t, "dat-conf-options.txt", []byte(out))
}

// What is printed is read as it was meant, and every name in it can be opened.
func TestDatConfWorks(t *testing.T) {
	_, out, _ := kdapl(context.Background(), "dat-conf", "--library", "/a/libkdapl.so")
	lines, err := registry.ParseConf("dat.conf", bytes.NewReader([]byte(out)))
	if err != nil || len(lines) != 3 {
		t.Fatalf("%v, %v", lines, err)
	}
	path := filepath.Join(t.TempDir(), "dat.conf")
	if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DAT_OVERRIDE", path)
	for _, l := range lines {
		if l.API != 'u' || l.Major != 2 || l.ThreadSafe || !l.Ours() {
			t.Errorf("%+v", l)
		}
		ia, err := registry.OpenWith(l.Name, registry.Options{Major: 2, NonThreadSafe: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := closeIA(ia); err != nil {
			t.Error(err)
		}
	}
}

func TestDatConfRefusesWhatNoAdapterTakes(t *testing.T) {
	for line, want := range map[string]string{
		"dat-conf --addr 0.0.0.0":         "not the address of an adapter",
		"dat-conf --set speed=9":          `unknown option "speed"`,
		"dat-conf --set addr=::1":         "there is the option --addr",
		"dat-conf --set crc=off":          "there is the option --crc",
		"dat-conf --set rev=3":            "no such revision",
		"dat-conf --library libother.so":  "must be libkdapl.so",
		"dat-conf --library= --crc=off":   "--library is empty",
		"dat-conf --crc perhaps":          "--crc",
		"dat-conf --set pcap=a\u00a0file": "",
	} {
		code, out, errs := kdapl(context.Background(), strings.Split(line, " ")...)
		if want == "" {
			if code != exitOK {
				t.Errorf("kdapl %s: %s", line, errs)
			}
			continue
		}
		if code != exitUsage || out != "" || !strings.Contains(errs, want) {
			t.Errorf("kdapl %s: exit code %d, %q, %q; want %q", line, code, out, errs, want)
		}
	}
	code, _, errs := kdapl(context.Background(), "dat-conf", "--set", "pcap=a file")
	if code != exitUsage || !strings.Contains(errs, "cannot hold a setting with spaces") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed peers/fabric.c
var fabricSource []byte

// peers are the yardsticks in C, built into a folder of their own.
type peers struct {
	dir string
	ok  bool
}

// buildPeers compiles what can be compiled here.
func buildPeers() *peers {
	p := &peers{}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return p
	}
	p.dir = dir
	source := filepath.Join(dir, "fabric.c")
	if os.WriteFile(source, fabricSource, 0o600) != nil {
		return p
	}
	out, err := exec.Command("cc", "-O2", "-o", filepath.Join(dir, "fabric"), source, "-lfabric").CombinedOutput()
	if p.ok = err == nil; !p.ok {
		fmt.Fprintf(os.Stderr, "bench: no libfabric: %v: %s\n", err, strings.SplitN(string(out), "\n", 2)[0])
	}
	return p
}

func (p *peers) remove() {
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}

// fabric returns a yardstick of the C program: n rounds of what the arguments say.
func (p *peers) fabric(args ...string) func(n int) (time.Duration, error) {
	return func(n int) (time.Duration, error) {
		if !p.ok {
			return 0, errNoPeer
		}
		cmd := exec.Command(filepath.Join(p.dir, "fabric"), append(args, strconv.Itoa(n))...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return 0, fmt.Errorf("libfabric %v: %w", args, err)
		}
		ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		return time.Duration(ns * float64(n)), err
	}
}

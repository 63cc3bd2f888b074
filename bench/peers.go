package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

var (
	//go:embed peers/fabric.c
	fabricSource []byte
	//go:embed peers/fitcp.c
	fitcpSource []byte
	//go:embed peers/sockets.c
	socketsSource []byte
)

// peers are the yardsticks in C, built into a folder of their own.
type peers struct {
	dir                        string
	fabricOK, socketsOK, ucxOK bool
}

var (
	errNoFabric  = errors.New("left out: needs a C compiler and libfabric's headers (Debian: gcc, libfabric-dev)")
	errNoUCX     = errors.New("left out: needs ucx_perftest (Debian: ucx-utils)")
	errNoSockets = errors.New("left out: needs a C compiler (Debian: gcc)")
)

// packages are what the peers need, on Debian.
var packages = []string{"gcc", "libc6-dev", "libfabric-dev", "ucx-utils"}

// buildPeers compiles what can be compiled here.
func buildPeers(install bool) *peers {
	p := &peers{}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return p
	}
	p.dir = dir
	for try := range 2 {
		p.fabricOK = p.build("fabric", fabricSource, "-lfabric") && p.build("fitcp", fitcpSource, "-lfabric")
		p.socketsOK = p.build("sockets", socketsSource)
		_, err = exec.LookPath("ucx_perftest")
		p.ucxOK = err == nil
		if p.fabricOK && p.socketsOK && p.ucxOK || !install || try > 0 || !installPackages() {
			break
		}
	}
	return p
}

// installPackages installs what is missing, if this is root on a Debian.
func installPackages() bool {
	if _, err := exec.LookPath("apt-get"); err != nil || os.Getuid() != 0 {
		return false
	}
	for _, args := range [][]string{{"update", "-q"}, append([]string{"install", "-qy", "--no-install-recommends"}, packages...)} {
		cmd := exec.Command("apt-get", args...)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "bench: apt-get:", err)
			return false
		}
	}
	return true
}

func (p *peers) build(name string, source []byte, libs ...string) bool {
	file := filepath.Join(p.dir, name+".c")
	if os.WriteFile(file, source, 0o600) != nil {
		return false
	}
	args := append([]string{"-O2", "-o", filepath.Join(p.dir, name), file}, libs...)
	out, err := exec.Command("cc", args...).CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: no %s: %v: %s\n", name, err, strings.SplitN(string(out), "\n", 2)[0])
	}
	return err == nil
}

func (p *peers) remove() {
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}

// fabric is a yardstick in one process: n rounds of what the arguments say.
func (p *peers) fabric(n int, args ...string) runner {
	return func() (sample, error) {
		if !p.fabricOK {
			return sample{}, errNoFabric
		}
		round := func(n int) (ns, cpu float64, err error) {
			before := own()
			cmd := exec.Command(filepath.Join(p.dir, "fabric"), append(args[:len(args):len(args)], strconv.Itoa(n))...)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				return 0, 0, fmt.Errorf("libfabric %v: %w", args, err)
			}
			ns, err = strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
			return ns, own() - before, err
		}
		_, start, err := round(1) // the processor time of getting ready
		if err != nil {
			return sample{}, err
		}
		ns, cpu, err := round(n)
		return sample{value: ns, cpu: max(0, cpu-start) / float64(n) * 1e6}, err
	}
}

// sockets sets up n connections of plain C.
func (p *peers) sockets(set *settings, n int) runner {
	return set.watched(func() (sample, error) {
		if !p.socketsOK {
			return sample{}, errNoSockets
		}
		cmd := exec.Command(filepath.Join(p.dir, "sockets"), strconv.Itoa(n))
		cmd.Env = set.environment()
		var y yardstick
		err := output(cmd, set.first, &y)
		return sample{value: y.Rate}, err
	})
}

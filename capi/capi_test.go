//go:build kdapl_capi && cgo && linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// work is where the tests build.
var work string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "capi")
	if err != nil {
		panic(err)
	}
	work = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// library builds the library and a dat.conf, once for the flags, and returns the latter.
func library(t *testing.T, flags ...string) string {
	t.Helper()
	dir := filepath.Join(work, "lib"+strings.Join(flags, ""))
	conf := filepath.Join(dir, "dat.conf")
	if _, err := os.Stat(conf); err == nil {
		return conf
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lib, minimal := filepath.Join(dir, "libkdapl.so"), filepath.Join(dir, "libminimal.so")
	args := append([]string{"build", "-buildmode=c-shared", "-tags", "kdapl_capi"}, flags...)
	run(t, nil, "go", append(args, "-o", lib, ".")...)
	run(t, nil, "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", minimal, filepath.Join("ctest", "minimal.c"), "-ldat2", "-lpthread")
	text := ""
	for _, line := range [][3]string{{"loop", lib, "loop"}, {"iwarp", lib, "iwarp addr=127.0.0.1"}, {"minimal", minimal, ""}} {
		text += fmt.Sprintf("%s u2.0 nonthreadsafe default %s kdapl.1.0 %q \"\"\n", line[0], line[1], line[2])
	}
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return conf
}

// TestCProgramsWithAddressSanitizer has the memory that C and Go share watched.
func TestCProgramsWithAddressSanitizer(t *testing.T) {
	if testing.Short() {
		t.Skip("without -short, as .ci/run full has it: the library is built once more, with AddressSanitizer")
	}
	conf := library(t, "-asan")
	for _, program := range []string{"events", "data", "conn", "threads"} {
		bin := compile(t, program, "-fsanitize=address")
		for _, ia := range []string{"loop", "iwarp"} {
			t.Run(program+"/"+ia, func(t *testing.T) { passes(t, conf, bin, ia) })
		}
	}
	bin := compile(t, "fuzz", "-fsanitize=address")
	for _, ia := range []string{"loop", "iwarp"} {
		t.Run("fuzz/"+ia, func(t *testing.T) { passes(t, conf, bin, ia, "1", "50000", "4") })
	}
}

// TestArgumentsDrawnBySeed calls every entry of the table with whatever a C program might pass, from four threads. A failure
// names the seed: `fuzz IA SEED CALLS THREADS`.
func TestArgumentsDrawnBySeed(t *testing.T) {
	conf, bin, seeds := library(t), compile(t, "fuzz"), 25
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		for _, ia := range []string{"loop", "iwarp"} {
			passes(t, conf, bin, ia, strconv.Itoa(seed), "50000", "4")
		}
	}
}

// compile compiles a program of ctest.
func compile(t *testing.T, program string, flags ...string) string {
	t.Helper()
	bin := filepath.Join(work, program+strings.Join(flags, ""))
	args := append([]string{"-O1", "-g", "-Wall", "-Werror", "-o", bin, filepath.Join("ctest", program+".c")}, flags...)
	run(t, nil, "gcc", append(args, "-ldat2", "-lpthread")...)
	return bin
}

// passes runs a program, which checks itself.
func passes(t *testing.T, conf, bin string, args ...string) {
	t.Helper()
	if out := run(t, []string{"DAT_OVERRIDE=" + conf}, bin, args...); !strings.HasSuffix(out, "PASS\n") {
		t.Errorf("%s", out)
	}
}

func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestCPrograms(t *testing.T) {
	conf := library(t)
	for _, c := range []struct {
		program string
		args    [][]string
	}{
		{"events", [][]string{{"loop"}, {"iwarp"}}},
		{"data", [][]string{{"loop"}, {"iwarp"}}},
		{"conn", [][]string{{"loop"}, {"iwarp"}}},
		{"threads", [][]string{{"loop"}}},
		{"open", [][]string{{"loop", "iwarp"}, {"iwarp", "loop"}}},
	} {
		bin := compile(t, c.program)
		for _, args := range c.args {
			t.Run(c.program+"/"+args[0], func(t *testing.T) { passes(t, conf, bin, args...) })
		}
	}
}

// TestCostBesideAProviderInC compares calls with those of a minimal provider in C, in one run. It prints what it finds; a
// machine that does other things makes no verdict.
func TestCostBesideAProviderInC(t *testing.T) {
	conf := library(t)
	out := run(t, []string{"DAT_OVERRIDE=" + conf}, compile(t, "bench"), "minimal", "loop")
	t.Log("\n" + out)
	if !strings.HasSuffix(out, "PASS\n") {
		t.Error("did not finish")
	}
}

// TestLibraryInManyProcesses starts the library, and ends it, with everything that it does at the beginning and the end.
func TestLibraryInManyProcesses(t *testing.T) {
	conf, bin := library(t), compile(t, "open")
	n := 200
	if testing.Short() {
		n = 20
	}
	for range n {
		passes(t, conf, bin, "iwarp", "loop", "1")
	}
}

// TestPeerThatIsKilled kills either side of a connection; the other sees the end as it should.
func TestPeerThatIsKilled(t *testing.T) {
	conf, bin := library(t), compile(t, "peer")
	for i, victim := range []string{"client", "server"} {
		t.Run(victim, func(t *testing.T) {
			qual := strconv.Itoa(47310 + i)
			server := begin(t, conf, bin, "iwarp", qual, "server")
			server.says(t, "listening")
			client := begin(t, conf, bin, "iwarp", qual, "client", "127.0.0.1")
			client.says(t, "connected")
			server.says(t, "connected")
			dies, lives := client, server
			if victim == "server" {
				dies, lives = server, client
			}
			if err := dies.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			lives.says(t, "PASS")
			if err := lives.cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// program is one that runs beside the test.
type program struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	err   *strings.Builder
}

func begin(t *testing.T, conf, bin string, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	p := &program{cmd: exec.CommandContext(ctx, bin, args...), err: new(strings.Builder)}
	p.cmd.Env = append(os.Environ(), "DAT_OVERRIDE="+conf)
	p.cmd.Stderr = p.err
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// says waits for the next line.
func (p *program) says(t *testing.T, want string) {
	t.Helper()
	if !p.lines.Scan() || p.lines.Text() != want {
		err := p.cmd.Wait()
		t.Fatalf("%q, want %q; %v: %s", p.lines.Text(), want, err, p.err)
	}
}

//go:build kdapl_capi && cgo && linux

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// library builds the library and a dat.conf, and returns the latter.
func library(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	lib := filepath.Join(dir, "libkdapl.so")
	run(t, nil, "go", "build", "-buildmode=c-shared", "-tags", "kdapl_capi", "-o", lib, ".")
	conf := filepath.Join(dir, "dat.conf")
	text := "loop u2.0 nonthreadsafe default " + lib + " kdapl.1.0 \"loop\" \"\"\n" +
		"iwarp u2.0 nonthreadsafe default " + lib + " kdapl.1.0 \"iwarp addr=127.0.0.1\" \"\"\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return conf
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
		{"open", [][]string{{"loop", "iwarp"}, {"iwarp", "loop"}}},
	} {
		bin := filepath.Join(t.TempDir(), c.program)
		run(t, nil, "gcc", "-O1", "-g", "-Wall", "-Werror", "-o", bin, filepath.Join("ctest", c.program+".c"), "-ldat2", "-lpthread")
		for _, args := range c.args {
			t.Run(c.program+"/"+args[0], func(t *testing.T) {
				if out := run(t, []string{"DAT_OVERRIDE=" + conf}, bin, args...); !strings.HasSuffix(out, "PASS\n") {
					t.Errorf("%s", out)
				}
			})
		}
	}
}

//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed vm
var vmFiles embed.FS

// Files of the work directory.
func kernelFile(work string) string { return filepath.Join(work, "vmlinuz") }
func initrdFile(work string) string { return filepath.Join(work, "initrd.gz") }
func kdaplFile(work string) string  { return filepath.Join(work, "kdapl") }
func capiFile(work string) string   { return filepath.Join(work, "libkdapl.so") }
func confFile(work string) string   { return filepath.Join(work, "dat.conf") }

// command is a command that ends with the context, together with what it has started.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// build makes all that the rows need in the work directory. The guest is made anew only if its parts changed.
func build(ctx context.Context, work string) error {
	for _, b := range []struct{ cgo, tags, mode, out, pkg string }{
		{"0", "", "exe", filepath.Join(work, "agent"), "./interop/siw/agent"},
		{"0", "", "exe", kdaplFile(work), "./cmd/kdapl"},
		{"1", "kdapl_capi", "c-shared", capiFile(work), "./capi"},
	} {
		// Without the commit's stamp: the guest would be made anew for each.
		cmd := command(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags="+b.tags, "-buildmode="+b.mode, "-o", b.out, b.pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+b.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w: %s", b.pkg, err, out)
		}
	}
	// dtest takes the adapter's name from its peer, so both have the same.
	conf := fmt.Sprintf("siw u2.0 nonthreadsafe default %s kdapl.1.0 \"iwarp addr=%s\" \"\"\n", capiFile(work), hostIP) +
		fmt.Sprintf("siw-rev1 u2.0 nonthreadsafe default %s kdapl.1.0 \"iwarp addr=%s rev=1\" \"\"\n", capiFile(work), hostIP)
	if err := os.WriteFile(confFile(work), []byte(conf), 0o644); err != nil {
		return err
	}
	agent, err := os.ReadFile(filepath.Join(work, "agent"))
	if err != nil {
		return err
	}
	sum := sha256.New()
	sum.Write(agent)
	script := filepath.Join(work, "vm")
	if err := os.MkdirAll(script, 0o755); err != nil {
		return err
	}
	entries, err := vmFiles.ReadDir("vm")
	if err != nil {
		return err
	}
	for _, e := range entries {
		b, err := vmFiles.ReadFile("vm/" + e.Name())
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n%s", e.Name(), len(b), b)
		if err := os.WriteFile(filepath.Join(script, e.Name()), b, 0o755); err != nil {
			return err
		}
	}
	stamp := filepath.Join(work, "stamp")
	want := fmt.Sprintf("%x", sum.Sum(nil))
	if have, err := os.ReadFile(stamp); err == nil && strings.TrimSpace(string(have)) == want {
		return nil
	}
	fmt.Println("building the guest: Debian's kernel, siw and programs")
	cmd := command(ctx, filepath.Join(script, "build.sh"), work, filepath.Join(work, "agent"), initrdFile(work))
	if out, err := cmd.CombinedOutput(); err != nil {
		return absent{fmt.Errorf("the guest is not built: %w: %s", err, out)}
	}
	return os.WriteFile(stamp, []byte(want), 0o644)
}

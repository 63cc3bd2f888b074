//go:build linux

// Command siw talks to the Linux kernel's software iWARP driver: it boots virtual machines with Debian's kernel, its
// siw module and Debian's RDMA programs, runs those against kdapl in both roles, judges what they print, checks
// with tshark what was on the wire, and prints a table.
//
//	go run ./interop/siw [-n REPETITIONS] [-only REGEXP] [-short] [-install] [-skip] [-keep DIR]
//
// It needs root, /dev/net/tun, qemu and tshark; the machines live in a network namespace of their own, which
// ends with the program. See interop/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

type options struct {
	n                    int
	only                 string
	short, install, skip bool
	work, keep           string
	verbose              bool
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 1, "repetitions of each row")
	flag.StringVar(&o.only, "only", "", "run the rows whose name matches this expression")
	flag.BoolVar(&o.short, "short", false, "run a few rows, with one virtual machine")
	flag.BoolVar(&o.install, "install", false, "install missing Debian packages with apt-get")
	flag.BoolVar(&o.skip, "skip", false, "say why and succeed, where the machine lacks what is needed")
	flag.StringVar(&o.work, "work", "", "where the guest is built and kept (default: the user's cache)")
	flag.StringVar(&o.keep, "keep", "", "keep captures and outputs in this directory")
	flag.BoolVar(&o.verbose, "v", false, "print the output of what fails")
	flag.Parse()
	if err := start(o); err != nil {
		fmt.Fprintln(os.Stderr, "siw:", err)
		os.Exit(1)
	}
}

// inside is set in the environment of the part that runs in the namespace.
const inside = "KDAPL_SIW_INSIDE"

// start checks the machine, builds, and runs the rows in a new network namespace.
func start(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Getenv(inside) != "" {
		return runRows(ctx, o)
	}
	if why := lacking(); why != "" {
		if o.skip {
			fmt.Println("skipped: " + why)
			return nil
		}
		return fmt.Errorf("%s", why)
	}
	if missing := missingPackages(); len(missing) > 0 {
		switch {
		case o.install:
			if err := apt(ctx, missing); err != nil {
				return err
			}
		case o.skip:
			fmt.Println("skipped: missing are the Debian packages " + strings.Join(missing, " ") + "; -install installs them")
			return nil
		default:
			return fmt.Errorf("missing are the Debian packages %s; -install installs them", strings.Join(missing, " "))
		}
	}
	if o.work == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			cache = os.TempDir()
		}
		o.work = filepath.Join(cache, "kdapl-siw")
	}
	if err := build(ctx, o.work); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, append(os.Args[1:], "-work", o.work)...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the run: %w", err)
	}
	return nil
}

// lacking is what no package can supply, "" if nothing.
func lacking() string {
	if os.Geteuid() != 0 {
		return "root is needed, for a network namespace"
	}
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return "no /dev/net/tun: " + err.Error()
	}
	f.Close()
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "no apt-get: the guest is made of Debian's packages"
	}
	return ""
}

// packages are the Debian packages that are needed, by what tells that they are there.
var packages = []struct{ probe, name string }{
	{"qemu-system-x86_64", "qemu-system-x86"}, {"tshark", "tshark"}, {"tcpdump", "tcpdump"}, {"ip", "iproute2"},
	{"rping", "rdmacm-utils"}, {"dtest", "dapl2-utils"}, {"strace", "strace"}, {"busybox", "busybox-static"},
	{"/etc/libibverbs.d/siw.driver", "ibverbs-providers"}, {"cpio", "cpio"}, {"gcc", "gcc"}, {"make", "make"}, {"patch", "patch"},
	{"bc", "bc"}, {"xz", "xz-utils"}, {"/usr/include/dat2/udat.h", "libdapl-dev"},
}

func missingPackages() (names []string) {
	for _, p := range packages {
		if _, err := os.Stat(p.probe); err == nil {
			continue
		}
		if _, err := exec.LookPath(p.probe); err != nil {
			names = append(names, p.name)
		}
	}
	return names
}

func apt(ctx context.Context, names []string) error {
	for _, args := range [][]string{{"update", "-q"}, append([]string{"install", "-qy", "--no-install-recommends"}, names...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

// runRows boots and runs what is asked for, in the namespace.
func runRows(ctx context.Context, o options) error {
	filter, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	if o.keep == "" {
		if o.keep, err = os.MkdirTemp("", "kdapl-siw-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.keep)
	} else if err := os.MkdirAll(o.keep, 0o755); err != nil {
		return err
	}
	var chosen []*row
	guests := 1
	for _, r := range rows() {
		if filter.MatchString(r.name) && (r.short || !o.short) {
			chosen = append(chosen, r)
			guests = max(guests, r.guests())
		}
	}
	l, err := newLab(ctx, o, guests)
	if err != nil {
		return err
	}
	defer l.close()
	t := newTable(l)
	failed := 0
	for _, r := range chosen {
		res := l.run(ctx, r)
		if t.add(r, res); !res.ok() {
			failed++
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	t.end()
	if failed > 0 {
		return fmt.Errorf("%d of %d rows failed", failed, len(chosen))
	}
	return nil
}

// seconds formats a duration for the table.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }

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
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type options struct {
	n                    int
	only                 string
	short, install, skip bool
	work, keep           string
	verbose              bool
	within               time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 1, "repetitions of each row")
	flag.StringVar(&o.only, "only", "", "run the rows whose name matches this expression")
	flag.BoolVar(&o.short, "short", false, "run a few rows, with one virtual machine")
	flag.BoolVar(&o.install, "install", false, "install missing Debian packages with apt-get")
	flag.BoolVar(&o.skip, "skip", false, "say why and succeed, where the machine lacks what is needed, or time")
	flag.StringVar(&o.work, "work", "", "where the guest is built and kept (default: the user's cache)")
	flag.StringVar(&o.keep, "keep", "", "keep captures and outputs in this directory")
	flag.DurationVar(&o.within, "within", 0, "give up after this time, with all that was installed and built; 0: never")
	flag.BoolVar(&o.verbose, "v", false, "print the output of what fails")
	flag.Parse()
	// A machine that outlives the runner must not hold what the runner's parent has open, such as a lock.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		fmt.Fprintln(os.Stderr, "siw: descriptors of the parent stay open:", err)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "siw:", err)
		os.Exit(1)
	}
}

// inside is set in the environment of the part that runs in the namespace.
const inside = "KDAPL_SIW_INSIDE"

// deadline is set beside it: when to give up.
const deadline = "KDAPL_SIW_DEADLINE"

// absent is an error of the machine, not of what is tested.
type absent struct{ error }

// run is start; with -skip the machine's errors are only said.
func run(o options) error {
	err := start(o)
	var a absent
	if o.skip && errors.As(err, &a) {
		fmt.Println("skipped:", err)
		return nil
	}
	return err
}

// start checks the machine, builds, and runs the rows in a new network namespace.
func start(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	end := time.Now().Add(o.within)
	if os.Getenv(inside) != "" {
		if n, err := strconv.ParseInt(os.Getenv(deadline), 10, 64); err == nil {
			end = time.UnixMilli(n)
		}
	}
	if o.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, end, absent{fmt.Errorf("not done within %v", o.within)})
		defer cancel()
	}
	err := prepared(ctx, o, end)
	var f failure
	if err != nil && !errors.As(err, &f) && ctx.Err() != nil && o.within > 0 {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// prepared is start, of which the context is the limit.
func prepared(ctx context.Context, o options, end time.Time) error {
	if os.Getenv(inside) != "" {
		return runRows(ctx, o)
	}
	if why := lacking(); why != "" {
		return absent{errors.New(why)}
	}
	if missing := missingPackages(); len(missing) > 0 {
		if !o.install {
			return absent{fmt.Errorf("missing are the Debian packages %s; -install installs them", strings.Join(missing, " "))}
		}
		if err := apt(ctx, missing); err != nil {
			return absent{err}
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
	cmd := exec.CommandContext(ctx, self, append(os.Args[1:], "-work", o.work)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	reserve := min(45*time.Second, o.within/6) // to dissect what was captured
	cmd.Env = append(os.Environ(), inside+"=1", fmt.Sprintf("%s=%d", deadline, end.Add(-reserve).UnixMilli()))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return absent{fmt.Errorf("no network namespace: %w", err)}
	}
	err = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		return failure(fmt.Sprintf("the run has failed with status %d", code))
	}
	return err
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
		cmd := command(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

// failure is the error of rows, whatever else there was.
type failure string

func (f failure) Error() string { return string(f) }

// slow is a time to boot that tells of a machine on which rows fail for want of time.
const slow = time.Minute

// sluggish is as much for a command in a machine, which is a connection and a shell.
const sluggish = 500 * time.Millisecond

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
		return absent{err}
	}
	defer l.close()
	if o.skip && l.boot > slow {
		return absent{fmt.Errorf("the virtual machine took %v to boot: too slow for the limits of the rows", l.boot.Round(time.Second))}
	}
	t := newTable(l)
	failed := 0
	for _, r := range chosen {
		if res := l.run(ctx, r); res.n > 0 {
			if t.add(r, res); !res.ok() {
				failed++
				if took := l.answers(ctx); o.skip && took > sluggish {
					return absent{fmt.Errorf("after %q the virtual machine takes %v for a command: too slow for verdicts", r.name, took.Round(time.Millisecond))}
				}
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	t.end()
	if failed > 0 {
		return failure(fmt.Sprintf("%d of %d rows failed", failed, len(chosen)))
	}
	return ctx.Err()
}

// seconds formats a duration for the table.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }

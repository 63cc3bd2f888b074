//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"kdapl/interop/siw/remote"
)

const (
	hostIP  = "10.77.0.1"
	bridge  = "br0"
	bootFor = 5 * time.Minute
)

// lab is the namespace with its virtual machines.
type lab struct {
	o      options
	guests []*guest
	kernel string
	boot   time.Duration
}

// guest is a virtual machine.
type guest struct {
	ip, tap string
	console string // a file
	cmd     *exec.Cmd
	have    string // the settings of its siw
}

// newLab sets the network up and boots.
func newLab(ctx context.Context, o options, guests int) (_ *lab, err error) {
	l := &lab{o: o}
	for _, args := range []string{
		"link set lo up", "link add " + bridge + " type bridge", "addr add " + hostIP + "/24 dev " + bridge, "link set " + bridge + " up",
	} {
		if err := ip(args); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	begin := time.Now()
	for n := range guests {
		g, err := boot(o, n)
		if err != nil {
			return nil, err
		}
		l.guests = append(l.guests, g)
	}
	for n, g := range l.guests {
		out, err := g.up(ctx)
		if err != nil {
			console, _ := os.ReadFile(consoleFile(o, n))
			return nil, fmt.Errorf("machine %d does not come up: %w\n%s", n+1, err, console)
		}
		l.kernel = strings.TrimSpace(out)
	}
	l.boot = time.Since(begin)
	return l, nil
}

func ip(args string) error {
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

func consoleFile(o options, n int) string {
	return filepath.Join(o.keep, fmt.Sprintf("console%d", n+1))
}

// boot makes machine n's interface and starts the machine.
func boot(o options, n int) (*guest, error) {
	g := &guest{ip: fmt.Sprintf("10.77.0.%d", n+2), tap: fmt.Sprintf("tap%d", n+1), console: consoleFile(o, n)}
	for _, args := range []string{"tuntap add " + g.tap + " mode tap", "link set " + g.tap + " master " + bridge + " up"} {
		if err := ip(args); err != nil {
			return nil, err
		}
	}
	return g, g.start(o, n)
}

// start starts the machine. Offloads are off, so that packets in captures have their size on the wire.
func (g *guest) start(o options, n int) error {
	os.Remove(g.console)
	g.have = defaults
	g.cmd = exec.Command("qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "file:"+g.console,
		"-kernel", kernelFile(o.work), "-initrd", initrdFile(o.work),
		"-netdev", "tap,id=n0,ifname="+g.tap+",script=no,downscript=no",
		"-device", fmt.Sprintf("virtio-net-pci,netdev=n0,mac=52:54:00:77:00:%02d,csum=off,gso=off,host_tso4=off,host_tso6=off,guest_csum=off,guest_tso4=off,guest_tso6=off,mrg_rxbuf=off,romfile=", n+1),
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off lab.addr="+g.ip+"/24")
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return g.cmd.Start()
}

// crashes is what a kernel writes to the console when it can no longer be trusted.
var crashes = regexp.MustCompile(`kernel BUG at|Oops:|general protection fault|soft lockup|Kernel panic`)

// revive boots the machines of a row again whose kernel has crashed, and reports whether one had.
func (l *lab) revive(ctx context.Context, r *row) (crashed bool, err error) {
	for n, g := range l.guests[:r.guests()] {
		console, err := os.ReadFile(g.console)
		if err != nil {
			return crashed, err
		}
		if !crashes.Match(console) {
			continue
		}
		crashed = true
		if err := os.WriteFile(fmt.Sprintf("%s-crashed-%d", g.console, time.Now().Unix()), console, 0o600); err != nil {
			return crashed, err
		}
		g.cmd.Process.Kill()
		g.cmd.Wait()
		if err := g.start(l.o, n); err != nil {
			return crashed, err
		}
		if _, err := g.up(ctx); err != nil {
			return crashed, fmt.Errorf("machine %d does not come up again: %w", n+1, err)
		}
	}
	return crashed, nil
}

// up waits until the machine answers, and returns its kernel's release.
func (g *guest) up(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, bootFor)
	defer cancel()
	for {
		try, stop := context.WithTimeout(ctx, 2*time.Second)
		out, err := g.sh(try, "rdma link show siw0/1 >/dev/null && uname -r")
		stop()
		if err == nil {
			return out, nil
		}
		if ctx.Err() != nil {
			return "", errors.Join(err, ctx.Err())
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// sh runs a command to its end; a status other than 0 is an error.
func (g *guest) sh(ctx context.Context, command string) (string, error) {
	var out bytes.Buffer
	status, err := remote.Run(ctx, g.ip, command, &out)
	if err == nil && status != 0 {
		err = fmt.Errorf("%s: status %d: %s", command, status, out.String())
	}
	return out.String(), err
}

// answers is how long the first machine takes for a command, or for not answering at all.
func (l *lab) answers(ctx context.Context) time.Duration {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	l.guests[0].sh(ctx, "true") // an error takes its time, too
	return time.Since(begin)
}

// defaults are the settings of a siw that was just loaded.
const defaults = "mpa_crc_required=0 peer_to_peer=0 mpa_version=2"

// unpatched is the setting of a machine with Debian's own siw, which has no parameters.
const unpatched = "unpatched"

// set brings the machine's siw into a state: settings, or unpatched.
func (g *guest) set(ctx context.Context, settings string) error {
	if settings == "" {
		settings = defaults
	}
	if settings == g.have {
		return nil
	}
	load := func(module string) error {
		_, err := g.sh(ctx, "rdma link del siw0; rmmod siw && "+module+" && rdma link add siw0 type siw netdev eth0")
		return err
	}
	var err error
	switch {
	case settings == unpatched:
		err = load("insmod /lib/siw-unpatched.ko")
	case g.have == unpatched:
		err = load("modprobe siw")
	}
	if err == nil && settings != unpatched {
		var all strings.Builder
		for _, s := range strings.Fields(defaults + " " + settings) {
			name, value, _ := strings.Cut(s, "=")
			fmt.Fprintf(&all, "echo %s >/sys/module/siw/parameters/%s; ", value, name)
		}
		_, err = g.sh(ctx, all.String()+"true")
	}
	if err == nil {
		g.have = settings
	}
	return err
}

// close stops the machines; the network ends with the program.
func (l *lab) close() {
	for _, g := range l.guests {
		g.cmd.Process.Kill()
		g.cmd.Wait()
	}
}

// process is a command that runs, on the host or in a guest, and what it has printed.
type process struct {
	out  output
	done chan struct{}
}

// output may be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// spawn starts a command at a place: a guest, or the host (nil). The end of the context ends it.
func (l *lab) spawn(ctx context.Context, at *guest, command string) *process {
	p := &process{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if at != nil {
			if _, err := remote.Run(ctx, at.ip, command, &p.out); err != nil {
				fmt.Fprintln(&p.out, "agent:", err)
			}
			return
		}
		cmd := exec.Command("/bin/sh", "-c", "exec "+command)
		cmd.Env = append(os.Environ(), "DAT_OVERRIDE="+confFile(l.o.work), "PATH="+l.o.work+":"+os.Getenv("PATH"))
		cmd.Stdout, cmd.Stderr = &p.out, &p.out
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(&p.out, err)
			return
		}
		stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
		cmd.Wait()
		stop()
	}()
	return p
}

// wait waits for the end, or the context's.
func (p *process) wait(ctx context.Context) string {
	select {
	case <-p.done:
	case <-ctx.Done():
	}
	return p.out.String()
}

// ready waits until a server has printed a text, or listens on a port.
func (l *lab) ready(ctx context.Context, p *process, at *guest, text string, port int) error {
	for {
		if text != "" && strings.Contains(p.out.String(), text) || port != 0 && listens(ctx, at, port) {
			return nil
		}
		select {
		case <-p.done:
			return errors.New("the server has ended")
		case <-ctx.Done():
			return errors.New("the server is not ready")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// listens looks into a kernel's table: a connection would disturb the program.
func listens(ctx context.Context, at *guest, port int) bool {
	command := fmt.Sprintf("ss -ltnH sport = :%d", port)
	var out string
	if at != nil {
		out, _ = at.sh(ctx, command)
	} else {
		b, _ := exec.CommandContext(ctx, "/bin/sh", "-c", command).Output()
		out = string(b)
	}
	return strings.Contains(out, "LISTEN")
}

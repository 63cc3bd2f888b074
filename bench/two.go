package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"kdapl/bench/internal/ends"
)

// settings are what the flags ask for.
type settings struct {
	time    time.Duration // of one measurement
	part    int           // cells that count their rounds do this part of them
	first   bool
	free    bool // the ends may run on any processor
	retries int  // how often a run is repeated that was disturbed
	profile string
	runs    int
}

const (
	// maxForeign is the share of the machine that others may use while something is measured.
	maxForeign = 0.05
	// patience bounds a run.
	patience = 60 * time.Second
)

// watched measures on a machine as quiet as can be had, and notes what others used meanwhile.
func (set *settings) watched(run runner) runner {
	return func() (best sample, err error) {
		for try := range set.retries + 1 {
			if set.retries > 0 {
				calm()
			}
			before, mine, begin := usage(), own(), time.Now()
			s, err := run()
			if err != nil {
				return s, err
			}
			others := usage() - before - (own() - mine)
			s.foreign = max(0, others/(time.Since(begin).Seconds()*float64(runtime.NumCPU())))
			if try == 0 || s.foreign < best.foreign {
				best = s
			}
			if best.foreign <= maxForeign {
				break
			}
		}
		return best, nil
	}
}

// cpuPer says what a cell counts processor time by.
type cpuPer int

const (
	perMB cpuPer = iota
	perMessage
)

// both runs a server and a client of ours in two processes and makes a sample of what they say.
func (set *settings) both(spec ends.Spec, per cpuPer, value func(client, server *ends.Result) float64) runner {
	return set.watched(func() (sample, error) {
		spec := spec
		if spec.Time == 0 {
			spec.Time = set.time
		}
		client, server, err := set.runEnds(spec)
		if err != nil {
			return sample{}, err
		}
		s := sample{value: value(client, server)}
		used := (client.CPU + server.CPU) * 1e6
		if per == perMB {
			used /= float64(spec.Size) / 1e6
		}
		if client.Messages > 0 {
			s.cpu = used / float64(client.Messages)
		}
		if client.Distribution != nil {
			s.extra = map[string]any{"distribution_us": client.Distribution}
		}
		if client.Heap != 0 {
			s.extra = map[string]any{"client_kib": client.KiB, "server_kib": server.KiB,
				"client_heap_kib": client.Heap, "server_heap_kib": server.Heap, "connections_per_s": client.Rate}
		}
		return s, nil
	})
}

// start starts a process on a processor, or anywhere.
func (set *settings) start(cpu int, cmd *exec.Cmd) error {
	if set.free {
		return startFirst(set.first, cmd)
	}
	return startOn(cpu, set.first, cmd)
}

// environment is that of the programs in C.
func (set *settings) environment() []string {
	if set.free {
		return os.Environ()
	}
	return append(os.Environ(), "PIN=1")
}

func (set *settings) runEnds(spec ends.Spec) (*ends.Result, *ends.Result, error) {
	arg, err := json.Marshal(spec)
	if err != nil {
		return nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	set.runs++
	command := func(role string, more ...string) *exec.Cmd {
		args := []string{"end"}
		if set.profile != "" {
			args = append(args, "-profile", filepath.Join(set.profile, fmt.Sprintf("%d-%s.prof", set.runs, role)))
		}
		cmd := exec.Command(self, append(append(args, role, string(arg)), more...)...)
		cmd.Stderr = os.Stderr
		return cmd
	}
	server := command("server")
	pipe, err := server.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := set.start(1, server); err != nil {
		return nil, nil, err
	}
	limit := patience
	if spec.Mode == "conn" || spec.Mode == "grow" {
		limit += time.Duration(max(spec.Size, spec.Conns)) * 20 * time.Millisecond
	}
	stop := time.AfterFunc(limit, func() { server.Process.Kill() })
	defer stop.Stop()
	lines := bufio.NewReader(pipe)
	peer, err := lines.ReadBytes('\n')
	if err != nil {
		server.Process.Kill()
		return nil, nil, errors.Join(fmt.Errorf("the server said nothing: %w", err), server.Wait())
	}
	client := command("client", string(bytes.TrimSpace(peer)))
	var said bytes.Buffer
	client.Stdout = &said
	err = set.start(0, client)
	if err == nil {
		stop := time.AfterFunc(limit, func() { client.Process.Kill() })
		defer stop.Stop()
		err = client.Wait()
	}
	if err != nil {
		server.Process.Kill()
		server.Wait()
		return nil, nil, fmt.Errorf("the client: %w", err)
	}
	var c, s ends.Result
	rest, readErr := lines.ReadBytes('\n')
	if err := errors.Join(readErr, server.Wait()); err != nil {
		return nil, nil, fmt.Errorf("the server: %w", err)
	}
	if err := errors.Join(json.Unmarshal(said.Bytes(), &c), json.Unmarshal(rest, &s)); err != nil {
		return nil, nil, err
	}
	return &c, &s, nil
}

// yardstick is what fitcp prints.
type yardstick struct {
	US     float64 `json:"us"`
	Rate   float64 `json:"rate"`
	MBPS   float64 `json:"mbps"`
	PerMB  float64 `json:"cpu_us_per_mb"`
	PerOne float64 `json:"cpu_us"`
	Client float64 `json:"kib_client"`
	Server float64 `json:"kib_server"`
}

// libfabric runs the tcp provider between two processes.
func (p *peers) libfabric(set *settings, per cpuPer, value func(*yardstick) float64, mode string, size, depth int) runner {
	return set.watched(func() (sample, error) {
		if !p.fabricOK {
			return sample{}, errNoFabric
		}
		cmd := exec.Command(filepath.Join(p.dir, "fitcp"), mode, strconv.Itoa(size), strconv.Itoa(depth), fmt.Sprint(set.time.Seconds()))
		cmd.Env = set.environment()
		var y yardstick
		if err := output(cmd, set.first, &y); err != nil {
			return sample{}, fmt.Errorf("libfabric: %w", err)
		}
		s := sample{value: value(&y), cpu: y.PerOne}
		if per == perMB {
			s.cpu = y.PerMB
		}
		return s, nil
	})
}

// output runs a command that prints one JSON value.
func output(cmd *exec.Cmd, first bool, v any) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, os.Stderr
	if err := startFirst(first, cmd); err != nil {
		return err
	}
	defer time.AfterFunc(patience, func() { cmd.Process.Kill() }).Stop()
	if err := cmd.Wait(); err != nil {
		return err
	}
	return json.Unmarshal(said.Bytes(), v)
}

// perftest runs ucx_perftest over tcp between two processes. rounds is how many messages; the value is of the
// last line: overall latency in microseconds, or messages per second.
func (p *peers) perftest(set *settings, per cpuPer, test string, size, rounds int, value func(us, rate, mbps float64) float64) runner {
	port := 20000
	return set.watched(func() (sample, error) {
		if !p.ucxOK {
			return sample{}, errNoUCX
		}
		port++
		env := append(os.Environ(), "UCX_TLS=tcp", "UCX_NET_DEVICES=lo", "UCX_LOG_LEVEL=error")
		at := []string{"-p", strconv.Itoa(port)}
		n := max(20, rounds/set.part)
		server := exec.Command("ucx_perftest", at...)
		client := exec.Command("ucx_perftest", append(append([]string{"127.0.0.1"}, at...),
			"-t", test, "-s", strconv.Itoa(size), "-n", strconv.Itoa(n), "-w", strconv.Itoa(max(10, n/10)), "-f", "-v")...)
		server.Env, client.Env = env, env
		if err := startOn(1, set.first, server); err != nil {
			return sample{}, err
		}
		defer time.AfterFunc(patience, func() { server.Process.Kill() }).Stop()
		if err := listening(port); err != nil {
			server.Process.Kill()
			server.Wait()
			return sample{}, err
		}
		var said bytes.Buffer
		client.Stdout = &said
		err := startOn(0, set.first, client)
		if err == nil {
			defer time.AfterFunc(patience, func() { client.Process.Kill() }).Stop()
			err = client.Wait()
		}
		if err != nil {
			server.Process.Kill()
			server.Wait()
			return sample{}, fmt.Errorf("ucx_perftest: %w", err)
		}
		if err := server.Wait(); err != nil {
			return sample{}, fmt.Errorf("ucx_perftest as server: %w", err)
		}
		for line := range strings.Lines(said.String()) {
			// iterations, percentile, average and overall latency, average and overall MiB/s, average and overall rate
			f := strings.Split(strings.TrimSpace(line), ",")
			if _, err := strconv.Atoi(f[0]); err != nil || len(f) < 8 {
				continue
			}
			us, _ := strconv.ParseFloat(f[3], 64)
			mib, _ := strconv.ParseFloat(f[5], 64)
			rate, _ := strconv.ParseFloat(f[7], 64)
			spent := client.ProcessState.UserTime() + client.ProcessState.SystemTime() + server.ProcessState.UserTime() + server.ProcessState.SystemTime()
			used := float64(spent.Microseconds()) / (float64(n) * 1.1) // with the warm-up
			if per == perMB {
				used /= float64(size) / 1e6
			}
			return sample{value: value(us, rate, mib*1.048576), cpu: used}, nil
		}
		return sample{}, fmt.Errorf("ucx_perftest: no result in %q", said.String())
	})
}

// listening waits until there is a listener at the port, without connecting to it.
func listening(port int) error {
	want := fmt.Sprintf(":%04X 00000000", port)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1]+" 00000000", want) {
				return nil
			}
		}
	}
	return fmt.Errorf("nothing listens at port %d", port)
}

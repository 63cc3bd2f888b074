//go:build linux

// Package remote runs shell commands in the guest for the host, over TCP.
package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Port is where the agent of a guest listens.
const Port = 7000

// Frames to the host: a kind, a length of 4 bytes, and so many bytes.
const (
	kindOutput = 1
	kindStatus = 2
)

type framer struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *framer) send(kind byte, b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(b)))
	_, err := f.w.Write(append(h, b...))
	return err
}

// Write sends output.
func (f *framer) Write(b []byte) (int, error) { return len(b), f.send(kindOutput, b) }

// Serve runs the command that a host asks for, and kills it when the host hangs up.
func Serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	line, err := r.ReadBytes('\n')
	var command string
	if err != nil || json.Unmarshal(line, &command) != nil {
		return
	}
	f := &framer{w: c}
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 200 * time.Millisecond // for children that keep the output open
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(f, err)
		f.send(kindStatus, []byte{127})
		return
	}
	done := make(chan struct{})
	go func() {
		r.ReadByte()
		select {
		case <-done:
		default:
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	}()
	cmd.Wait()
	close(done)
	f.send(kindStatus, []byte{byte(cmd.ProcessState.ExitCode())})
}

// Run runs a command at an agent and writes its output to out as it comes. The end of the context kills it.
func Run(ctx context.Context, host, command string, out io.Writer) (status int, err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, fmt.Sprint(Port)))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	line, err := json.Marshal(command)
	if err != nil {
		return 0, err
	}
	if _, err := c.Write(append(line, '\n')); err != nil {
		return 0, err
	}
	r := bufio.NewReader(c)
	for {
		var h [5]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return 0, err
		}
		b := make([]byte, binary.BigEndian.Uint32(h[1:]))
		if _, err := io.ReadFull(r, b); err != nil {
			return 0, err
		}
		if h[0] == kindStatus {
			return int(b[0]), nil
		}
		out.Write(b)
	}
}

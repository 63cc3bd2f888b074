package iwarp

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"kdapl/internal/netio"
	"kdapl/internal/pcap"
)

// capture writes the streams of a context to a file. A nil capture writes nothing.
type capture struct {
	file *os.File
	w    *pcap.Writer
}

// openCapture begins the capture, if one is wanted.
func (d *driver) openCapture() error {
	name := d.cfg.CaptureFile
	if name == "" {
		return nil
	}
	if n := d.dev.caps.Add(1); n > 1 {
		name = fmt.Sprintf("%s.%d", name, n)
	}
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("iwarp: capture: %w", err)
	}
	d.cap = &capture{f, pcap.NewWriter(f, "kdapl "+d.cfg.Name)}
	return nil
}

// flush writes out what has been captured so far.
func (k *capture) flush() {
	if k != nil {
		k.w.Flush()
	}
}

// wrap makes a connection tell the capture what it moves.
func (k *capture) wrap(nc netio.Conn, dialled bool) netio.Conn {
	if k == nil {
		return nc
	}
	opener := pcap.Received
	if dialled {
		opener = pcap.Sent
	}
	log := k.w.Conn(time.Now(), opener, nc.LocalAddr(), nc.RemoteAddr())
	log.Limit(capturedPayload)
	return &tapped{Conn: nc, k: k, log: log}
}

// capturedPayload is the payload of a captured packet. Wireshark takes no more than some 500 layers in one
// packet; an FPDU has three, and 24 bytes or more.
const capturedPayload = 2880

// tapped is a connection that is captured.
type tapped struct {
	netio.Conn
	k   *capture
	log *pcap.Conn

	// mu is held over a call and its record, so that what answers other bytes is recorded behind them.
	mu       sync.Mutex
	eof, fin bool
}

// cut is bufs up to n bytes.
func cut(bufs [][]byte, n int) [][]byte {
	var out [][]byte
	for _, b := range bufs {
		b = b[:min(len(b), n)]
		n -= len(b)
		out = append(out, b)
	}
	return out
}

// TryReadv implements netio.Conn.
func (t *tapped) TryReadv(bufs [][]byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.Conn.TryReadv(bufs)
	if n > 0 {
		t.log.Data(time.Now(), pcap.Received, cut(bufs, n)...)
	}
	if err == io.EOF {
		t.once(&t.eof, pcap.Received)
	}
	return n, err
}

// TryWritev implements netio.Conn.
func (t *tapped) TryWritev(bufs [][]byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.Conn.TryWritev(bufs)
	if n > 0 {
		t.log.Data(time.Now(), pcap.Sent, cut(bufs, n)...)
	}
	return n, err
}

// once notes the end of a direction. mu is held.
func (t *tapped) once(done *bool, dir pcap.Dir) {
	if !*done {
		*done = true
		t.log.FIN(time.Now(), dir)
		t.k.flush()
	}
}

// CloseWrite implements netio.Conn.
func (t *tapped) CloseWrite() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.once(&t.fin, pcap.Sent)
	return t.Conn.CloseWrite()
}

// Abort implements netio.Conn.
func (t *tapped) Abort() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log.RST(time.Now(), pcap.Sent)
	t.k.flush()
	return t.Conn.Abort()
}

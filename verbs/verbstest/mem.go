package verbstest

import (
	"bytes"
	"math/rand/v2"

	"kdapl/verbs"
)

// Rights that rules ask for.
const (
	localOnly   = verbs.Access(0)
	localWrite  = verbs.AccessLocalWrite
	remoteWrite = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	remoteRead  = verbs.AccessRemoteRead
	remoteBoth  = remoteWrite | remoteRead
)

// mem is a registered region.
type mem struct {
	e    *env
	s    *side
	buf  []byte
	mr   verbs.MR
	base uint64
}

// mem registers a fresh buffer in the side's PD, at an address of the suite's choice.
func (s *side) mem(size int, access verbs.Access) *mem {
	s.e.Helper()
	return s.memIn(s.pd, size, access)
}

// memIn is mem in another PD.
func (s *side) memIn(pd verbs.PD, size int, access verbs.Access) *mem {
	s.e.Helper()
	m := &mem{e: s.e, s: s, buf: make([]byte, max(size, 64))[:size], base: s.e.nextBase.Add(1 << 28)}
	if access&verbs.AccessZeroBased != 0 {
		m.base = 0
	}
	mr, err := pd.RegMR(m.buf, s.e.nextBase.Load(), access)
	s.e.must(err, "RegMR of %d bytes with %v on the %s side", size, access, s.name)
	m.mr = mr
	return m
}

// sink registers a buffer that RDMA reads and atomics may write to.
func (s *side) sink(size int) *mem {
	s.e.Helper()
	access := localWrite
	if s.attr.Can(verbs.CapReadSinkRemoteWrite) {
		access = remoteWrite
	}
	return s.mem(size, access)
}

// source registers a buffer filled with a pattern.
func (s *side) source(size int) *mem {
	s.e.Helper()
	m := s.mem(size, localOnly)
	m.fill(s.e.id())
	return m
}

// free deregisters the region.
func (m *mem) free() {
	m.e.Helper()
	m.e.must(m.mr.Dereg(), "Dereg")
}

// at is the address of an offset.
func (m *mem) at(off int) uint64 { return m.base + uint64(off) }

// sge is a segment of the region.
func (m *mem) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: m.at(off), Length: uint32(n), LKey: m.mr.LKey()}
}

// all is the whole region as a segment.
func (m *mem) all() verbs.SGE { return m.sge(0, len(m.buf)) }

// fill writes a pattern.
func (m *mem) fill(seed uint64) { copy(m.buf, pattern(len(m.buf), seed)) }

// clear zeroes the buffer.
func (m *mem) clear() { clear(m.buf) }

// same checks the contents from an offset.
func (m *mem) same(off int, want []byte, what string) {
	m.e.Helper()
	got := m.buf[off : off+len(want)]
	if !bytes.Equal(got, want) {
		i := 0
		for got[i] == want[i] {
			i++
		}
		m.e.Fatalf("%s: byte %d of %d is %#x, want %#x", what, i, len(want), got[i], want[i])
	}
}

// zero checks that a part is untouched.
func (m *mem) zero(off, n int, what string) {
	m.e.Helper()
	m.same(off, make([]byte, n), what)
}

// pattern is n reproducible bytes, none of them 0.
func pattern(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(1 + r.IntN(255))
	}
	return out
}

// setSGE puts segments into a request.
func setSGE(dst *[verbs.MaxSGE]verbs.SGE, sges []verbs.SGE) uint8 {
	return uint8(copy(dst[:], sges))
}

// send is a signalled send of the segments.
func (e *env) send(sges ...verbs.SGE) verbs.SendWR {
	wr := verbs.SendWR{ID: e.id(), Op: verbs.OpSend, Flags: verbs.SendSignaled}
	wr.NumSGE = setSGE(&wr.SGE, sges)
	return wr
}

// rdma is a signalled RDMA operation on the peer's region m from off.
func (e *env) rdma(op verbs.Opcode, m *mem, off int, sges ...verbs.SGE) verbs.SendWR {
	wr := e.send(sges...)
	wr.Op, wr.RemoteKey, wr.RemoteAddr = op, m.mr.RKey(), m.at(off)
	return wr
}

// write is a signalled RDMA write.
func (e *env) write(m *mem, off int, sges ...verbs.SGE) verbs.SendWR {
	return e.rdma(verbs.OpRDMAWrite, m, off, sges...)
}

// read is a signalled RDMA read.
func (e *env) read(m *mem, off int, sges ...verbs.SGE) verbs.SendWR {
	return e.rdma(verbs.OpRDMARead, m, off, sges...)
}

// recv is a receive into the segments.
func (e *env) recv(sges ...verbs.SGE) verbs.RecvWR {
	wr := verbs.RecvWR{ID: e.id()}
	wr.NumSGE = setSGE(&wr.SGE, sges)
	return wr
}

// unsignaled takes the signal from a request.
func unsignaled(wr verbs.SendWR) verbs.SendWR {
	wr.Flags &^= verbs.SendSignaled
	return wr
}

// flagged adds flags to a request.
func flagged(wr verbs.SendWR, f verbs.SendFlags) verbs.SendWR {
	wr.Flags |= f
	return wr
}

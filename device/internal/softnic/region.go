package softnic

import (
	"sync/atomic"

	"kdapl/verbs"
)

// entryKind is what an entry of the key table stands for.
type entryKind uint8

const (
	kindNone entryKind = iota
	kindMR             // registered by RegMR
	kindFast           // registered by OpRegMR
	kindMW1
	kindMW2
)

// entry is the memory that a key names: a region or a window.
//
// key is the current key, 0 while there is none. The fields below it describe the memory
// under that key; they are written while key is 0 and nobody can be reading them, and read only
// by those who hold a lane that is among the users and then found the right key. To end
// that, key is set to 0 and each user's lane is waited for. So an access costs no
// write to shared memory, and the end of a key waits for the copies in progress.
type entry struct {
	key    atomic.Uint32
	index  uint32
	access verbs.Access
	kind   entryKind
	base   uint64 // the address of the first byte
	size   uint64
	buf    []byte   // the memory, if it is one piece
	pieces [][]byte // otherwise its pieces,
	ends   []uint64 // where each ends, counted from the first,
	skip   uint64   // and where in them the memory starts
	pd     *PD
	qp     *QP    // a type 2 window's
	under  *entry // a window's region

	// users are lanes under which the memory was accessed; crowded says that there were
	// more, so that all lanes of the PD have to be asked.
	users   [4]atomic.Pointer[Lane]
	crowded atomic.Bool

	// The rest is under the context's memory lock.
	drawn   uint16 // generation of the newest key drawn
	windows int    // windows bound to the region
	busy    bool   // somebody changes what the key stands for
	mr      *MR    // the object, one of the two
	mw      *MW
}

// joined reports, often enough, that l is among the users.
func (e *entry) joined(l *Lane) bool {
	return e.users[0].Load() == l || e.users[1].Load() == l || e.crowded.Load()
}

// join makes l one of the users. The key must be compared again afterwards.
func (e *entry) join(l *Lane) {
	for i := range e.users {
		if e.users[i].Load() == l || e.users[i].CompareAndSwap(nil, l) || e.users[i].Load() == l {
			return
		}
	}
	e.crowded.Store(true)
}

// quiesce returns when every access under a key that is no longer current is over. The caller
// holds l (or no lane) and not the memory lock.
func (e *entry) quiesce(l *Lane) {
	if l != nil {
		l.paused.Store(true)
		defer l.paused.Store(false)
	}
	if e.crowded.Load() {
		for _, other := range e.pd.ctx.lanes(e.pd) {
			l.waitFor(other)
		}
		return
	}
	for i := range e.users {
		if other := e.users[i].Load(); other != nil {
			l.waitFor(other)
		}
	}
}

// forget clears what an idle entry holds.
func (e *entry) forget() {
	e.buf, e.pieces, e.ends, e.qp, e.under = nil, nil, nil, nil, nil
	e.size, e.skip = 0, 0
	for i := range e.users {
		e.users[i].Store(nil)
	}
	e.crowded.Store(false)
}

// enter finds the entry of a key and makes it safe to use until l is released.
func (c *Context) enter(l *Lane, key uint32) *entry {
	e := c.keys.at(key)
	if e == nil || key == 0 || e.key.Load() != key {
		return nil
	}
	if !e.joined(l) {
		e.join(l)
		if e.key.Load() != key {
			return nil
		}
	}
	return e
}

// lastKey remembers the entry of the key that was used last, to save its look-up. It is
// under the lane that it is used with.
type lastKey struct {
	e    *entry
	key  uint32
	user uint8 // where the lane is among the users
}

// hit reports that key is the one remembered, and its entry safe to use until l is released.
func (k *lastKey) hit(l *Lane, key uint32) bool {
	return key == k.key && k.e != nil && k.e.key.Load() == key && k.e.users[k.user&3].Load() == l
}

// enter is Context.enter with a memory.
func (k *lastKey) enter(c *Context, l *Lane, key uint32) *entry {
	if k.hit(l, key) {
		return k.e
	}
	return k.look(c, l, key)
}

func (k *lastKey) look(c *Context, l *Lane, key uint32) *entry {
	e := c.enter(l, key)
	if e != nil {
		k.e, k.key = e, key
		for i := range e.users {
			if e.users[i].Load() == l {
				k.user = uint8(i)
			}
		}
	}
	return e
}

// locate checks that n bytes at addr lie within the memory and returns the offset.
func (e *entry) locate(addr, n uint64) (off uint64, ok bool) {
	off = addr - e.base
	return off, off <= e.size && n <= e.size-off
}

// check tells whether e, found by the segment's key, may be used as local memory, and where in
// it the segment starts.
func (pd *PD) check(e *entry, s *verbs.SGE, need verbs.Access) (off uint64, _ Verdict) {
	if e == nil || e.kind >= kindMW1 {
		return 0, BadKey
	}
	if e.pd != pd {
		return 0, BadDomain
	}
	if e.access&need != need {
		return 0, BadRight
	}
	off, ok := e.locate(s.Addr, uint64(s.Length))
	if !ok {
		return 0, BadBounds
	}
	return off, Accepted
}

// cut appends the pieces that hold the n bytes from off on.
func (e *entry) cut(to [][]byte, off, n uint64) [][]byte {
	off += e.skip
	lo, hi := 0, len(e.ends)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); e.ends[mid] <= off {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for ; n > 0; lo++ {
		p := e.pieces[lo]
		p = p[uint64(len(p))-(e.ends[lo]-off):]
		if uint64(len(p)) > n {
			p = p[:n:n]
		}
		to = append(to, p)
		off += uint64(len(p))
		n -= uint64(len(p))
	}
	return to
}

// gather resolves a segment list to the memory of a message, which must not be longer than
// the device allows.
func (pd *PD) gather(l *Lane, k *lastKey, sg []verbs.SGE, need verbs.Access, side int) (Vec, Verdict) {
	if len(sg) == 1 {
		s := &sg[0]
		if s.Length == 0 {
			return Vec{}, Accepted
		}
		if e := k.enter(pd.ctx, l, s.LKey); e != nil && e.pieces == nil {
			off, v := pd.check(e, s, need)
			if v != Accepted {
				return Vec{}, v
			}
			if s.Length > pd.ctx.attr.MaxMessage {
				return Vec{}, TooLong
			}
			return Vec{one: e.buf[off:][:s.Length:s.Length]}, Accepted
		}
	}
	total := uint64(0)
	for i := range sg {
		total += uint64(sg[i].Length)
	}
	v, t := pd.gatherFirst(l, sg, need, total, side)
	if t == Accepted && total > uint64(pd.ctx.attr.MaxMessage) {
		v.release()
		return Vec{}, TooLong
	}
	return v, t
}

// place resolves the memory of a receive for a message of n bytes.
func (pd *PD) place(l *Lane, k *lastKey, sg []verbs.SGE, n uint32) (Vec, Verdict) {
	if len(sg) == 1 && n != 0 && n <= sg[0].Length {
		if e := k.enter(pd.ctx, l, sg[0].LKey); e != nil && e.pieces == nil {
			off, v := pd.check(e, &sg[0], verbs.AccessLocalWrite)
			if v != Accepted {
				return Vec{}, v
			}
			return Vec{one: e.buf[off:][:n:n]}, Accepted
		}
	}
	return pd.gatherFirst(l, sg, verbs.AccessLocalWrite, uint64(n), peers)
}

// gatherFirst resolves the first n bytes of a segment list.
func (pd *PD) gatherFirst(l *Lane, sg []verbs.SGE, need verbs.Access, n uint64, side int) (Vec, Verdict) {
	list := l.list(side)
	more := (*list)[:0]
	for i := range sg {
		s := sg[i]
		if uint64(s.Length) > n {
			s.Length = uint32(n)
		}
		if s.Length == 0 {
			continue
		}
		n -= uint64(s.Length)
		e := pd.ctx.enter(l, s.LKey)
		off, v := pd.check(e, &s, need)
		if v != Accepted {
			clear(more)
			return Vec{}, v
		}
		if e.pieces == nil {
			more = append(more, e.buf[off:][:s.Length:s.Length])
		} else {
			more = e.cut(more, off, uint64(s.Length))
		}
	}
	*list = more
	switch {
	case n > 0:
		clear(more)
		return Vec{}, TooLong
	case len(more) == 0:
		return Vec{}, Accepted
	}
	return Vec{more: list}, Accepted
}

// permit tells whether e, found by the peer's key, is for the peer of q to use in a way, and where in it addr is.
func (q *QP) permit(e *entry, addr uint64, n uint32, need verbs.Access) (off uint64, _ Verdict) {
	if e.pd != q.pd || e.kind == kindMW2 && e.qp != q {
		return 0, BadDomain
	}
	if e.access&need != need {
		return 0, BadRight
	}
	off, ok := e.locate(addr, uint64(n))
	if !ok {
		return 0, BadBounds
	}
	return off, Accepted
}

// remote resolves memory that the peer of q names by key and address.
func (q *QP) remote(l *Lane, key uint32, addr uint64, n uint32, need verbs.Access) (Vec, Verdict) {
	return q.reach(l, &q.theirs, key, addr, n, need)
}

// reach is remote with the memory of the last key of the lane's side.
func (q *QP) reach(l *Lane, k *lastKey, key uint32, addr uint64, n uint32, need verbs.Access) (v Vec, _ Verdict) {
	e := k.enter(q.ctx, l, key)
	if e == nil {
		return Vec{}, BadKey
	}
	off, t := q.permit(e, addr, n, need)
	if t != Accepted {
		return Vec{}, t
	}
	if e.under != nil && !e.under.joined(l) {
		// The region's end must wait for this access too; it may have come before
		// the region knew of it, but then the window's came before that.
		e.under.join(l)
		if e.key.Load() != key {
			return Vec{}, BadKey
		}
	}
	if e.pieces == nil {
		return Vec{one: e.buf[off:][:n:n]}, Accepted
	}
	list := l.list(peers)
	*list = e.cut((*list)[:0], off, uint64(n))
	return Vec{more: list}, Accepted
}

package dat

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Object is what every DAT object has in common: *IA, *PZ, *LMR, *EP, *EVD, *PSP, *CR …
type Object interface {
	// HandleType is the kind of object (dat_get_handle_type). It works for freed objects too.
	HandleType() HandleType
	// Context returns what SetContext stored last, nil if nothing (dat_get_consumer_context).
	Context() any
	// SetContext stores a value of the consumer's with the object; nil clears it
	// (dat_set_consumer_context). The library neither reads nor frees it.
	SetContext(any)
	// String names the object for people, as in "EP 3 of loop0".
	String() string
}

// ref names an object of an IA in queues that hold no pointers: its index in the IA's
// table and the generation of that index.
type ref uint64

func makeRef(index, gen uint32) ref { return ref(gen)<<32 | ref(index) }

func (r ref) index() uint32 { return uint32(r) }

// base is the common part of every object.
type base struct {
	self Object
	ia   *IA
	ref  ref
	kind HandleType
	// freed is set once, by the call that frees the object.
	freed   atomic.Bool
	context atomic.Pointer[any]
}

func (b *base) loadContext() any {
	if p := b.context.Load(); p != nil {
		return *p
	}
	return nil
}

func (b *base) storeContext(v any) {
	if v == nil {
		b.context.Store(nil)
		return
	}
	b.context.Store(&v)
}

// title names the object for people.
func (b *base) title() string {
	switch {
	case b.ia == nil:
		return "no " + b.kind.String()
	case b.kind == HandleIA:
		return "IA " + b.ia.name
	}
	return fmt.Sprintf("%v %d of %s", b.kind, b.ref.index(), b.ia.name)
}

// fail makes the error of a call on the object.
func (b *base) fail(op string, t Type, sub Subtype, cause error, hint string) *Error {
	return &Error{Type: t, Sub: sub, Op: op, Object: b.title(), Err: cause, Hint: hint}
}

// errFreed is the error of a call on an object that is gone.
func (b *base) errFreed(op string) error {
	return b.fail(op, InvalidHandle, handleSubtypes[b.kind], nil, "it was freed, or its IA closed")
}

// handleSubtypes are the subtypes of INVALID_HANDLE by kind of object. EVDs have one for each
// role; the plain one is that of the first argument.
var handleSubtypes = map[HandleType]Subtype{
	HandleCR: InvalidHandleCR, HandleEP: InvalidHandleEP, HandleEVD: InvalidHandle1, HandleIA: InvalidHandleIA,
	HandleLMR: InvalidHandleLMR, HandlePSP: InvalidHandlePSP, HandlePZ: InvalidHandlePZ, HandleRMR: InvalidHandleRMR,
	HandleRSP: InvalidHandleRSP, HandleSRQ: InvalidHandleSRQ, HandleCSP: InvalidHandleCSP, HandleCNO: InvalidHandleCNO,
}

const chunkBits = 8

type tableChunk [1 << chunkBits]struct {
	obj atomic.Pointer[base]
	gen uint32 // of the object that is or was last there; under table.mu
}

// table holds the objects of an IA. Looking up is lock-free.
type table struct {
	chunks atomic.Pointer[[]*tableChunk]
	mu     sync.Mutex
	next   uint32
	free   []uint32
	// retired are freed objects that queued events still name.
	retired []retired
	count   [256]int // live objects by kind
}

// retired is an entry that may be used again once the events are taken that name it.
type retired struct {
	index uint32
	until [3]evdPosition
}

// evdPosition is a place in an EVD's stream of events.
type evdPosition struct {
	evd *EVD
	pos uint64
}

// passed reports whether every event before the position was taken or dropped.
func (p evdPosition) passed() bool {
	return p.evd == nil || p.evd.freed.Load() || p.evd.ring.Load().Head() >= p.pos
}

// lookup returns the object that the reference names, nil if it is gone.
func (t *table) lookup(r ref) *base {
	chunks := t.chunks.Load()
	if chunks == nil || int(r.index()>>chunkBits) >= len(*chunks) {
		return nil
	}
	b := (*chunks)[r.index()>>chunkBits][r.index()&(1<<chunkBits-1)].obj.Load()
	if b == nil || b.ref != r {
		return nil
	}
	return b
}

// add puts an object into the table and gives it its reference. max limits the live objects
// of the kind; false means that there are that many.
func (t *table) add(b *base, max int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count[b.kind] >= max {
		return false
	}
	t.reclaim(4)
	var index uint32
	if n := len(t.free); n > 0 {
		index, t.free = t.free[n-1], t.free[:n-1]
	} else {
		index = t.next
		t.next++
	}
	var chunks []*tableChunk
	if p := t.chunks.Load(); p != nil {
		chunks = *p
	}
	if int(index>>chunkBits) == len(chunks) {
		grown := append(chunks[:len(chunks):len(chunks)], new(tableChunk))
		t.chunks.Store(&grown)
		chunks = grown
	}
	e := &chunks[index>>chunkBits][index&(1<<chunkBits-1)]
	e.gen++
	b.ref = makeRef(index, e.gen)
	e.obj.Store(b)
	t.count[b.kind]++
	return true
}

// remove takes an object out. Queued events up to the positions still find it.
func (t *table) remove(b *base, until ...evdPosition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count[b.kind]--
	r := retired{index: b.ref.index()}
	copy(r.until[:], until)
	t.retired = append(t.retired, r)
	t.reclaim(2)
}

// reclaim looks at some of the oldest retired entries.
func (t *table) reclaim(some int) {
	for ; some > 0 && len(t.retired) > 0; some-- {
		r := t.retired[0]
		t.retired = t.retired[1:]
		if !r.until[0].passed() || !r.until[1].passed() || !r.until[2].passed() {
			t.retired = append(t.retired, r)
			continue
		}
		t.entry(r.index).Store(nil)
		t.free = append(t.free, r.index)
	}
}

func (t *table) entry(index uint32) *atomic.Pointer[base] {
	return &(*t.chunks.Load())[index>>chunkBits][index&(1<<chunkBits-1)].obj
}

// live returns the objects that are not freed, of one kind.
func (t *table) live(kind HandleType) []Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Object
	for i := range t.next {
		if b := t.entry(i).Load(); b != nil && b.kind == kind && !b.freed.Load() {
			out = append(out, b.self)
		}
	}
	return out
}

// size counts the live objects of a kind.
func (t *table) size(kind HandleType) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count[kind]
}

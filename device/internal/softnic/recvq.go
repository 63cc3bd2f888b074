package softnic

import "kdapl/verbs"

// recvSlot is a posted receive without its segments.
type recvSlot struct {
	id uint64
	n  uint8
}

// recvQueue holds posted receives. Its memory is made at the first post, as large as
// the owner's own limits ask for.
type recvQueue struct {
	slots      []recvSlot
	sge        []verbs.SGE
	head, tail uint32
	depth      uint32
	maxSGE     uint8
}

func (r *recvQueue) count() uint32 { return r.tail - r.head }

// add appends a receive; the caller has checked that there is room.
func (r *recvQueue) add(wr *verbs.RecvWR) {
	if r.slots == nil {
		n := ceilPow2(int(r.depth))
		r.slots = make([]recvSlot, n)
		r.sge = make([]verbs.SGE, n*int(r.maxSGE))
	}
	i := r.tail & uint32(len(r.slots)-1)
	r.slots[i] = recvSlot{id: wr.ID, n: wr.NumSGE}
	dst := r.sge[i*uint32(r.maxSGE):]
	for k := range wr.SGE[:wr.NumSGE] {
		dst[k] = wr.SGE[k]
	}
	r.tail++
}

// first is the oldest receive; there must be one. The segments stay valid until the
// queue has come around.
func (r *recvQueue) first() (id uint64, sg []verbs.SGE) {
	i := r.head & uint32(len(r.slots)-1)
	return r.slots[i].id, r.sge[i*uint32(r.maxSGE):][:r.slots[i].n]
}

// resize changes the depth, which must not be less than what is posted.
func (r *recvQueue) resize(depth uint32) {
	old := *r
	r.depth = depth
	if old.slots == nil || ceilPow2(int(depth)) == len(old.slots) {
		return
	}
	n := ceilPow2(int(depth))
	r.slots = make([]recvSlot, n)
	r.sge = make([]verbs.SGE, n*int(r.maxSGE))
	r.head, r.tail = 0, 0
	for ; old.head != old.tail; old.head++ {
		id, sg := old.first()
		r.slots[r.tail] = recvSlot{id: id, n: uint8(len(sg))}
		copy(r.sge[r.tail*uint32(r.maxSGE):], sg)
		r.tail++
	}
}

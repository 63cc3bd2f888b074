package softnic

import "kdapl/verbs"

// recvSlot is a posted receive without its segments.
type recvSlot struct {
	id uint64
	n  uint8
}

// recvQueue holds posted receives. Its memory doubles up to what the owner's limits ask for, as more are outstanding
// than ever before: most of many connections never have as many as they may.
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
	if int(r.count()) == len(r.slots) {
		r.fit(min(max(fewRecvs, 2*len(r.slots)), ceilPow2(int(r.depth))))
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
	r.depth = depth
	if n := ceilPow2(int(depth)); n < len(r.slots) {
		r.fit(n)
	}
}

// fewRecvs is how many receives a queue first has memory for.
const fewRecvs = 4

// fit moves what is posted to memory for n receives, which is a power of two.
func (r *recvQueue) fit(n int) {
	old := *r
	r.slots = make([]recvSlot, n)
	r.sge = make([]verbs.SGE, n*int(r.maxSGE))
	for r.tail = r.head; r.tail != old.tail; r.tail++ {
		id, sg := old.first()
		old.head++
		i := r.tail & uint32(n-1)
		r.slots[i] = recvSlot{id: id, n: uint8(len(sg))}
		copy(r.sge[i*uint32(r.maxSGE):], sg)
	}
}

package dat

import "kdapl/verbs"

// cqFailed takes the consequences of a device's CQ that overflowed or failed: what the device had to say about
// the queues of EPs that complete there is lost, so their connections break and dat itself completes what is
// left. It takes the locks of posts, and so is called from nobody's stack.
func (ia *IA) cqFailed(cq verbs.CQ, cause error) {
	for _, o := range ia.objects.live(HandleEP) {
		ep := o.(*EP)
		ep.mu.Lock()
		lost := false
		for _, q := range []*dtoQueue{&ep.request, &ep.recv} {
			lost = lost || q.evd != nil && q.evd.cq == cq
		}
		ep.mu.Unlock()
		if lost {
			ep.cqFailed(cq, cause)
		}
	}
}

// cqFailed ends an EP's connection and flushes those of its queues that complete to the CQ, which has failed. The consumer may
// give the EP other EVDs meanwhile.
func (ep *EP) cqFailed(cq verbs.CQ, cause error) {
	ep.failed(cause)
	ep.mu.Lock()
	qp := ep.qp
	ep.mu.Unlock()
	if qp == nil {
		return // freed, which flushes too
	}
	qp.Modify(verbs.QPError) // nothing touches memory from here on
	for _, q := range []*dtoQueue{&ep.request, &ep.recv} {
		q.lock()
		ep.mu.Lock()
		e, epoch := q.evd, ep.epoch.Load()
		lost := e != nil && e.cq == cq
		q.dead = q.dead || lost
		ep.mu.Unlock()
		q.unlock()
		if lost {
			e.pump() // what came before the failure is there
			q.flushLeft(ep)
			ep.drained(q == &ep.recv, epoch)
		}
	}
}

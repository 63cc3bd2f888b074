package dat

import "kdapl/verbs"

// cqFailed takes the consequences of a device's CQ that overflowed or failed: what the device had to say about
// the queues of EPs that complete there is lost, so their connections break and dat itself completes what is
// left. It takes the locks of posts, and so is called from nobody's stack.
func (ia *IA) cqFailed(cq verbs.CQ, cause error) {
	for _, o := range ia.objects.live(HandleEP) {
		ep := o.(*EP)
		ep.mu.Lock()
		var lost []*dtoQueue
		for _, q := range []*dtoQueue{&ep.request, &ep.recv} {
			if q.evd != nil && q.evd.cq == cq {
				lost = append(lost, q)
			}
		}
		ep.mu.Unlock()
		if len(lost) > 0 {
			ep.cqFailed(lost, cause)
		}
	}
}

// cqFailed ends an EP's connection and flushes the queues whose CQ has failed.
func (ep *EP) cqFailed(lost []*dtoQueue, cause error) {
	ep.failed(cause)
	ep.mu.Lock()
	qp := ep.qp
	ep.mu.Unlock()
	if qp == nil {
		return // freed, which flushes too
	}
	qp.Modify(verbs.QPError) // nothing touches memory from here on
	for _, q := range lost {
		q.lock()
		ep.mu.Lock()
		q.dead = true
		ep.mu.Unlock()
		q.unlock()
		q.evd.pump() // what came before the failure is there
		q.flushLeft(ep)
		ep.drained(q == &ep.recv, ep.epoch.Load())
	}
}

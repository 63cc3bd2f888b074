package dat_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"kdapl/dat"
	"kdapl/device/loop"
)

// Load forms: many EPs on one SRQ, windows that come and go under traffic.

// One SRQ serves a thousand EPs: each message arrives once, in its EP's order, and nothing is left over.
func TestSRQWithAThousandEPs(t *testing.T) {
	const eps, senders, depth = 1000, 4, 512
	messages := 20
	if testing.Short() {
		messages = 4
	}
	p := newPair(t, pairConfig{split: true, size: 64 * depth, evd: dat.EVDConfig{MinLen: 64}})
	srq := must[*dat.SRQ](t)(p.b.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: depth, MaxRecvIOV: 1}))
	var from []*dat.EP
	index := map[*dat.EP]int{}
	small := func(a *dat.EPAttr) { a.MaxRequestDTOs, a.MaxRecvDTOs = 4, 1 }
	request := make([]*dat.EVD, senders)
	for i := range request {
		request[i] = newEVD(t, p.a.ia, dat.EVDConfig{Streams: dat.StreamDTO})
	}
	for i := range eps {
		q := *p
		q.a.request = request[i%senders]
		q.a.ep, q.b.ep = q.a.newEP(t, small), q.b.srqEP(t, srq, small)
		q.connect(t)
		from, index[q.b.ep] = append(from, q.a.ep), i
	}
	post := func(c uint64) { ok(t, srq.PostRecv(c, p.b.lmr.Triplet(int(c)*64, 64))) }
	for c := range uint64(depth) {
		post(c)
	}
	var wg sync.WaitGroup
	for s := range senders {
		buf := make([]byte, 8*eps)
		lmr := must[*dat.LMR](t)(p.a.pz.Register(buf, dat.PrivLocalRead))
		wg.Go(func() {
			for m := range messages {
				n := 0
				for i := s; i < eps; i += senders {
					binary.NativeEndian.PutUint32(buf[8*i:], uint32(i))
					binary.NativeEndian.PutUint32(buf[8*i+4:], uint32(m))
					if err := from[i].PostSend(uint64(i), 0, lmr.Triplet(8*i, 8)); err != nil {
						t.Error(err)
						return
					}
					n++
				}
				for range n { // the buffers are free again
					ev, _, err := request[s].Wait(context.Background(), 1, patience)
					if d := ev.DTO(); err != nil || d.Status != dat.StatusSuccess {
						t.Error(ev, err)
						return
					}
				}
			}
		})
	}
	next := make([]uint32, eps)
	for range eps * messages {
		ev, _, err := p.b.recv.Wait(t.Context(), 1, patience)
		d := ev.DTO()
		if err != nil || d.Status != dat.StatusSuccess || d.Length != 8 {
			t.Fatal(ev, err)
		}
		msg := p.b.mem[d.Cookie*64:]
		i, m := binary.NativeEndian.Uint32(msg), binary.NativeEndian.Uint32(msg[4:])
		if int(i) != index[d.EP] || m != next[i] {
			t.Fatalf("EP %d has message %d of EP %d, expected %d", index[d.EP], m, i, next[i])
		}
		next[i]++
		post(d.Cookie)
	}
	wg.Wait()
	if q := must[dat.SRQParam](t)(srq.Query()); q.Available != depth || q.Outstanding != depth {
		t.Fatalf("%+v", q)
	}
	empty(t, p.b.recv)
	// Half of them go by their own will, the others with the IA.
	for ep, i := range index {
		if i%2 == 0 {
			ok(t, ep.Free())
		}
	}
	refused(t, srq.Free(), dat.InvalidState, dat.InvalidStateSRQInUse)
	for ep, i := range index {
		if i%2 == 1 {
			ok(t, ep.Free())
		}
	}
	ok(t, srq.Free())
	ok(t, p.b.ep.Free())
	if q := must[dat.IAParam](t)(p.b.ia.Query()).Counters; q.EPs != 0 || q.SRQs != 0 {
		t.Fatalf("left over: %+v", q)
	}
	ok(t, p.b.lmr.Free())
	ok(t, p.b.pz.Free())
}

// In each round the owner opens a window and sends its context, the peer writes through it and ends it by its send, or
// leaves that to the owner.
func TestWindowsBoundAndInvalidatedUnderTraffic(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 60
	}
	for _, mode := range []loop.Config{{}, {Completion: 1}} {
		t.Run(fmt.Sprint(mode.Completion), func(t *testing.T) {
			var wg sync.WaitGroup
			for _, kind := range []string{"RMR of the PZ", "RMR for an EP", "RMR for an EP, ended by its owner", "fast registration"} {
				p := newPair(t, pairConfig{split: true, size: 8192, loop: mode}).connect(t)
				wg.Go(func() {
					if err := windowRounds(p, kind, rounds); err != nil {
						t.Errorf("%s: %v", kind, err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// windowRounds is the traffic of one pair: b owns the memory, a writes to it.
func windowRounds(p *pair, kind string, rounds int) error {
	const size = 1024
	var rmr *dat.RMR
	var fast *dat.LMR
	var err error
	switch kind {
	case "RMR of the PZ":
		rmr, err = p.b.pz.NewRMR()
	case "fast registration":
		fast, err = p.b.pz.AllocateLMR(1, dat.RMRScopePZ)
	default:
		rmr, err = p.b.pz.NewRMRForEP()
	}
	if err != nil {
		return err
	}
	invalidate := kind == "RMR for an EP" || fast != nil
	// Receives are posted before their messages are asked for: not every adapter waits for one.
	if err := p.a.ep.PostRecv(1, 0, p.a.lmr.Triplet(0, 8)); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- writeThroughWindows(p, rounds, invalidate) }()
	fail := func(err error) error { return errors.Join(err, p.b.ep.Disconnect(dat.CloseAbrupt), <-done) }
	wait := func(e *dat.EVD) (dat.Event, error) {
		ev, _, err := e.Wait(context.Background(), 1, patience)
		return ev, err
	}
	for i := range rounds {
		off := 256 + i%7*size
		window := p.b.mem[off : off+size]
		clear(window)
		if err := p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 16)); err != nil {
			return fail(err)
		}
		var key uint32
		if fast != nil {
			_, key, err = fast.FMR([][]byte{window}, dat.PrivLocalWrite|dat.PrivRemoteWrite, dat.VATypeZB, p.b.ep, 2, dat.CompletionSuppress)
		} else {
			key, err = rmr.Bind(p.b.lmr, p.b.lmr.Triplet(off, size), dat.PrivRemoteWrite, dat.VATypeZB, p.b.ep, 2, dat.CompletionSuppress)
		}
		if err != nil {
			return fail(err)
		}
		binary.NativeEndian.PutUint32(p.b.mem[128:], key)
		binary.NativeEndian.PutUint32(p.b.mem[132:], uint32(i))
		if err := p.b.ep.PostSend(3, 0, p.b.lmr.Triplet(128, 8)); err != nil {
			return fail(err)
		}
		if ev, err := wait(p.b.request); err != nil || ev.DTO().Status != dat.StatusSuccess {
			return fail(fmt.Errorf("round %d: %v, %w", i, ev, err))
		}
		ev, err := wait(p.b.recv)
		d := ev.DTO()
		if err != nil || d.Status != dat.StatusSuccess || (d.Operation == dat.OpReceiveWithInvalidate) != invalidate || invalidate && d.RMRContext != key {
			return fail(fmt.Errorf("round %d: %v, %+v, %w", i, ev, d, err))
		}
		if want := bytes.Repeat([]byte{byte(i) | 1}, size); !bytes.Equal(window, want) {
			return fail(fmt.Errorf("round %d: the window holds %v…", i, window[:8]))
		}
		if kind == "RMR for an EP, ended by its owner" {
			if _, err := rmr.Bind(nil, dat.LMRTriplet{}, 0, 0, p.b.ep, 4, 0); err != nil {
				return fail(err)
			}
			if ev, err := wait(p.b.request); err != nil || ev.RMRBind().Status != dat.StatusSuccess {
				return fail(fmt.Errorf("round %d: %v, %w", i, ev, err))
			}
		}
	}
	if err := <-done; err != nil {
		return err
	}
	// Nothing is bound any more, or goes with its window: the memory is the owner's.
	if rmr != nil {
		err = rmr.Free()
	} else {
		err = fast.Free()
	}
	return errors.Join(err, p.b.lmr.Free(), p.b.ep.Free(), p.b.pz.Free())
}

// writeThroughWindows fills each window that is told of, and answers.
func writeThroughWindows(p *pair, rounds int, invalidate bool) error {
	const size = 1024
	for i := range rounds {
		ev, _, err := p.a.recv.Wait(context.Background(), 1, patience)
		if err != nil || ev.DTO().Status != dat.StatusSuccess {
			return fmt.Errorf("peer, round %d: %v, %w", i, ev, err)
		}
		key, n := binary.NativeEndian.Uint32(p.a.mem), binary.NativeEndian.Uint32(p.a.mem[4:])
		buf := p.a.mem[1024 : 1024+size]
		for k := range buf {
			buf[k] = byte(n) | 1
		}
		remote := dat.RMRTriplet{SegmentLength: size, RMRContext: key}
		err = errors.Join(
			p.a.ep.PostRecv(1, 0, p.a.lmr.Triplet(0, 8)),
			p.a.ep.PostRDMAWrite(2, dat.CompletionSuppress, remote, p.a.lmr.Triplet(1024, size)),
			p.a.ep.PostSendWithInvalidate(3, 0, invalidate, key, p.a.lmr.Triplet(64, 8)))
		if err != nil {
			return err
		}
		if ev, _, err := p.a.request.Wait(context.Background(), 1, patience); err != nil || ev.DTO().Status != dat.StatusSuccess {
			return fmt.Errorf("peer, round %d: %v, %w", i, ev, err)
		}
	}
	return nil
}

// When the event of an unbind has come, nothing is written through the window any more, whatever the peer posts.
func TestNothingIsWrittenThroughAWindowThatWasUnbound(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	for round := range rounds {
		p := newPair(t, pairConfig{split: true, size: 8192}).connect(t)
		r := must[*dat.RMR](t)(p.b.pz.NewRMR())
		w := p.b.bind(t, r, 0, 4096, remoteBoth)
		var stop atomic.Bool
		refusedOnce := make(chan bool, 1)
		go func() { // writes until the window is gone
			for b := byte(1); !stop.Load(); b++ {
				for i := range p.a.mem[:4096] {
					p.a.mem[i] = b
				}
				if p.a.ep.PostRDMAWrite(1, 0, w, p.a.lmr.Triplet(0, 4096)) != nil {
					break
				}
				if ev, _, err := p.a.request.Wait(context.Background(), 1, patience); err != nil || ev.DTO().Status != dat.StatusSuccess {
					refusedOnce <- ev.DTO().Status == dat.StatusRemoteAccess
					return
				}
			}
			refusedOnce <- false
		}()
		for range round % 5 * 10 {
			queued(t, p.b.request)
		}
		must[uint32](t)(r.Bind(nil, dat.LMRTriplet{}, 0, 0, p.b.ep, 2, 0))
		next(t, p.b.request, dat.RMRBindCompletion)
		before := bytes.Clone(p.b.mem[:4096])
		if !receive(t, "the end of the writer", refusedOnce) {
			t.Fatalf("round %d: the writer was not refused", round)
		}
		if !bytes.Equal(before, p.b.mem[:4096]) {
			t.Fatalf("round %d: written through a window that was gone", round)
		}
		for i := range before {
			if before[i] != before[0] {
				t.Fatalf("round %d: a write was cut at %d", round, i)
			}
		}
		stop.Store(true)
		ok(t, p.a.ia.Close(t.Context(), dat.CloseAbrupt))
		ok(t, p.b.ia.Close(t.Context(), dat.CloseAbrupt))
	}
}

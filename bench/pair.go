package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"kdapl/dat"
	"kdapl/registry"
)

// fatal ends the program with an error: there is nothing to measure.
func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func get[T any](v T, err error) T {
	fatal(err)
	return v
}

// adapter is the one IA that software EVDs are made of.
var adapter = sync.OnceValue(func() *dat.IA { return get(registry.Open("loop0")) })

func softwareEVD(length int, policy dat.UpcallPolicy, f dat.UpcallFunc) *dat.EVD {
	return get(adapter().NewEVD(dat.EVDConfig{MinLen: length, Streams: dat.StreamSoftware, Policy: policy, Upcall: f}))
}

// side is one end of a connection.
type side struct {
	ia  *dat.IA
	pz  *dat.PZ
	evd *dat.EVD
	ep  *dat.EP
	lmr *dat.LMR
	ev  [1]dat.Event // for take
}

// pair is two connected sides over loop.
type pair struct{ a, b side }

func newSide(adapter string, size int) side {
	s := side{ia: get(registry.Open(adapter))}
	s.pz = get(s.ia.NewPZ())
	s.evd = get(s.ia.NewEVD(dat.EVDConfig{MinLen: 16, Streams: dat.StreamDTO | dat.StreamConnection | dat.StreamConnectionRequest}))
	s.lmr = get(s.pz.NewLMR(dat.LMRConfig{Length: size, Priv: dat.PrivAll}))
	return s
}

func (s *side) endPoint() *dat.EP {
	return get(s.pz.NewEP(dat.EPConfig{Recv: s.evd, Request: s.evd, Connect: s.evd}))
}

func newPair(size int) *pair {
	return pairOn("loop0", size)
}

// iwarpPair is two connected sides over iWARP, in this process.
func iwarpPair(size int) *pair { return pairOn("iwarp0", size) }

func pairOn(adapter string, size int) *pair {
	p := &pair{newSide(adapter, size), newSide(adapter, size)}
	psp := get(p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.evd}))
	p.a.ep, p.b.ep = p.connect(psp)
	return p
}

// connect makes and connects an EP on each side.
func (p *pair) connect(psp *dat.PSP) (a, b *dat.EP) {
	a, b = p.a.endPoint(), p.b.endPoint()
	fatal(a.Connect(p.b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: 10 * time.Second}))
	ev := p.b.next(dat.ConnectionRequest)
	fatal(ev.Request().CR.Accept(b, nil))
	p.a.next(dat.ConnectionEstablished)
	p.b.next(dat.ConnectionEstablished)
	return a, b
}

func (s *side) next(want dat.EventNumber) dat.Event {
	ev, _, err := s.evd.Wait(context.Background(), 1, 10*time.Second)
	fatal(err)
	if ev.Number != want {
		fatal(fmt.Errorf("got %v, want %v", ev, want))
	}
	return ev
}

// take takes one successful completion.
func (s *side) take() {
	for s.evd.DequeueInto(s.ev[:]) == 0 {
	}
	if status := s.ev[0].DTO().Status; status != dat.StatusSuccess {
		fatal(fmt.Errorf("an operation failed: %v", status))
	}
}

// sendRecv is a receive, a send and both completions.
func (p *pair) sendRecv(size int) func(n int) {
	from, to := p.a.lmr.Triplet(0, size), p.b.lmr.Triplet(0, size)
	return func(n int) {
		for range n {
			if p.b.ep.PostRecv(1, 0, to) != nil || p.a.ep.PostSend(2, 0, from) != nil {
				fatal(fmt.Errorf("post failed"))
			}
			p.a.take()
			p.b.take()
		}
	}
}

// write is an RDMA write and its completion.
func (p *pair) write(size int) func(n int) {
	from, to := p.a.lmr.Triplet(0, size), p.b.lmr.RMRTriplet(0, size)
	return func(n int) {
		for range n {
			fatal(p.a.ep.PostRDMAWrite(1, 0, to, from))
			p.a.take()
		}
	}
}

// close ends the connection and both adapters' instances.
func (p *pair) close() {
	for _, s := range []*side{&p.a, &p.b} {
		fatal(s.ia.Close(context.Background(), dat.CloseAbrupt))
	}
}

// pingPong is a message there and one back, each side in a goroutine of its own.
func (p *pair) pingPong(size int) func(n int) {
	return func(n int) {
		fatal(p.a.ep.PostRecv(1, 0, p.a.lmr.Triplet(0, size)))
		fatal(p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, size)))
		done := make(chan struct{})
		go func() {
			p.b.volley(size, n, false)
			close(done)
		}()
		p.a.volley(size, n, true)
		<-done
	}
}

// volley is one side of that. It leaves no receive posted.
func (s *side) volley(size, n int, first bool) {
	for i := range n {
		if first {
			fatal(s.ep.PostSend(2, 0, s.lmr.Triplet(0, size)))
			s.take()
		}
		s.take()
		if i < n-1 {
			fatal(s.ep.PostRecv(1, 0, s.lmr.Triplet(0, size)))
		}
		if !first {
			fatal(s.ep.PostSend(2, 0, s.lmr.Triplet(0, size)))
			s.take()
		}
	}
}

// writes posts lists of RDMA writes and takes their completions; n counts lists.
func (p *pair) writes(size, list int) func(n int) {
	requests := make([]dat.Request, list)
	for i := range requests {
		requests[i] = dat.Request{Op: dat.OpRDMAWrite, Remote: p.b.lmr.RMRTriplet(0, size), Local: []dat.LMRTriplet{p.a.lmr.Triplet(0, size)}}
	}
	return func(n int) {
		for range n {
			for todo := requests; len(todo) > 0; {
				k, err := p.a.ep.Post(todo)
				if todo = todo[k:]; err != nil && err != dat.ErrPostFull {
					fatal(err)
				}
				for range k {
					p.a.take()
				}
			}
		}
	}
}

// endPoints connects many pairs in one process and tells what they cost.
func endPoints(count int) {
	p := newPair(4096)
	psp := get(p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.evd}))
	runtime.GC()
	before := resident()
	begin := time.Now()
	eps := make([]*dat.EP, 0, 2*count)
	for range count {
		a, b := p.connect(psp)
		eps = append(eps, a, b)
	}
	up := time.Since(begin)
	runtime.GC()
	idle := resident()
	for i := 0; i < len(eps); i += 2 {
		for range 100 {
			fatal(eps[i+1].PostRecv(1, 0, p.b.lmr.Triplet(0, 64)))
			fatal(eps[i].PostSend(2, 0, p.a.lmr.Triplet(0, 64)))
			p.a.take()
			p.b.take()
		}
	}
	runtime.GC()
	used := resident()
	begin = time.Now()
	for _, ep := range eps {
		fatal(ep.Free())
	}
	down := time.Since(begin)
	each := func(kb int) float64 { return float64(kb-before) / float64(2*count) }
	fmt.Printf("%d EPs, 16 receives and 16 requests each, connected on loop0 over two EVDs\n", 2*count)
	fmt.Printf("set up     %8.0f connections/s, with both events\n", float64(count)/up.Seconds())
	fmt.Printf("torn down  %8.0f EPs/s\n", float64(2*count)/down.Seconds())
	fmt.Printf("resident   %8.2f KiB for each EP when just connected, %.2f KiB after 100 messages each\n", each(idle), each(used))
}

// resident is the process's resident memory in KiB; 0 where the system does not tell.
func resident() int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.Atoi(strings.Fields(string(b))[1])
	return pages * os.Getpagesize() / 1024
}

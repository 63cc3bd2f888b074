package dat_test

import (
	"context"
	"testing"

	"kdapl/dat"
	"kdapl/device/loop"
)

func BenchmarkPostSEDequeue(b *testing.B) {
	ia := must[*dat.IA](b)(dat.Open(loop.New(loop.Config{}), dat.Config{}))
	defer ia.Close(context.Background(), dat.CloseAbrupt)
	evd := must[*dat.EVD](b)(ia.NewEVD(dat.EVDConfig{MinLen: 16, Streams: dat.StreamSoftware}))
	var ev [1]dat.Event
	b.ReportAllocs()
	for b.Loop() {
		evd.PostSE(1)
		if evd.DequeueInto(ev[:]) != 1 {
			b.Fatal()
		}
	}
}

func BenchmarkChannel(b *testing.B) {
	c := make(chan dat.Event, 16)
	var ev dat.Event
	for b.Loop() {
		c <- ev
		ev = <-c
	}
}

func BenchmarkSendRecv64(b *testing.B) {
	p := connectPair(b, 4096)
	var ev [1]dat.Event
	b.ReportAllocs()
	for b.Loop() {
		if p.b.ep.PostRecv(7, 0, p.b.lmr.Triplet(100, 64)) != nil || p.a.ep.PostSend(8, 0, p.a.lmr.Triplet(0, 64)) != nil {
			b.Fatal("post")
		}
		if p.a.evd.DequeueInto(ev[:]) != 1 || p.b.evd.DequeueInto(ev[:]) != 1 {
			b.Fatal()
		}
	}
}

func BenchmarkWrite8(b *testing.B) {
	p := connectPair(b, 4096)
	var ev [1]dat.Event
	b.ReportAllocs()
	r := p.b.lmr.RMRTriplet(8, 8)
	l := p.a.lmr.Triplet(0, 8)
	for b.Loop() {
		if p.a.ep.PostRDMAWrite(8, 0, r, l) != nil {
			b.Fatal("post")
		}
		if p.a.evd.DequeueInto(ev[:]) != 1 {
			b.Fatal()
		}
	}
}

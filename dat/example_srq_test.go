package dat_test

import (
	"context"
	"fmt"

	"kdapl/dat"
	"kdapl/device/loop"
)

// Two clients send to a server whose end points share their receives. The low watermark tells when it is time to
// post more.
func ExampleSRQ() {
	ctx := context.Background()
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ia, err := dat.Open(loop.New(loop.Config{}), dat.Config{})
	check(err)
	defer ia.Close(ctx, dat.CloseAbrupt)
	pz, err := ia.NewPZ()
	check(err)
	buf := make([]byte, 4096)
	lmr, err := pz.Register(buf, dat.PrivLocalRead|dat.PrivLocalWrite)
	check(err)
	evd := func() *dat.EVD {
		e, err := ia.NewEVD(dat.EVDConfig{MinLen: 16, Streams: dat.StreamDTO | dat.StreamConnection | dat.StreamConnectionRequest})
		check(err)
		return e
	}
	server, client := evd(), evd()

	// Four receives for all connections together.
	srq, err := pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1})
	check(err)
	for i := range 4 {
		check(srq.PostRecv(uint64(i), lmr.Triplet(i*64, 64)))
	}
	check(srq.SetLowWatermark(3))

	psp, err := ia.NewPSP(dat.PSPConfig{EVD: server})
	check(err)
	for i := range 2 {
		// The server's end point has the SRQ, the client's a queue of its own.
		from, err := pz.NewEP(dat.EPConfig{Recv: client, Request: client, Connect: client})
		check(err)
		to, err := pz.NewEP(dat.EPConfig{Recv: server, Request: server, Connect: server, SRQ: srq})
		check(err)
		check(from.Connect(ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: dat.Infinite}))
		ev, _, err := server.Wait(ctx, 1, dat.Infinite)
		check(err)
		check(ev.Request().CR.Accept(to, nil))
		for _, e := range []*dat.EVD{client, server} { // ConnectionEstablished
			_, _, err := e.Wait(ctx, 1, dat.Infinite)
			check(err)
		}
		copy(buf[1024:], fmt.Sprintf("from client %d", i))
		check(from.PostSend(9, 0, lmr.Triplet(1024, 13)))
		ev, _, err = server.Wait(ctx, 1, dat.Infinite)
		check(err)
		d := ev.DTO() // d.EP tells whose message it is
		fmt.Printf("receive %d: %s\n", d.Cookie, buf[64*d.Cookie:][:d.Length])
		_, _, err = client.Wait(ctx, 1, dat.Infinite) // the send's completion
		check(err)
	}
	ev, _, err := ia.AsyncEVD().Wait(ctx, 1, dat.Infinite)
	check(err)
	q, err := srq.Query()
	check(err)
	fmt.Printf("%v: %d available\n", ev.Async().Reason, q.Available)
	// Output:
	// receive 0: from client 0
	// receive 1: from client 1
	// SRQ_LOW_WATERMARK_EVENT: 2 available
}

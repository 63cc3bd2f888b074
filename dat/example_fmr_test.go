package dat_test

import (
	"context"
	"fmt"

	"kdapl/dat"
	"kdapl/device/loop"
)

// Memory is registered by a request in the queue, for one transfer, and given back the same way: no
// call waits, and a peer can use the context no longer than it should.
func ExampleLMR_FMR() {
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
	evd, err := ia.NewEVD(dat.EVDConfig{MinLen: 16, Streams: dat.StreamDTO | dat.StreamConnection | dat.StreamConnectionRequest})
	check(err)
	wait := func() dat.Event {
		ev, _, err := evd.Wait(ctx, 1, dat.Infinite)
		check(err)
		return ev
	}
	var eps [2]*dat.EP
	for i := range eps {
		eps[i], err = pz.NewEP(dat.EPConfig{Recv: evd, Request: evd, Connect: evd})
		check(err)
	}
	psp, err := ia.NewPSP(dat.PSPConfig{EVD: evd})
	check(err)
	check(eps[0].Connect(ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: dat.Infinite}))
	ev := wait()
	check(ev.Request().CR.Accept(eps[1], nil))
	wait() // ConnectionEstablished of both
	wait()

	// Pages from here and there become one region. Each but the last is whole pages long.
	lmr, err := pz.AllocateLMR(8, dat.RMRScopePZ)
	check(err)
	pages := [][]byte{make([]byte, 4096), make([]byte, 4096), []byte("the end")}
	_, _, err = lmr.FMR(pages, dat.PrivAll, dat.VATypeVA, eps[0], 1, 0)
	check(err)
	ev = wait()
	fmt.Println(ev.DTO().Operation, ev.DTO().Status)

	buf := make([]byte, 7)
	local, err := pz.Register(buf, dat.PrivLocalRead|dat.PrivLocalWrite)
	check(err)
	remote := lmr.RMRTriplet(2*4096, len(buf))
	check(eps[1].PostRDMARead(2, 0, remote, local.Triplet(0, len(buf))))
	wait()
	fmt.Printf("%q\n", buf)

	check(lmr.Invalidate(eps[0], 3, 0))
	ev = wait()
	fmt.Println(ev.DTO().Operation, ev.DTO().Status)
	check(eps[1].PostRDMARead(4, 0, remote, local.Triplet(0, len(buf))))
	ev = wait()
	fmt.Println(ev.DTO().Operation, ev.DTO().Status)
	// Output:
	// LMR_FMR SUCCESS
	// "the end"
	// LMR_INVALIDATE SUCCESS
	// RDMA_READ REMOTE_ACCESS
}

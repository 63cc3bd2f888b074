package dat_test

import (
	"context"
	"encoding/binary"
	"fmt"

	"kdapl/dat"
	"kdapl/device/loop"
)

// A counter and a lock in a peer's memory. The words are eight bytes, aligned, in the byte order of their hosts.
func ExampleEP_PostFetchAdd() {
	ctx := context.Background()
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ia, err := dat.Open(loop.New(loop.Config{}), dat.Config{})
	check(err)
	defer ia.Close(ctx, dat.CloseAbrupt)
	if q, err := ia.Query(); err != nil || q.Attr.Extension == dat.ExtensionNone {
		fmt.Println("the adapter has no extensions", err)
		return
	}
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

	// Memory that the IA allocates is aligned to pages.
	shared, err := pz.NewLMR(dat.LMRConfig{Length: 4096, Priv: dat.PrivLocalRead | dat.PrivLocalWrite | dat.PrivRemoteAtomic})
	check(err)
	counter, lock := shared.RMRTriplet(0, 8), shared.RMRTriplet(8, 8)
	before := make([]byte, 8)
	local, err := pz.Register(before, dat.PrivLocalRead|dat.PrivLocalWrite)
	check(err)

	for range 2 {
		check(eps[0].PostFetchAdd(1, 0, 5, counter, local.Triplet(0, 8)))
		ev := wait()
		fmt.Println(ev.DTO().Operation, binary.NativeEndian.Uint64(before))
	}
	for _, owner := range []uint64{7, 8} { // the lock is free if the word is 0
		check(eps[0].PostCompareSwap(2, 0, 0, owner, lock, local.Triplet(0, 8)))
		wait()
		if holder := binary.NativeEndian.Uint64(before); holder == 0 {
			fmt.Println(owner, "has the lock")
		} else {
			fmt.Println(owner, "waits for", holder)
		}
	}
	// Output:
	// FETCH_ADD 0
	// FETCH_ADD 5
	// 7 has the lock
	// 8 waits for 7
}

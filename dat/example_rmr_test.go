package dat_test

import (
	"context"
	"encoding/binary"
	"fmt"

	"kdapl/dat"
	"kdapl/device/loop"
)

// The owner of some memory opens a window on a part of it and sends its context. The peer writes through
// the window, and its message closes it again.
func ExampleRMR() {
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
	evd := func() *dat.EVD {
		e, err := ia.NewEVD(dat.EVDConfig{MinLen: 16, Streams: dat.StreamDTO | dat.StreamConnection | dat.StreamConnectionRequest | dat.StreamRMRBind})
		check(err)
		return e
	}
	owner, peer := evd(), evd()
	ownerEP, err := pz.NewEP(dat.EPConfig{Recv: owner, Request: owner, Connect: owner})
	check(err)
	peerEP, err := pz.NewEP(dat.EPConfig{Recv: peer, Request: peer, Connect: peer})
	check(err)
	wait := func(e *dat.EVD) dat.Event {
		ev, _, err := e.Wait(ctx, 1, dat.Infinite)
		check(err)
		return ev
	}
	psp, err := ia.NewPSP(dat.PSPConfig{EVD: owner})
	check(err)
	check(peerEP.Connect(ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: dat.Infinite}))
	ev := wait(owner)
	check(ev.Request().CR.Accept(ownerEP, nil))
	wait(owner) // ConnectionEstablished
	wait(peer)

	// Peers have no access to the region itself, only to windows on it.
	memory, message := make([]byte, 4096), make([]byte, 64)
	region, err := pz.Register(memory, dat.PrivLocalRead|dat.PrivLocalWrite)
	check(err)
	messages, err := pz.Register(message, dat.PrivLocalRead|dat.PrivLocalWrite)
	check(err)
	window, err := pz.NewRMRForEP()
	check(err)

	check(peerEP.PostRecv(1, 0, messages.Triplet(0, 4)))
	check(ownerEP.PostRecv(2, 0, messages.Triplet(8, 4)))
	// The bind runs before what is posted behind it: its context can be sent at once.
	rmrContext, err := window.Bind(region, region.Triplet(1024, 16), dat.PrivRemoteWrite, dat.VATypeZB, ownerEP, 3, dat.CompletionSuppress)
	check(err)
	binary.BigEndian.PutUint32(message[16:], rmrContext)
	check(ownerEP.PostSend(4, dat.CompletionSuppress, messages.Triplet(16, 4)))

	wait(peer) // the receive: a context, of a window of 16 bytes that is addressed from 0
	remote := dat.RMRTriplet{SegmentLength: 16, RMRContext: binary.BigEndian.Uint32(message)}
	copy(message[32:], "through a window")
	check(peerEP.PostRDMAWrite(5, dat.CompletionSuppress, remote, messages.Triplet(32, 16)))
	check(peerEP.PostSendWithInvalidate(6, dat.CompletionSuppress, true, remote.RMRContext))

	ev = wait(owner)
	d := ev.DTO()
	fmt.Println(d.Operation, d.RMRContext == rmrContext)
	fmt.Printf("%q\n", memory[1024:1040])
	q, err := window.Query()
	check(err)
	fmt.Println("bound:", q.RMRContext != 0)
	// Output:
	// RECEIVE_WITH_INVALIDATE true
	// "through a window"
	// bound: false
}

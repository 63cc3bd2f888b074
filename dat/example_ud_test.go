package dat_test

import (
	"context"
	"fmt"

	"kdapl/dat"
	"kdapl/device/loop"
)

// Datagrams: no connection, but an answer to the question where the peer is.
func ExampleEP_PostSendUD() {
	ctx := context.Background()
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ia, err := dat.Open(loop.New(loop.Config{}), dat.Config{})
	check(err)
	defer ia.Close(ctx, dat.CloseAbrupt)
	q, err := ia.Query()
	check(err)
	attr := dat.DefaultEPAttr(q.Attr)
	attr.ServiceType = dat.ServiceUD
	pz, err := ia.NewPZ()
	check(err)
	endPoint := func() (*dat.EVD, *dat.EP) {
		evd, err := ia.NewEVD(dat.EVDConfig{MinLen: 16, Streams: dat.StreamDTO | dat.StreamConnection | dat.StreamConnectionRequest})
		check(err)
		ep, err := pz.NewEP(dat.EPConfig{Recv: evd, Request: evd, Connect: evd, Attr: &attr})
		check(err)
		return evd, ep
	}
	server, serverEP := endPoint()
	client, clientEP := endPoint()
	wait := func(e *dat.EVD) dat.Event {
		ev, _, err := e.Wait(ctx, 1, dat.Infinite)
		check(err)
		return ev
	}
	psp, err := ia.NewPSP(dat.PSPConfig{EVD: server})
	check(err)
	check(clientEP.Connect(ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: dat.Infinite}))
	ev := wait(server) // IBUDConnectionRequest
	check(ev.Request().CR.Accept(serverEP, nil))
	ev = wait(client) // IBUDConnectionEstablished, with the server's address
	to := ev.UD().Handle
	wait(server) // the same, with the client's

	// A receive has 40 bytes of room for the global route header before the payload.
	buf := make([]byte, 128)
	lmr, err := pz.Register(buf, dat.PrivLocalRead|dat.PrivLocalWrite)
	check(err)
	check(serverEP.PostRecv(1, 0, lmr.Triplet(0, 64)))
	copy(buf[64:], "datagram")
	check(clientEP.PostSendUD(2, dat.CompletionSuppress, to, lmr.Triplet(64, 8)))
	ev = wait(server)
	d := ev.DTO()
	fmt.Printf("%v of %d bytes: %q\n", d.Operation, d.Length, buf[40:d.Length])
	// Output:
	// RECV_UD of 48 bytes: "datagram"
}

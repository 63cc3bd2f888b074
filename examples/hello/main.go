// Command hello is a whole program over package dat: two end points of one process connect, one sends, the
// other is called up with what arrived.
//
//	go run ./examples/hello            in the process
//	go run ./examples/hello iwarp0     over TCP
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"kdapl/dat"
	"kdapl/registry"
)

func main() {
	name := "loop0"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	if err := run(name); err != nil {
		log.Fatal(err)
	}
}

func run(adapter string) error {
	ctx := context.Background()
	ia, err := registry.Open(adapter)
	if err != nil {
		return err
	}
	defer ia.Close(ctx, dat.CloseAbrupt)
	pz, err := ia.NewPZ()
	if err != nil {
		return err
	}
	buf := make([]byte, 8192) // the first half is sent from, the second received into
	lmr, err := pz.Register(buf, dat.PrivLocalRead|dat.PrivLocalWrite)
	if err != nil {
		return err
	}

	// The listening end is driven by upcalls.
	streams := dat.StreamConnectionRequest | dat.StreamConnection | dat.StreamDTO
	arrived := make(chan string, 1)
	var server *dat.EP
	upcalls, err := ia.NewEVD(dat.EVDConfig{MinLen: 16, Streams: streams, Policy: dat.UpcallSingleInstance,
		Upcall: func(ev dat.Event, more bool) {
			switch ev.Number {
			case dat.ConnectionRequest:
				if err := ev.Request().CR.Accept(server, nil); err != nil {
					log.Print(err)
				}
			case dat.DTOCompletion:
				if d := ev.DTO(); d.Status == dat.StatusSuccess {
					arrived <- string(buf[4096 : 4096+d.Length])
				}
			}
		}})
	if err != nil {
		return err
	}
	if server, err = pz.NewEP(dat.EPConfig{Recv: upcalls, Request: upcalls, Connect: upcalls}); err != nil {
		return err
	}
	if err := server.PostRecv(1, dat.CompletionDefault, lmr.Triplet(4096, 4096)); err != nil {
		return err
	}
	psp, err := ia.NewPSP(dat.PSPConfig{EVD: upcalls}) // on a free connection qualifier
	if err != nil {
		return err
	}

	// The connecting end waits for its events.
	evd, err := ia.NewEVD(dat.EVDConfig{MinLen: 16, Streams: streams})
	if err != nil {
		return err
	}
	client, err := pz.NewEP(dat.EPConfig{Recv: evd, Request: evd, Connect: evd})
	if err != nil {
		return err
	}
	if err := client.Connect(ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: 5 * time.Second}); err != nil {
		return err
	}
	if ev, _, err := evd.Wait(ctx, 1, 5*time.Second); err != nil || ev.Number != dat.ConnectionEstablished {
		return fmt.Errorf("no connection: %v, %w", ev, err)
	}
	n := copy(buf, "hello, "+adapter)
	if err := client.PostSend(2, dat.CompletionDefault, lmr.Triplet(0, n)); err != nil {
		return err
	}
	select {
	case text := <-arrived:
		fmt.Println("received:", text)
		return nil
	case <-time.After(5 * time.Second):
		return fmt.Errorf("nothing arrived")
	}
}

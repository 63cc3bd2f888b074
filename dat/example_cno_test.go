package dat_test

import (
	"context"
	"fmt"

	"kdapl/dat"
	"kdapl/device/loop"
)

// One goroutine waits for the events of several dispatchers. A trigger says where to look; whoever looks takes all
// that is there, since one trigger may stand for several events.
func ExampleCNO_Wait() {
	ctx := context.Background()
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ia, err := dat.Open(loop.New(loop.Config{}), dat.Config{})
	check(err)
	defer ia.Close(ctx, dat.CloseAbrupt)
	cno, err := ia.NewCNO(nil)
	check(err)
	names := map[*dat.EVD]string{}
	for _, name := range []string{"disk", "network"} {
		evd, err := ia.NewEVD(dat.EVDConfig{MinLen: 8, Streams: dat.StreamSoftware, CNO: cno})
		check(err)
		names[evd] = name
		for i := range uint64(2) {
			check(evd.PostSE(i))
		}
	}
	for range names {
		evd, err := cno.Wait(ctx, dat.Infinite)
		check(err)
		for ev := range evd.Drain() {
			fmt.Println(names[evd], ev.Software())
		}
	}
	_, err = cno.Wait(ctx, 0)
	fmt.Println(err == dat.ErrQueueEmpty)
	// Output:
	// disk 0
	// disk 1
	// network 0
	// network 1
	// true
}

package iwarp

import (
	"testing"
	"time"

	"kdapl/verbs"
)

// sleeper is a consumer that waits at one CQ, then at the other, as dat's EVD.Wait does: it looks for a
// while, then arms the CQ and sleeps.
type sleeper struct {
	t    *testing.T
	cq   verbs.CQ
	wake chan struct{}
}

func newSleeper(t *testing.T, ctx verbs.Context, depth int) *sleeper {
	s := &sleeper{t: t, wake: make(chan struct{}, 1)}
	var err error
	s.cq, err = ctx.CreateCQ(depth, func() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	})
	must(t, err)
	return s
}

func (s *sleeper) wait(looks int) verbs.Completion {
	s.t.Helper()
	var cs [1]verbs.Completion
	for {
		for range looks {
			if s.cq.Poll(cs[:]) == 1 {
				return cs[0]
			}
			s.cq.(verbs.Progresser).Progress()
		}
		if s.cq.Arm(verbs.ArmNext) {
			continue
		}
		select {
		case <-s.wake:
		case <-time.After(10 * time.Second):
			s.t.Fatal("a sleeper is not woken")
		}
		looks = max(looks, 1)
	}
}

// A connection that was left to those who poll one CQ is taken care of when the consumer goes to sleep at the other. The ticker,
// which notices in the end that nobody polls, is out of order here.
func TestConsumerOfTwoCQsMaySleepAtEither(t *testing.T) {
	for _, looks := range []int{1, 3, 50} {
		a, b := newEnd(t, New(Config{tick: time.Hour}), 16, 64), newEnd(t, New(Config{tick: time.Hour}), 16, 64)
		var send, recv [2]*sleeper
		for i, e := range []*end{a, b} {
			send[i], recv[i] = newSleeper(t, e.ctx, 16), newSleeper(t, e.ctx, 16)
			must(t, e.qp.Destroy())
			var err error
			e.qp, err = e.pd.CreateQP(verbs.QPInit{
				SendCQ: send[i].cq, RecvCQ: recv[i].cq, MaxSend: 16, MaxRecv: 16, MaxSendSGE: 1, MaxRecvSGE: 1,
				Conn: func(ev verbs.ConnEvent) { e.events <- ev },
			})
			must(t, err)
			must(t, e.qp.Modify(verbs.QPInitialized))
		}
		connect(t, a, b)
		const rounds = 300
		side := func(i int, e, peer *end) {
			post := func(op verbs.Opcode) {
				_, err := e.qp.PostSend([]verbs.SendWR{{Op: op, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{e.sge(0, 8)}, RemoteAddr: 0x10000 + 32, RemoteKey: peer.mr.RKey()}})
				must(t, err)
				if c := send[i].wait(looks); c.Status != verbs.StatusSuccess {
					t.Error(c)
				}
			}
			for range rounds {
				if i == 0 {
					post(verbs.OpSend)
				}
				if c := recv[i].wait(looks); c.Status != verbs.StatusSuccess {
					t.Error(c)
					return
				}
				_, err := e.qp.PostRecv([]verbs.RecvWR{{NumSGE: 1, SGE: [8]verbs.SGE{e.sge(0, 8)}}})
				must(t, err)
				if i == 1 {
					post(verbs.OpRDMARead)
					post(verbs.OpSend)
				}
			}
		}
		for _, e := range []*end{a, b} {
			_, err := e.qp.PostRecv([]verbs.RecvWR{{NumSGE: 1, SGE: [8]verbs.SGE{e.sge(0, 8)}}})
			must(t, err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			side(1, b, a)
		}()
		side(0, a, b)
		<-done
	}
}

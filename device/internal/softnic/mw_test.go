package softnic

import (
	"testing"

	"pgregory.net/rapid"

	"kdapl/verbs"
)

// The windows of a PD against a model, with binds, invalidations and accesses by two QPs.
func TestWindowStates(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, 1)
		qs := []*QP{b.qp, b.connected(1)}
		type model struct {
			mw          *MW
			typ         verbs.MWType
			key         uint32 // bound under
			owner       *QP
			drawn, dead []uint32
			off, n      int
			access      verbs.Access
			gone        bool
		}
		var ws []*model
		for range 3 {
			for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
				ws = append(ws, &model{mw: must(b.pd.AllocMW(typ))(t).(*MW), typ: typ})
			}
		}
		pick := func(rt *rapid.T) *model { return rapid.SampledFrom(ws).Draw(rt, "window") }
		qp := func(rt *rapid.T) *QP { return rapid.SampledFrom(qs).Draw(rt, "qp") }
		local := func(q *QP, h *Head, sg ...verbs.SGE) verbs.Status {
			q.lane.Lock()
			defer q.lane.Unlock()
			return q.runLocal(q.lane, h, sg)
		}
		unbind := func(w *model) {
			w.dead = append(w.dead, w.key)
			w.key, w.owner = 0, nil
		}
		use := func(q *QP, key uint32, addr uint64, n int, need verbs.Access) Verdict {
			q.lane.Lock()
			defer q.lane.Unlock()
			v, verdict := q.remote(q.lane, key, addr, uint32(n), need)
			if verdict == Accepted && v.Len() != n {
				rt.Fatalf("%d bytes, want %d", v.Len(), n)
			}
			return verdict
		}
		rt.Repeat(map[string]func(*rapid.T){
			"draw": func(rt *rapid.T) {
				w := pick(rt)
				k, err := w.mw.NextKey()
				if (err != nil) != w.gone {
					rt.Fatalf("NextKey: %v", err)
				}
				if err == nil {
					w.drawn = append(w.drawn, k)
				}
			},
			"bind": func(rt *rapid.T) {
				w, q := pick(rt), qp(rt)
				if len(w.drawn) == 0 {
					return
				}
				i := rapid.IntRange(0, len(w.drawn)-1).Draw(rt, "key")
				key := w.drawn[i]
				off, n := rapid.IntRange(0, 60).Draw(rt, "off"), rapid.IntRange(0, 40).Draw(rt, "n")
				access := rapid.SampledFrom([]verbs.Access{verbs.AccessRemoteRead, verbs.AccessRemoteWrite,
					verbs.AccessRemoteRead | verbs.AccessZeroBased, remoteRights}).Draw(rt, "access")
				st := local(q, &Head{Op: verbs.OpBindMW, Key: key, Access: access}, b.sge(off, n))
				ok := !w.gone && !(w.typ == verbs.MWType2 && (n == 0 || w.key != 0))
				if (st == verbs.StatusSuccess) != ok {
					rt.Fatalf("bind of type %d, bound %#x, gone %v, to %d bytes: %v", w.typ, w.key, w.gone, n, st)
				}
				if !ok {
					return
				}
				// A bind uses up its key and those that were drawn before.
				w.dead = append(w.dead, w.drawn[:i]...)
				w.drawn = w.drawn[i+1:]
				if w.key != 0 {
					unbind(w)
				}
				if n == 0 {
					w.dead = append(w.dead, key)
					return
				}
				w.key, w.off, w.n, w.access = key, off, n, access
				if w.typ == verbs.MWType2 {
					w.owner = q
				}
			},
			"bind with a used key": func(rt *rapid.T) {
				w, q := pick(rt), qp(rt)
				used := w.dead
				if w.key != 0 {
					used = append(used[:len(used):len(used)], w.key)
				}
				if len(used) == 0 {
					return
				}
				key := rapid.SampledFrom(used).Draw(rt, "key")
				if st := local(q, &Head{Op: verbs.OpBindMW, Key: key, Access: remoteRights}, b.sge(0, 8)); st != verbs.StatusMWBind {
					rt.Fatalf("bind of type %d under key %#x again: %v", w.typ, key, st)
				}
			},
			"invalidate": func(rt *rapid.T) {
				w, q, remote := pick(rt), qp(rt), rapid.Bool().Draw(rt, "remote")
				if w.key == 0 {
					return
				}
				q.lane.Lock()
				v := b.invalidate(q.lane, q, w.key, remote)
				q.lane.Unlock()
				ok := w.typ == verbs.MWType2 && w.owner == q
				if (v == Accepted) != ok {
					rt.Fatalf("invalidate of type %d: %v", w.typ, v)
				}
				if ok {
					unbind(w)
				}
			},
			"dealloc": func(rt *rapid.T) {
				w := pick(rt)
				if rapid.IntRange(0, 5).Draw(rt, "really") > 0 {
					return
				}
				if err := w.mw.Dealloc(); (err != nil) != w.gone {
					rt.Fatalf("Dealloc: %v", err)
				}
				if w.key != 0 {
					unbind(w)
				}
				w.gone = true
				w.dead = append(w.dead, w.drawn...)
				w.drawn = nil
			},
			"reset a QP": func(rt *rapid.T) {
				if rapid.IntRange(0, 9).Draw(rt, "really") > 0 {
					return
				}
				q := qs[1]
				if err := q.Destroy(); err != nil {
					rt.Fatal(err)
				}
				<-b.events
				for _, w := range ws {
					if w.owner == q {
						unbind(w)
					}
				}
				qs[1] = b.connected(1)
			},
			"": func(rt *rapid.T) {
				bound := 0
				for _, w := range ws {
					if got := w.mw.RKey(); got != w.key {
						rt.Fatalf("RKey is %#x, want %#x", got, w.key)
					}
					for _, k := range append(w.dead, w.drawn...) {
						if v := use(qs[0], k, 0x1000, 1, 0); v == Accepted {
							rt.Fatalf("key %#x works, bound is %#x", k, w.key)
						}
					}
					if w.key == 0 {
						continue
					}
					bound++
					base := 0x1000 + uint64(w.off)
					if w.access&verbs.AccessZeroBased != 0 {
						base = 0
					}
					for _, q := range qs {
						mine := w.typ == verbs.MWType1 || w.owner == q
						right := w.access & remoteRights
						if v := use(q, w.key, base, w.n, right); (v == Accepted) != mine {
							rt.Fatalf("access through type %d, own QP %v: %v", w.typ, mine, v)
						}
						if v := use(q, w.key, base, w.n, remoteRights); mine && (v == Accepted) != (right == remoteRights) {
							rt.Fatalf("access with more rights: %v", v)
						}
						if v := use(q, w.key, base+1, w.n, right); v == Accepted {
							rt.Fatal("access outside of the window")
						}
						if v := use(q, w.key, base-1, 1, right); v == Accepted {
							rt.Fatal("access before the window")
						}
					}
				}
				if bound > 0 {
					if err := b.mr.Dereg(); err != verbs.ErrBusy {
						rt.Fatalf("Dereg under %d windows: %v", bound, err)
					}
				}
			},
		})
	})
}

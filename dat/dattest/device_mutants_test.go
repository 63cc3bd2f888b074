package dattest_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kdapl/dat/internal/altered"
	"kdapl/verbs"
)

// deviceMutant is a device with one fault and the rules that must find it, as group/rule. Faults of package dat's own are found
// by its tests; these are of what an adapter brings.
type deviceMutant struct {
	name  string
	rules []string
	hooks func() altered.Hooks
	// overTCP is whether the device is an iWARP adapter, for faults that a synchronous device does not show.
	overTCP bool
}

// completions has f change each completion of a request or receive; one is lost if f returns false.
func completions(f func(c *verbs.Completion) bool) func() altered.Hooks {
	return func() altered.Hooks {
		return altered.Hooks{Poll: func(cs []verbs.Completion) int {
			kept := cs[:0]
			for _, c := range cs {
				if c.Op == verbs.OpDrained || f(&c) {
					kept = append(kept, c)
				}
			}
			return len(kept)
		}}
	}
}

// requests posts each request as f makes it.
func requests(f func(wr *verbs.SendWR)) func() altered.Hooks {
	return func() altered.Hooks {
		return altered.Hooks{PostSend: func(wrs []verbs.SendWR, post func([]verbs.SendWR) (int, error)) (int, error) {
			changed := slices.Clone(wrs)
			for i := range changed {
				f(&changed[i])
			}
			return post(changed)
		}}
	}
}

// receives posts each receive as f makes it.
func receives(f func(wr *verbs.RecvWR)) func() altered.Hooks {
	return func() altered.Hooks {
		return altered.Hooks{PostRecv: func(wrs []verbs.RecvWR, post func([]verbs.RecvWR) (int, error)) (int, error) {
			changed := slices.Clone(wrs)
			for i := range changed {
				f(&changed[i])
			}
			return post(changed)
		}}
	}
}

// events has f change each connection event; one is lost if f returns false.
func events(f func(ev *verbs.ConnEvent) bool) func() altered.Hooks {
	return func() altered.Hooks {
		return altered.Hooks{Conn: func(ev verbs.ConnEvent, deliver func(verbs.ConnEvent)) {
			if f(&ev) {
				deliver(ev)
			}
		}}
	}
}

// attributes changes what the device says of itself.
func attributes(f func(*verbs.Attr)) func() altered.Hooks {
	return func() altered.Hooks { return altered.Hooks{Attr: f} }
}

// regions registers memory with other rights.
func regions(f func(verbs.Access) verbs.Access) func() altered.Hooks {
	return func() altered.Hooks {
		return altered.Hooks{RegMR: func(buf []byte, iova uint64, access verbs.Access, reg func([]byte, uint64, verbs.Access) (verbs.MR, error)) (verbs.MR, error) {
			return reg(buf, iova, f(access))
		}}
	}
}

// region is a memory region with other ways.
type region struct {
	verbs.MR
	dereg func() error
	keys  uint32 // instead of its own
}

func (r region) Dereg() error {
	if r.dereg != nil {
		return r.dereg()
	}
	return r.MR.Dereg()
}

func (r region) LKey() uint32 {
	if r.keys != 0 {
		return r.keys
	}
	return r.MR.LKey()
}

func (r region) RKey() uint32 {
	if r.keys != 0 {
		return r.keys
	}
	return r.MR.RKey()
}

// ways makes every region one with other ways.
func ways(r region) func() altered.Hooks {
	return func() altered.Hooks {
		return altered.Hooks{RegMR: func(buf []byte, iova uint64, access verbs.Access, reg func([]byte, uint64, verbs.Access) (verbs.MR, error)) (verbs.MR, error) {
			mr, err := reg(buf, iova, access)
			if err != nil {
				return nil, err
			}
			w := r
			w.MR = mr
			return w, nil
		}}
	}
}

// window is a memory window whose end does nothing.
type window struct{ verbs.MW }

func (window) Dealloc() error { return nil }

// request is a connection request with other private data.
type request struct {
	verbs.ConnRequest
	reads int
}

func (request) PrivateData() []byte { return nil }
func (r request) ReadsIn() int      { return r.reads }
func (r request) ReadsOut() int     { return r.reads }

// second leaves out how many were posted.
func second(_ int, err error) error { return err }

// isEnd is whether a connection event ends a connection that was established.
func isEnd(k verbs.ConnEventKind) bool { return k == verbs.ConnDisconnected || k == verbs.ConnBroken }

// every is true once in n times.
func every(n int64) func() bool {
	var calls atomic.Int64
	return func() bool { return calls.Add(1)%n == 0 }
}

// deviceMutants are all of them.
var deviceMutants = slices.Concat(queueMutants, connectionMutants, transferMutants, memoryMutants, adapterMutants)

// queueMutants have a fault in completion queues and their notifications.
var queueMutants = []deviceMutant{
	{name: "completions come newest first", rules: []string{"transfer/receives are flushed in the order of posting", "post/a list is posted in order, up to the first that cannot be"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Poll: func(cs []verbs.Completion) int { slices.Reverse(cs); return len(cs) }}
		}},
	{name: "a completion in five is lost", rules: []string{"evd/each event goes to one of several dequeuers", "wait/no wake-up is lost between posters and a waiter",
		"post/an operation has its place until its event is taken", "cno/a wait looks at every member again"},
		hooks: func() altered.Hooks {
			fifth := every(5)
			return completions(func(*verbs.Completion) bool { return !fifth() })()
		}},
	{name: "the CQ is shorter than it was ordered", rules: []string{"evd/operations have room in the EVD, whatever else fills it"},
		hooks: func() altered.Hooks {
			return altered.Hooks{CreateCQ: func(n int) int { return max(1, n/4) }, Resize: func(n int) int { return max(1, n/4) }}
		}},
	{name: "nobody is notified", rules: []string{"wait/a wait is ended by what notifies", "wait/no wake-up is lost between posters and a waiter",
		"upcall/a consumer that enables and polls a last time misses nothing", "upcall/a consumer that drains from a goroutine misses nothing",
		"upcall/completions that do not notify start no upcall, and come in order with the next"},
		hooks: func() altered.Hooks { return altered.Hooks{Notify: func(func()) {}} }},
	{name: "every third notification is lost", rules: []string{"wait/no wake-up is lost between posters and a waiter", "upcall/a consumer that drains from a goroutine misses nothing"},
		hooks: func() altered.Hooks {
			third := every(3)
			return altered.Hooks{Notify: func(notify func()) {
				if !third() {
					notify()
				}
			}}
		}},
	{name: "arming does nothing", rules: []string{"wait/no wake-up is lost between posters and a waiter", "upcall/a consumer that enables and polls a last time misses nothing", "wait/a wait is ended by what notifies"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Arm: func(verbs.ArmKind, func(verbs.ArmKind) bool) bool { return false }}
		}},
	{name: "no receive is solicited", rules: []string{"upcall/unsolicited receives start no upcall under SOLICITED_WAIT"},
		hooks: completions(func(c *verbs.Completion) bool { c.Flags &^= verbs.CompletionSolicited; return true })},
	{name: "every receive is solicited", rules: []string{"upcall/unsolicited receives start no upcall under SOLICITED_WAIT"},
		hooks: completions(func(c *verbs.Completion) bool { c.Flags |= verbs.CompletionSolicited; return true })},
	{name: "solicited receives are not known, but the attributes say so", rules: []string{"upcall/unsolicited receives start no upcall under SOLICITED_WAIT"},
		hooks: requests(func(wr *verbs.SendWR) { wr.Flags ^= verbs.SendSolicited })},
}

// connectionMutants have a fault in set-ups and ends.
var connectionMutants = []deviceMutant{
	{name: "requests lose their private data", rules: []string{"connection/private data go both ways", "handoff/a handoff gives the request to another service point, with its data"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Request: func(r verbs.ConnRequest, deliver func(verbs.ConnRequest)) { deliver(request{r, r.ReadsIn()}) }}
		}},
	{name: "replies lose their private data", rules: []string{"connection/private data go both ways", "connection/a rejected connect tells so, with the peer's private data",
		"end/the private data of a connection last until the reset", "attribute/private data of the longest size arrives, and no longer one is taken"},
		hooks: events(func(ev *verbs.ConnEvent) bool { ev.PrivateData = nil; return true })},
	{name: "private data are shorter than the attributes say", rules: []string{"attribute/private data of the longest size arrives, and no longer one is taken"},
		hooks: attributes(func(a *verbs.Attr) { a.MaxPrivateData++ })},
	{name: "a reject is told as a refusal", rules: []string{"connection/a rejected connect tells so, with the peer's private data", "service/a reject frees an EP of the provider's"},
		hooks: events(func(ev *verbs.ConnEvent) bool {
			if ev.Kind == verbs.ConnRejected {
				ev.Kind = verbs.ConnRefused
			}
			return true
		})},
	{name: "a refusal is told as a reject", rules: []string{"connection/a connect to nobody is refused", "service/a request that finds its EVD full is refused"},
		hooks: events(func(ev *verbs.ConnEvent) bool {
			if ev.Kind == verbs.ConnRefused {
				ev.Kind = verbs.ConnRejected
			}
			return true
		})},
	{name: "an unreachable peer refuses", rules: []string{"connection/a connect to an unreachable address tells so"},
		hooks: events(func(ev *verbs.ConnEvent) bool {
			if ev.Kind == verbs.ConnUnreachable {
				ev.Kind = verbs.ConnRefused
			}
			return true
		})},
	{name: "a refusal is not told", rules: []string{"connection/a connect to nobody is refused", "ia/an abrupt close takes everything, and the peers are told"},
		hooks: events(func(ev *verbs.ConnEvent) bool { return ev.Kind != verbs.ConnRefused })},
	{name: "set-ups do not time out", rules: []string{"connection/a connect that nobody answers times out, and its accept fails later"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Connect: func(p verbs.ConnParams, connect func(verbs.ConnParams) error) error {
				p.Timeout = 0
				return connect(p)
			}}
		}},
	{name: "connects go to the next port", rules: []string{"connection/connect and accept establish a connection on both sides", "connection/a duplicate connect goes where the other EP is connected"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Connect: func(p verbs.ConnParams, connect func(verbs.ConnParams) error) error {
				p.Remote.Port++
				return connect(p)
			}}
		}},
	{name: "one set-up in three is not told as established", rules: []string{"connection/EPs connect again and again", "connection/many connections are set up at once"},
		hooks: func() altered.Hooks {
			third := every(3)
			return events(func(ev *verbs.ConnEvent) bool { return ev.Kind != verbs.ConnEstablished || !third() })()
		}},
	{name: "set-ups come with addresses of others", rules: []string{"connection/both ends know the addresses of both"},
		hooks: events(func(ev *verbs.ConnEvent) bool {
			ev.Local, ev.Remote = ev.Remote, ev.Local
			return true
		})},
	{name: "read depths are not agreed", rules: []string{"connection/read depths are agreed for both directions"},
		hooks: events(func(ev *verbs.ConnEvent) bool { ev.ReadsIn, ev.ReadsOut = 1, 1; return true })},
	{name: "a disconnect does nothing", rules: []string{"connection/a disconnect ends a set-up", "end/a disconnected EP flushes what is posted, and does nothing at a further disconnect",
		"end/whoever ends a connection, and however, each side has one end behind all of its completions"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Disconnect: func(bool, func(bool) error) error { return nil }}
		}},
	{name: "every end is abrupt", rules: []string{"end/a graceful end runs what is posted, and takes nothing more"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Disconnect: func(_ bool, disconnect func(bool) error) error { return disconnect(false) }}
		}},
	{name: "every end is graceful", rules: []string{"end/a second graceful disconnect has no effect, an abrupt one ends at once"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Disconnect: func(_ bool, disconnect func(bool) error) error { return disconnect(true) }}
		}},
	{name: "an end in three is not told", rules: []string{"end/whoever ends a connection, and however, each side has one end behind all of its completions",
		"connection/the end of an earlier connection does not touch the next one"},
		hooks: func() altered.Hooks {
			third := every(3)
			return events(func(ev *verbs.ConnEvent) bool { return !isEnd(ev.Kind) || !third() })()
		}},
	{name: "faults end in peace", rules: []string{"end/a broken connection says why, on both sides", "transfer/a message longer than its receive ends the connection",
		"invalidate/a send that invalidates what it may not ends the connection"},
		hooks: events(func(ev *verbs.ConnEvent) bool {
			if ev.Kind == verbs.ConnBroken {
				ev.Kind = verbs.ConnDisconnected
			}
			return true
		})},
	{name: "ends come as faults", rules: []string{"end/whoever ends a connection, and however, each side has one end behind all of its completions", "end/a graceful end runs what is posted, and takes nothing more"},
		hooks: events(func(ev *verbs.ConnEvent) bool {
			if ev.Kind == verbs.ConnDisconnected {
				ev.Kind = verbs.ConnBroken
			}
			return true
		})},
	{name: "faults have no cause", rules: []string{"end/a broken connection says why, on both sides"},
		hooks: events(func(ev *verbs.ConnEvent) bool { ev.Err = nil; return true })},
	{name: "a freed QP lives on", rules: []string{"end/a freed EP is gone for its peer"},
		hooks: func() altered.Hooks { return altered.Hooks{Destroy: func(func() error) error { return nil }} }},
	{name: "flushed is told as success", rules: []string{"end/a reset comes behind what was flushed", "end/a freed EP flushes what it had, and its events still name it", "srq/an SRQ serves its EPs in the order of their messages"},
		hooks: completions(func(c *verbs.Completion) bool {
			switch c.Status {
			case verbs.StatusFlushed:
				c.Status = verbs.StatusSuccess
			case verbs.StatusSuccess:
				c.Status = verbs.StatusFlushed
			}
			return true
		})},
	{name: "receives are not flushed", rules: []string{"end/whoever ends a connection, and however, each side has one end behind all of its completions", "transfer/receives are flushed in the order of posting"},
		hooks: completions(func(c *verbs.Completion) bool {
			return c.Flags&verbs.CompletionRecvQueue == 0 || c.Status != verbs.StatusFlushed
		})},
	{name: "the loss of the adapter is not told", rules: []string{"end/when the adapter is taken away, everything ends in events and close works"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Async: func(ev verbs.AsyncEvent, deliver func(verbs.AsyncEvent)) {
				if ev.Kind != verbs.AsyncDeviceFatal {
					deliver(ev)
				}
			}}
		}},
	{name: "an accept comes after a while as a failure", rules: []string{"connection/connect and accept establish a connection on both sides", "datagram/two EPs learn where the other takes datagrams"},
		hooks: events(func(ev *verbs.ConnEvent) bool {
			if ev.Kind == verbs.ConnEstablished {
				ev.Kind = verbs.ConnTimedOut
			}
			return true
		})},
}

// transferMutants have a fault in posts and in what they move.
var transferMutants = []deviceMutant{
	{name: "segments are not checked", rules: []string{"post/segments are of the EP's zone, within their region and its privileges"},
		hooks: func() altered.Hooks {
			h := receives(func(wr *verbs.RecvWR) { wr.NumSGE = 0 })()
			h.PostSend = requests(func(wr *verbs.SendWR) { wr.NumSGE = 0 })().PostSend
			return h
		}},
	{name: "the last of a list is not posted", rules: []string{"post/a list is posted in order, up to the first that cannot be"},
		hooks: func() altered.Hooks {
			return altered.Hooks{PostSend: func(wrs []verbs.SendWR, post func([]verbs.SendWR) (int, error)) (int, error) {
				if len(wrs) > 1 {
					n, err := post(wrs[:len(wrs)-1])
					return n + 1, err
				}
				return post(wrs)
			}}
		}},
	{name: "a request in seven vanishes", rules: []string{"transfer/messages come in the order of posting", "transfer/many EPs transfer in both directions at once"},
		hooks: func() altered.Hooks {
			seventh := every(7)
			return altered.Hooks{PostSend: func(wrs []verbs.SendWR, post func([]verbs.SendWR) (int, error)) (int, error) {
				if len(wrs) == 1 && seventh() {
					return 1, nil
				}
				return post(wrs)
			}}
		}},
	{name: "suppressed failures are suppressed", rules: []string{"post/suppressed successes have no event, and leave no place behind"},
		hooks: completions(func(c *verbs.Completion) bool { return c.Status == verbs.StatusSuccess })},
	{name: "lengths are one too many", rules: []string{"transfer/a completion names its operation, EP, cookie and length", "transfer/a message arrives byte for byte, from and in any segments"},
		hooks: completions(func(c *verbs.Completion) bool { c.Length++; return true })},
	{name: "only the first segment is sent", rules: []string{"transfer/a message arrives byte for byte, from and in any segments", "transfer/a read fills its segments in order"},
		hooks: requests(func(wr *verbs.SendWR) { wr.NumSGE = min(wr.NumSGE, 1) })},
	{name: "segments are taken from the last to the first", rules: []string{"transfer/a message arrives byte for byte, from and in any segments", "transfer/a read fills its segments in order"},
		hooks: requests(func(wr *verbs.SendWR) { slices.Reverse(wr.SGE[:wr.NumSGE]) })},
	{name: "receives are filled from the last segment", rules: []string{"transfer/a message arrives byte for byte, from and in any segments"},
		hooks: receives(func(wr *verbs.RecvWR) { slices.Reverse(wr.SGE[:wr.NumSGE]) })},
	{name: "writes go elsewhere", rules: []string{"transfer/a receive leaves what is behind the message alone", "memory/a peer has the privileges that a region gives", "transfer/large transfers arrive whole, in both directions"},
		hooks: requests(func(wr *verbs.SendWR) {
			if wr.Op == verbs.OpRDMAWrite && wr.NumSGE > 0 && wr.SGE[0].Length > 1 {
				wr.RemoteAddr++
				wr.SGE[0].Length--
			}
		})},
	{name: "a send overtakes the write before it", rules: []string{"transfer/what was written is visible when a later send is received"},
		hooks: func() altered.Hooks {
			var mu sync.Mutex
			var held []verbs.SendWR
			return altered.Hooks{PostSend: func(wrs []verbs.SendWR, post func([]verbs.SendWR) (int, error)) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				if len(wrs) == 1 && wrs[0].Op == verbs.OpRDMAWrite {
					late := held
					held = slices.Clone(wrs)
					return max(1, len(late)), second(post(late))
				}
				return post(wrs)
			}}
		}},
	{name: "fences are ignored", rules: []string{"transfer/a fenced request comes behind the reads before it"}, overTCP: true,
		hooks: requests(func(wr *verbs.SendWR) { wr.Flags &^= verbs.SendFence })},
	{name: "a send that finds no receive breaks, though the attributes say that it waits", rules: []string{"transfer/a send that finds no receive waits for one"}, overTCP: true,
		hooks: attributes(func(a *verbs.Attr) { a.Caps |= verbs.CapRNR })},
	{name: "a send waits, though the attributes say that it breaks", rules: []string{"transfer/a send that finds no receive ends the connection if it cannot wait"},
		hooks: attributes(func(a *verbs.Attr) { a.Caps &^= verbs.CapRNR })},
	{name: "receives take more than they have", rules: []string{"transfer/a message longer than its receive ends the connection"},
		hooks: receives(func(wr *verbs.RecvWR) {
			if wr.NumSGE > 0 {
				wr.SGE[wr.NumSGE-1].Length += 64
			}
		})},
	{name: "the outcome of remote faults is success", rules: []string{"transfer/what a peer may not do ends the connection, and touches nothing", "end/a broken connection says why, on both sides", "rmr/an RMR gives access to its part of the LMR only"},
		hooks: completions(func(c *verbs.Completion) bool {
			if c.Status != verbs.StatusFlushed {
				c.Status = verbs.StatusSuccess
			}
			return true
		})},
	{name: "immediate data are another number", rules: []string{"extension/an RDMA write with immediate data uses up a receive, and tells its data"},
		hooks: requests(func(wr *verbs.SendWR) { wr.Imm++ })},
	{name: "atomics do something else", rules: []string{"extension/fetch-and-add adds, and returns what was there", "extension/compare-and-swap swaps what compares, and returns what was there"},
		hooks: requests(func(wr *verbs.SendWR) { wr.Swap++ })},
	{name: "datagrams go elsewhere", rules: []string{"datagram/a datagram arrives behind 40 bytes of header, and names its sender"},
		hooks: requests(func(wr *verbs.SendWR) {
			if wr.RemoteQPN != 0 {
				wr.RemoteQPN ^= 1 << 20
			}
		})},
}

// memoryMutants have a fault in zones, regions and windows.
var memoryMutants = []deviceMutant{
	{name: "every region has every right", rules: []string{"transfer/what a peer may not do ends the connection, and touches nothing", "post/segments are of the EP's zone, within their region and its privileges"},
		hooks: regions(func(a verbs.Access) verbs.Access {
			return a | verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
		})},
	{name: "regions cannot be read by peers", rules: []string{"memory/a peer has the privileges that a region gives", "memory/memory of the IA is zeroed, and serves both ends"},
		hooks: regions(func(a verbs.Access) verbs.Access { return a &^ verbs.AccessRemoteRead })},
	{name: "regions cannot be written", rules: []string{"memory/a duplicate has privileges of its own, and outlives its source", "memory/regions of the same memory do not know each other"},
		hooks: regions(func(a verbs.Access) verbs.Access { return a &^ verbs.AccessRemoteWrite })},
	{name: "regions are of copies", rules: []string{"memory/a peer has the privileges that a region gives", "memory/regions of the same memory do not know each other", "memory/memory of the IA is zeroed, and serves both ends"},
		hooks: func() altered.Hooks {
			return altered.Hooks{RegMR: func(buf []byte, iova uint64, access verbs.Access, reg func([]byte, uint64, verbs.Access) (verbs.MR, error)) (verbs.MR, error) {
				return reg(slices.Clone(buf), iova, access)
			}}
		}},
	{name: "zero-based regions begin elsewhere", rules: []string{"memory/a zero-based region is addressed from 0"},
		hooks: func() altered.Hooks {
			return altered.Hooks{RegMR: func(buf []byte, iova uint64, access verbs.Access, reg func([]byte, uint64, verbs.Access) (verbs.MR, error)) (verbs.MR, error) {
				if access&verbs.AccessZeroBased != 0 {
					iova, access = 4, access&^verbs.AccessZeroBased
				}
				return reg(buf, iova, access)
			}}
		}},
	{name: "a freed region lives on", rules: []string{"memory/an operation that names a freed region fails, and touches nothing", "transfer/what a peer may not do ends the connection, and touches nothing"},
		hooks: ways(region{dereg: func() error { return nil }})},
	{name: "keys are used again at once", rules: []string{"memory/contexts of freed regions do not come back soon"},
		hooks: ways(region{keys: 0x1234})},
	{name: "all zones are one", rules: []string{"post/segments are of the EP's zone, within their region and its privileges", "transfer/what a peer may not do ends the connection, and touches nothing"},
		hooks: func() altered.Hooks {
			return altered.Hooks{AllocPD: func(earlier []verbs.PD, alloc func() (verbs.PD, error)) (verbs.PD, error) {
				if len(earlier) > 0 {
					return earlier[0], nil
				}
				return alloc()
			}}
		}},
	{name: "binds give every right", rules: []string{"rmr/an RMR gives the privileges of its bind only"},
		hooks: requests(func(wr *verbs.SendWR) {
			if wr.Op == verbs.OpBindMW {
				wr.Access |= verbs.AccessRemoteRead | verbs.AccessRemoteWrite
			}
		})},
	{name: "windows stay bound", rules: []string{"rmr/a freed RMR gives no access"},
		hooks: func() altered.Hooks {
			return altered.Hooks{AllocMW: func(typ verbs.MWType, alloc func(verbs.MWType) (verbs.MW, error)) (verbs.MW, error) {
				w, err := alloc(typ)
				return window{w}, err
			}}
		}},
	{name: "fast registrations give no right", rules: []string{"fmr/several ranges are one region, in order"},
		hooks: requests(func(wr *verbs.SendWR) {
			if wr.Op == verbs.OpRegMR {
				wr.Access = 0
			}
		})},
	{name: "an invalidation is not reported", rules: []string{"invalidate/a send ends a fast registration, and tells the context"},
		hooks: completions(func(c *verbs.Completion) bool { c.Flags &^= verbs.CompletionInval; return true })},
	{name: "sends invalidate nothing", rules: []string{"invalidate/a send ends the binding of an RMR for an EP, and tells the context"},
		hooks: requests(func(wr *verbs.SendWR) {
			if wr.Op == verbs.OpSendInval {
				wr.Op = verbs.OpSend
			}
		})},
}

// adapterMutants have a fault in contexts, listeners and SRQs.
var adapterMutants = []deviceMutant{
	{name: "requests are lost", rules: []string{"connection/connect and accept establish a connection on both sides", "service/an RSP takes one request, for its EP"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Request: func(verbs.ConnRequest, func(verbs.ConnRequest)) {}}
		}},
	{name: "close hangs", rules: []string{"ia/an abrupt close takes everything, and the peers are told"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Close: func(func() error) error { time.Sleep(time.Hour); return nil }}
		}},
	{name: "limits are twice what they are", rules: []string{"post/an EP has as many operations as the attributes say"},
		hooks: attributes(func(a *verbs.Attr) { a.MaxQPWR *= 2 })},
	{name: "all is said to be there", rules: []string{"datagram/two EPs learn where the other takes datagrams"}, overTCP: true,
		hooks: attributes(func(a *verbs.Attr) { a.Caps = ^verbs.Caps(0) })},
	{name: "watermarks are not told", rules: []string{"watermark/a low watermark tells once when fewer are available"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Async: func(ev verbs.AsyncEvent, deliver func(verbs.AsyncEvent)) {
				if ev.Kind != verbs.AsyncSRQLimit {
					deliver(ev)
				}
			}}
		}},
	{name: "watermarks are told for ever", rules: []string{"watermark/a low watermark tells once when fewer are available"},
		hooks: func() altered.Hooks {
			return altered.Hooks{Async: func(ev verbs.AsyncEvent, deliver func(verbs.AsyncEvent)) {
				deliver(ev)
				if ev.Kind == verbs.AsyncSRQLimit {
					deliver(ev)
				}
			}}
		}},
}

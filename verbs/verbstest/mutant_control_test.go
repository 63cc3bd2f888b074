package verbstest_test

import (
	"errors"
	"slices"

	"kdapl/verbs"
)

// private passes a connection event on with other private data.
func private(f func([]byte) []byte) func(*wqp, verbs.ConnEvent) {
	return func(q *wqp, ev verbs.ConnEvent) {
		ev.PrivateData = f(ev.PrivateData)
		q.in.Conn(ev)
	}
}

// stubborn is a request that says yes to a second answer.
type stubborn struct{ verbs.ConnRequest }

func (r stubborn) Reject(d []byte) error {
	return instead(r.ConnRequest.Reject(d), verbs.ErrState, nil)
}

// wrongDepths is a request that mixes up the directions.
type wrongDepths struct{ verbs.ConnRequest }

func (r wrongDepths) ReadsIn() int  { return r.ConnRequest.ReadsOut() }
func (r wrongDepths) ReadsOut() int { return r.ConnRequest.ReadsIn() }

// wrongEnds is a request that mixes up its ends.
type wrongEnds struct{ verbs.ConnRequest }

func (r wrongEnds) Local() verbs.Address { return r.ConnRequest.Remote() }

// controlMutants have a fault in shared receive queues, states, flushing, connections,
// callbacks or the end.
var controlMutants = []mutant{
	// Shared receive queues.
	{"the limit event comes twice", []string{"srq/the limit event comes once, below the limit"},
		mutation{async: func(c *wctx, ev verbs.AsyncEvent) {
			c.async(ev)
			if ev.Kind == verbs.AsyncSRQLimit {
				c.async(ev)
			}
		}}},
	{"the limit event comes too early", []string{"srq/the limit event comes once, below the limit", "srq/the limit event comes at once if few are available"},
		mutation{setLimit: func(s *wsrq, n int) error {
			if n > 0 {
				n++
			}
			return s.SRQ.SetLimit(n)
		}}},
	{"the limit event does not come", []string{"srq/the limit event comes once, below the limit", "srq/the limit event comes at once if few are available"},
		mutation{setLimit: func(*wsrq, int) error { return nil }}},
	{"the last completion is not announced", []string{"srq/the last receive completion of a QP with an SRQ is announced once"},
		mutation{async: func(c *wctx, ev verbs.AsyncEvent) {
			if ev.Kind != verbs.AsyncLastWQE {
				c.async(ev)
			}
		}}},
	{"Available is what was posted", []string{"srq/Available counts what no QP has taken"},
		mutation{srqAvailable: func(s *wsrq) int { return s.SRQ.Available() + 1 }}},
	{"an SRQ is never busy", []string{"srq/Resize of an SRQ below its receives is busy"},
		mutation{srqResize: func(s *wsrq, n int) error { return instead(s.SRQ.Resize(n), verbs.ErrBusy, nil) }}},
	{"a QP with an SRQ takes receives", []string{"srq/a QP with an SRQ takes no receives of its own"},
		mutation{postRecv: func(q *wqp, wrs []verbs.RecvWR) (int, error) {
			if q.in.SRQ != nil {
				return len(wrs), nil
			}
			return q.inner.PostRecv(wrs)
		}}},

	// States and flushing.
	{"a wrong state is an invalid argument", []string{"state/calls on a QP in Reset", "state/calls on a QP in Initialized"},
		mutation{postSend: func(q *wqp, wrs []verbs.SendWR) (int, error) {
			n, err := q.inner.PostSend(wrs)
			return n, instead(err, verbs.ErrState, verbs.ErrInvalid)
		}}},
	{"Modify never objects", []string{"state/calls on a QP in Initialized", "state/calls on a QP in RTS", "ud/calls on a UD QP by state"},
		mutation{modify: func(q *wqp, to verbs.QPState) error { return instead(q.inner.Modify(to), verbs.ErrState, nil) }}},
	{"a QP in Error takes nothing", []string{"flush/requests posted in Error complete flushed, behind the mark, in order", "state/calls on a QP in Error that was connected"},
		mutation{postSend: func(q *wqp, wrs []verbs.SendWR) (int, error) {
			if q.State() == verbs.QPError {
				return 0, verbs.ErrState
			}
			return q.inner.PostSend(wrs)
		}}},
	{"the marks are dropped", []string{"flush/an idle QP delivers its marks and nothing else", "objects/a queue without a CQ owes no mark",
		"flush/receives of a QP that was never connected flush when it is reset or destroyed"},
		mutation{poll: each(func(_ *wcq, c *verbs.Completion) bool { return c.Op != verbs.OpDrained })}},
	{"the marks come twice", []string{"flush/an idle QP delivers its marks and nothing else", "flush/going to Error again delivers no second mark"},
		mutation{poll: func(c *wcq, dst []verbs.Completion) int {
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(dst) > 0 && len(c.keep) > 0 {
				dst[0], c.keep = c.keep[0], c.keep[1:]
				return 1
			}
			n := c.inner.Poll(dst)
			for _, comp := range dst[:n] {
				if comp.Op == verbs.OpDrained {
					c.keep = append(c.keep, comp)
				}
			}
			return n
		}}},
	{"the mark comes before what is flushed", []string{"flush/receives flush when a QP that was never connected goes to Error"},
		mutation{poll: func(c *wcq, dst []verbs.Completion) int {
			n := c.inner.Poll(dst)
			slices.SortStableFunc(dst[:n], func(a, b verbs.Completion) int {
				return int(b.Op/verbs.OpDrained) - int(a.Op/verbs.OpDrained)
			})
			return n
		}}},
	{"success where flush is due", []string{"flush/receives flush when a QP that was never connected goes to Error", "flush/everything outstanding flushes by an abrupt Disconnect"},
		mutation{poll: each(func(_ *wcq, c *verbs.Completion) bool {
			if c.Status == verbs.StatusFlushed {
				c.Status = verbs.StatusSuccess
			}
			return true
		})}},
	{"flushed requests vanish", []string{"flush/a full queue flushes", "stress/posts race with the end of the connection"},
		mutation{poll: each(func(_ *wcq, c *verbs.Completion) bool { return c.Status != verbs.StatusFlushed })}},
	{"requests that are not signalled flush silently", []string{"flush/requests that are not signalled flush with a completion"},
		mutation{
			postSend: func(q *wqp, wrs []verbs.SendWR) (int, error) {
				q.scq.mu.Lock()
				for _, wr := range wrs {
					if wr.Flags&verbs.SendSignaled == 0 {
						q.scq.keep = append(q.scq.keep, verbs.Completion{ID: wr.ID})
					}
				}
				q.scq.mu.Unlock()
				return q.inner.PostSend(wrs)
			},
			poll: each(func(c *wcq, comp *verbs.Completion) bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return !slices.ContainsFunc(c.keep, func(k verbs.Completion) bool { return k.ID == comp.ID })
			}),
		}},
	{"Reset returns before the flush", []string{"flush/receives of a QP that was never connected flush when it is reset or destroyed"},
		mutation{
			modify: func(q *wqp, to verbs.QPState) error {
				q.rcq.n.Store(3)
				return q.inner.Modify(to)
			},
			poll: func(c *wcq, dst []verbs.Completion) int {
				if c.n.Add(-1) >= 0 {
					return 0
				}
				return c.inner.Poll(dst)
			},
		}},

	// Datagrams.
	{"the QKey is not checked", []string{"ud/a datagram with another QKey is dropped"},
		mutation{postSend: rewrite(func(q *wqp, wr *verbs.SendWR) {
			if q.in.Type == verbs.UD {
				wr.QKey = q.in.QKey
			}
		})}},
	{"a datagram says it came from nowhere", []string{"ud/a datagram arrives with its source and payload", "ud/a UD QP is answered by its number"},
		mutation{poll: each(func(_ *wcq, c *verbs.Completion) bool {
			c.SrcQPN = 0
			return true
		})}},

	// Connections.
	{"a port can be listened on twice", []string{"listen/a port in use is refused"},
		mutation{listen: func(c *wctx, l verbs.ListenConfig) (verbs.Listener, error) {
			v, err := c.inner.Listen(l)
			if errors.Is(err, verbs.ErrAddrInUse) {
				l.Local.Port = 0
				return c.inner.Listen(l)
			}
			return v, err
		}}},
	{"the backlog is not limited", []string{"listen/a full backlog refuses"},
		mutation{listen: func(c *wctx, l verbs.ListenConfig) (verbs.Listener, error) {
			l.Backlog = 1000
			return c.inner.Listen(l)
		}}},
	{"a second answer succeeds", []string{"listen/a request is answered once", "listen/of several answers at once one takes effect"},
		mutation{request: func(r verbs.ConnRequest) verbs.ConnRequest { return stubborn{r} }}},
	{"a request mixes up its ends", []string{"listen/a request names both ends"},
		mutation{request: func(r verbs.ConnRequest) verbs.ConnRequest { return wrongEnds{r} }}},
	{"a request mixes up the depths", []string{"connect/read depths are agreed on"},
		mutation{request: func(r verbs.ConnRequest) verbs.ConnRequest { return wrongDepths{r} }}},
	{"an answer to a question lacks the key", []string{"question/a UD QP learns where the QP behind a port takes datagrams, and the other way around"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			ev.RemoteQKey = 0
			q.in.Conn(ev)
		}}},
	{"a question is taken for a request", []string{"question/a question is not a request for a connection"},
		mutation{request: func(r verbs.ConnRequest) verbs.ConnRequest { return notUD{r} }}},
	{"a question that is dropped is not told of", []string{"question/a question ends with its QP"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			if ev.Kind != verbs.ConnAborted {
				q.in.Conn(ev)
			}
		}}},
	{"private data loses its last byte", []string{"connect/private data of every size goes both ways", "connect/a rejection brings its private data"},
		mutation{conn: private(func(b []byte) []byte { return b[:max(0, len(b)-1)] })}},
	{"private data has rubbish behind it", []string{"connect/private data of every size goes both ways"},
		mutation{conn: private(func(b []byte) []byte { return append(slices.Clone(b), 1) })}},
	{"established comes twice", []string{"connect/a connection is established once on each side"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			q.in.Conn(ev)
			if ev.Kind == verbs.ConnEstablished {
				q.in.Conn(ev)
			}
		}}},
	{"a rejection is a refusal", []string{"connect/a rejection brings its private data"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			if ev.Kind == verbs.ConnRejected {
				ev.Kind = verbs.ConnRefused
			}
			q.in.Conn(ev)
		}}},
	{"a refusal is a rejection", []string{"connect/a refusal is told from a rejection", "connect/nobody listens"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			if ev.Kind == verbs.ConnRefused {
				ev.Kind = verbs.ConnRejected
			}
			q.in.Conn(ev)
		}}},
	{"a set-up never times out", []string{"connect/a set-up that is not answered times out"},
		mutation{connect: func(q *wqp, p verbs.ConnParams) error {
			p.Timeout = 0
			return q.inner.Connect(p)
		}}},
	{"a set-up times out at once", []string{"connect/a set-up that is not answered times out"},
		mutation{connect: func(q *wqp, p verbs.ConnParams) error {
			p.Timeout /= 1000
			return q.inner.Connect(p)
		}}},
	{"depths are what each side wished", []string{"connect/read depths are agreed on"},
		mutation{
			connect: func(q *wqp, p verbs.ConnParams) error {
				q.n.Store(int64(p.ReadsOut))
				return q.inner.Connect(p)
			},
			conn: func(q *wqp, ev verbs.ConnEvent) {
				if n := int(q.n.Load()); n > 0 {
					ev.ReadsOut = n
				}
				q.in.Conn(ev)
			},
		}},
	{"the end comes twice", []string{"disconnect/an abrupt Disconnect ends both sides", "disconnect/an abrupt Disconnect against an abrupt Disconnect ends a connection once"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			q.in.Conn(ev)
			if ev.Kind.Terminal() {
				q.in.Conn(ev)
			}
		}}},
	{"the end is not told", []string{"disconnect/an abrupt Disconnect ends both sides", "disconnect/a peer that vanishes ends the connection"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			if !ev.Kind.Terminal() {
				q.in.Conn(ev)
			}
		}}},
	{"graceful is abrupt", []string{"disconnect/a graceful Disconnect waits for requests that wait"},
		mutation{disconnect: func(q *wqp, _ bool) error { return q.inner.Disconnect(false) }}},
	{"abrupt is graceful", []string{"disconnect/a graceful Disconnect can be made abrupt", "flush/everything outstanding flushes by an abrupt Disconnect"},
		mutation{disconnect: func(q *wqp, _ bool) error { return q.inner.Disconnect(true) }}},

	// Removal.
	{"removal is not announced", []string{"removal/removal is announced once to each instance"},
		mutation{async: func(c *wctx, ev verbs.AsyncEvent) {
			if ev.Kind != verbs.AsyncDeviceFatal {
				c.async(ev)
			}
		}}},
	{"removal shows as a wish of the peer", []string{"removal/removal breaks connections and flushes on both sides"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			if ev.Kind == verbs.ConnBroken {
				ev.Kind = verbs.ConnDisconnected
			}
			q.in.Conn(ev)
		}}},

	// Callbacks and Close.
	{"Destroy waits for the callback", []string{"callback/Destroy does not wait for a callback in progress", "callback/Conn may destroy its QP when it is established"},
		mutation{
			conn: func(q *wqp, ev verbs.ConnEvent) {
				q.mu.Lock()
				defer q.mu.Unlock()
				q.in.Conn(ev)
			},
			destroy: func(q *wqp) error {
				q.mu.Lock()
				defer q.mu.Unlock()
				return q.inner.Destroy()
			},
		}},
	{"posts wait for notify", []string{"callback/notify may poll, arm and post"},
		mutation{
			notify: func(c *wcq) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.notify()
			},
			arm: func(c *wcq, k verbs.ArmKind) bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.inner.Arm(k)
			},
		}},
	{"Close leaves a goroutine", []string{"close/an instance leaves no goroutine behind"},
		mutation{close: func(c *wctx) error {
			go func() { select {} }()
			return c.inner.Close()
		}}},
	{"Close leaves the connections up", []string{"disconnect/a peer that vanishes ends the connection", "close/memory is not touched when Close has returned"},
		mutation{close: func(c *wctx) error { return nil }}},
	{"a completion in a thousand is lost", []string{"stress/several goroutines post to one QP and poll one CQ", "stress/several QPs drain one SRQ"},
		mutation{poll: each(func(c *wcq, _ *verbs.Completion) bool { return c.n.Add(1)%100 != 0 })}},
}

// notUD hides that a request is a UD QP's question.
type notUD struct{ verbs.ConnRequest }

func (notUD) RemoteQP() (qpn, qkey uint32, ud bool) { return 0, 0, false }

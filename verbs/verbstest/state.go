package verbstest

import (
	"fmt"

	"kdapl/verbs"
)

var stateRules = []rule{
	{"calls on a QP in Reset", 0, inState(inReset, table{"PostSend": no, "PostRecv": no, "Initialized": yes, "RTS": no, "Error": no, "Reset": yes, "Connect": no, "Accept": no, "Disconnect": no})},
	{"calls on a QP in Initialized", 0, inState(inInitialized, table{"PostSend": no, "PostRecv": yes, "Initialized": no, "RTS": no, "Error": yes, "Reset": yes, "Connect": yes, "Accept": yes, "Disconnect": no})},
	{"calls on a QP that connects", 0, inState(inConnecting, table{"PostSend": no, "PostRecv": yes, "Initialized": no, "RTS": no, "Error": yes, "Reset": yes, "Connect": no, "Accept": no, "Disconnect": yes})},
	{"calls on a QP in RTS", 0, inState(inRTS, table{"PostSend": yes, "PostRecv": yes, "Initialized": no, "RTS": no, "Error": yes, "Reset": yes, "Connect": no, "Accept": no, "Disconnect": yes})},
	{"calls on a QP that drains", 0, inState(inSQD, table{"PostSend": no, "PostRecv": yes, "Initialized": no, "RTS": no, "Error": yes, "Reset": yes, "Connect": no, "Accept": no, "Disconnect": yes})},
	{"calls on a QP in Error that was connected", 0, inState(inError, table{"PostSend": yes, "PostRecv": yes, "Initialized": no, "RTS": no, "Error": yes, "Reset": yes, "Connect": no, "Accept": no, "Disconnect": no})},
	{"calls on a QP in Error that was never connected", 0, inState(inErrorEarly, table{"PostSend": yes, "PostRecv": yes, "Initialized": no, "RTS": no, "Error": yes, "Reset": yes, "Connect": no, "Accept": no, "Disconnect": no})},
	{"a successful Modify changes the state at once", 0, modifyAtOnce},
	{"a connection goes through its states", 0, connectionStates},
	{"a QP whose set-up failed is in Error", 0, failedSetUpState},
	{"a list beyond the state is refused as a whole", 0, refusedAsAWhole},
}

// outcome says whether a call is allowed.
type outcome bool

const (
	yes outcome = true
	no  outcome = false
)

// table names the outcome of each call in a state.
type table map[string]outcome

// stateCalls are the calls. Each returns the number of requests taken, if any, and
// the error.
var stateCalls = map[string]func(e *env, q *qp) (int, error){
	"PostSend":    func(e *env, q *qp) (int, error) { return q.tryPost(e.send()) },
	"PostRecv":    func(e *env, q *qp) (int, error) { return q.tryRecv(e.recv()) },
	"Initialized": func(e *env, q *qp) (int, error) { return 0, q.tryModify(verbs.QPInitialized) },
	"RTS":         func(e *env, q *qp) (int, error) { return 0, q.tryModify(verbs.QPRTS) },
	"Error":       func(e *env, q *qp) (int, error) { return 0, q.tryModify(verbs.QPError) },
	"Reset":       func(e *env, q *qp) (int, error) { return 0, q.tryModify(verbs.QPReset) },
	"Connect": func(e *env, q *qp) (int, error) {
		l := e.b.listen()
		return 0, q.connect(e.a.params(l.v.Addr(), nil))
	},
	"Accept": func(e *env, q *qp) (int, error) {
		l := e.a.listen()
		active := e.b.ready(conf{})
		e.must(active.connect(e.b.params(l.v.Addr(), nil)), "Connect")
		r := l.next("Connect")
		err := q.accept(r, e.a.params(verbs.Address{}, nil))
		if err != nil {
			// The request is still open.
			other := e.a.ready(conf{})
			e.must(other.accept(r, e.a.params(verbs.Address{}, nil)), "Accept with a QP in Initialized after a refused one")
			active.conn.next("Accept", verbs.ConnEstablished)
			other.conn.next("Accept", verbs.ConnEstablished)
		}
		return 0, err
	},
	"Disconnect": func(e *env, q *qp) (int, error) { return 0, q.v.Disconnect(false) },
}

// The states. Each makes a QP of the active side in that state.
func inReset(e *env) *qp { return e.a.qp(conf{}) }

func inInitialized(e *env) *qp { return e.a.ready(conf{}) }

func inConnecting(e *env) *qp {
	q := e.a.ready(conf{})
	l := e.b.listen()
	e.must(q.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	l.next("Connect")
	return q
}

func inRTS(e *env) *qp {
	q, _ := e.couple()
	return q
}

func inSQD(e *env) *qp {
	if !e.a.stalls() {
		e.Skip("nothing keeps a send of this device outstanding")
	}
	q, _ := e.couple()
	q.post(e.send())
	e.must(q.v.Disconnect(true), "Disconnect")
	q.state(verbs.QPSQD)
	return q
}

func inError(e *env) *qp {
	a, b := e.couple()
	e.disconnect(a, b, false)
	a.state(verbs.QPError)
	return a
}

func inErrorEarly(e *env) *qp {
	q := e.a.ready(conf{})
	q.modify(verbs.QPError)
	return q
}

// inState checks the table of a state, with a fresh QP for each call.
func inState(enter func(*env) *qp, want table) func(*env) {
	return func(e *env) {
		for name, call := range stateCalls {
			allowed, ok := want[name]
			if !ok {
				e.Fatalf("no outcome of %s", name)
			}
			q := enter(e)
			before := q.v.State()
			what := fmt.Sprintf("%s in %v", name, before)
			n, err := call(e, q)
			switch {
			case bool(allowed) && err != nil:
				e.Errorf("%s: %v", what, err)
			case !bool(allowed):
				e.refused(err, what, verbs.ErrState)
				if n != 0 {
					e.Errorf("%s: %d requests taken", what, n)
				}
				if after := q.v.State(); after != before {
					e.Errorf("%s was refused and left the QP in %v", what, after)
				}
			}
			q.destroy()
		}
		// These moves belong to the device.
		q := enter(e)
		for _, to := range []verbs.QPState{verbs.QPRTR, verbs.QPSQD, 99} {
			before := q.v.State()
			e.refused(q.v.Modify(to), fmt.Sprintf("Modify from %v to %v", before, to), verbs.ErrState, verbs.ErrInvalid)
			if after := q.v.State(); after != before {
				e.Errorf("a refused Modify left the QP in %v", after)
			}
		}
	}
}

func modifyAtOnce(e *env) {
	q := e.a.qp(conf{})
	for _, to := range []verbs.QPState{
		verbs.QPInitialized, verbs.QPReset, verbs.QPReset, verbs.QPInitialized, verbs.QPError, verbs.QPError,
		verbs.QPReset, verbs.QPInitialized,
	} {
		q.modify(to)
		if got := q.v.State(); got != to {
			e.Errorf("after Modify to %v the QP is in %v", to, got)
		}
	}
	a, b := e.couple()
	a.modify(verbs.QPError)
	if got := a.v.State(); got != verbs.QPError {
		e.Errorf("after Modify to Error the QP is in %v", got)
	}
	b.modify(verbs.QPReset)
	if got := b.v.State(); got != verbs.QPReset {
		e.Errorf("after Modify to Reset the QP is in %v", got)
	}
}

func connectionStates(e *env) {
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	l := e.b.listen()
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	r := l.next("Connect")
	if s := a.v.State(); s != verbs.QPInitialized && s != verbs.QPRTR {
		e.Errorf("a QP that connects is in %v", s)
	}
	e.must(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept")
	a.conn.next("Connect", verbs.ConnEstablished)
	b.conn.next("Accept", verbs.ConnEstablished)
	a.state(verbs.QPRTS)
	b.state(verbs.QPRTS)
	e.must(a.v.Disconnect(true), "Disconnect")
	a.conn.next("Disconnect", verbs.ConnDisconnected)
	b.conn.next("the peer's Disconnect", verbs.ConnDisconnected)
	a.state(verbs.QPError)
	b.state(verbs.QPError)
}

func failedSetUpState(e *env) {
	a := e.a.ready(conf{})
	a.recv(e.recv())
	l := e.b.listen()
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	e.must(l.next("Connect").Reject(nil), "Reject")
	a.conn.next("Reject", verbs.ConnRejected)
	a.state(verbs.QPError)
	for _, c := range a.rcq.untilMark(a, true, "Reject") {
		a.failed(c, "a receive of a set-up that failed", verbs.StatusFlushed)
	}
	if rest := a.scq.untilMark(a, false, "Reject"); len(rest) != 0 {
		e.Errorf("sends that were never posted: %v", rest)
	}
}

func refusedAsAWhole(e *env) {
	q := e.a.ready(conf{})
	if n, err := q.tryPost(e.send(), e.send(), e.send()); n != 0 {
		e.Errorf("PostSend in Initialized took %d: %v", n, err)
	}
	fresh := e.a.qp(conf{})
	if n, err := fresh.tryRecv(e.recv(), e.recv()); n != 0 {
		e.Errorf("PostRecv in Reset took %d: %v", n, err)
	}
}

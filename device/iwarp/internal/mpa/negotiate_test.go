package mpa_test

import (
	"testing"

	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rddp"
	"kdapl/device/iwarp/internal/wiretest"

	"pgregory.net/rapid"
)

const none = mpa.NotNegotiated

func enhanced(e mpa.Enhanced) mpa.Header {
	return mpa.Header{Flags: mpa.FlagEnhanced, Rev: 2, Enhanced: e}
}

// Given what siw is configured with (depths up to 128 as the peer asks, CRC by
// module parameter, one RTR kind), the negotiation gives siw's own Replies.
func TestAnswerGivesTheKernelsReplies(t *testing.T) {
	for _, s := range wiretest.MPA(t) {
		req, _, err := mpa.ParseStartup(s.ToServer.Bytes, mpa.Request)
		if err != nil {
			t.Fatal(err)
		}
		rep, _, err := mpa.ParseStartup(s.ToClient.Bytes, mpa.Reply)
		if err != nil {
			t.Fatal(err)
		}
		siw := mpa.Local{Rev: 2, CRC: s.CRC, RTR: mpa.RTRWrite, ORD: 128, MaxIRD: 128}
		h, r, err := siw.Answer(req.Header())
		if err != nil || h != rep.Header() {
			t.Errorf("%s: %+v (%v), want %+v", s.Capture, h, err, rep.Header())
		}
		if r.CRC != s.CRC {
			t.Errorf("%s: CRC %v", s.Capture, r.CRC)
		}
		c, err := siw.Conclude(req.Header(), rep.Header())
		if err != nil || c.CRC != s.CRC || c.Rev != req.Rev() || (c.RTR != 0) != (s.Capture == "siw-p2p-rping") {
			t.Errorf("%s: %+v, %v", s.Capture, c, err)
		}
	}
}

func TestResponderDepthsFollowRFC6581Section91(t *testing.T) {
	local := mpa.Local{Rev: 2, RTR: mpa.RTRWrite, IRD: 4, ORD: 6, MaxIRD: 10}
	for _, c := range []struct {
		name           string
		reqIRD, reqORD uint16
		ird, ord       uint16 // in force at the responder
		repIRD, repORD uint16
	}{
		{"enough on both sides", 8, 3, 4, 6, 4, 6},
		{"IRD is raised to the initiator's ORD", 8, 7, 7, 6, 7, 6},
		{"IRD is raised to its limit and says so", 8, 12, 10, 6, 10, 6},
		{"ORD is lowered to the initiator's IRD", 2, 3, 4, 2, 4, 2},
		{"no inbound reads at the initiator", 0, 0, 4, 0, 4, 0},
		{"ORD left to the ULP: own IRD kept", 8, none, 4, 6, none, 6},
		{"IRD left to the ULP: own ORD kept", none, 3, 4, 6, 4, none},
		{"both left to the ULP", none, none, 4, 6, none, none},
	} {
		rep, r, err := local.Answer(enhanced(mpa.Enhanced{IRD: c.reqIRD, ORD: c.reqORD}))
		if err != nil || r.IRD != c.ird || r.ORD != c.ord || rep.Enhanced.IRD != c.repIRD || rep.Enhanced.ORD != c.repORD {
			t.Errorf("%s: %+v %+v %v", c.name, rep.Enhanced, r, err)
		}
		if r.PeerIRD != c.reqIRD || r.PeerORD != c.reqORD {
			t.Errorf("%s: the ULP is told %d, %d", c.name, r.PeerIRD, r.PeerORD)
		}
	}
}

func TestResponderThatNeedsMoreReadsRejectsAndNamesThem(t *testing.T) {
	local := mpa.Local{Rev: 2, RTR: mpa.RTRWrite, IRD: 1, ORD: 6, RequireORD: true}
	rep, r, err := local.Answer(enhanced(mpa.Enhanced{IRD: 5, ORD: 1}))
	if err != mpa.ErrInsufficientIRD || rep.Flags != mpa.FlagEnhanced|mpa.FlagReject || rep.Enhanced.ORD != 6 || r.PeerIRD != 5 {
		t.Errorf("%+v %+v %v", rep, r, err)
	}
	if code, _ := rddp.CodeOf(err); code != 0x2006 || !code.Sendable() {
		t.Errorf("code %v", code)
	}
	if rep, _, err := local.Answer(enhanced(mpa.Enhanced{IRD: none, ORD: 1})); err != nil || rep.Flags&mpa.FlagReject != 0 {
		t.Errorf("IRD left to the ULP: %+v, %v", rep, err)
	}
}

func TestInitiatorDepthsFollowRFC6581Section91(t *testing.T) {
	local := mpa.Local{Rev: 2, IRD: 4, ORD: 6, MaxIRD: 10}
	for _, c := range []struct {
		name           string
		repIRD, repORD uint16
		ird, ord       uint16
		err            error
	}{
		{"as asked", 6, 4, 4, 6, nil},
		{"ORD at most the responder's IRD", 2, 4, 4, 2, nil},
		{"ORD not above its own wish", 100, 4, 4, 6, nil},
		{"IRD at least the responder's ORD", 6, 9, 9, 6, nil},
		{"IRD cannot be had", 6, 11, 11, 6, mpa.ErrInsufficientIRD},
		{"IRD left to the ULP", none, 4, 4, 6, nil},
		{"ORD left to the ULP", 3, none, 4, 3, nil},
	} {
		r, err := local.Conclude(local.Request(), enhanced(mpa.Enhanced{IRD: c.repIRD, ORD: c.repORD}))
		if err != c.err || r.IRD != c.ird || r.ORD != c.ord || r.PeerIRD != c.repIRD || r.PeerORD != c.repORD {
			t.Errorf("%s: %+v %v", c.name, r, err)
		}
	}
	local.LeaveDepths = true
	if q := local.Request().Enhanced; q.IRD != none || q.ORD != none {
		t.Errorf("depths left to the ULP: %+v", q)
	}
	if r, err := local.Conclude(local.Request(), enhanced(mpa.Enhanced{IRD: 1, ORD: 128})); err != nil || r.IRD != 4 || r.ORD != 6 {
		t.Errorf("depths left to the ULP, numbers in the Reply: %+v %v", r, err)
	}
}

func TestResponderNamesRTRKindsByRFC6581Section92(t *testing.T) {
	const s, w, r = mpa.RTRSend, mpa.RTRWrite, mpa.RTRRead
	for _, c := range []struct {
		name                 string
		offered, local, want mpa.RTR
		err                  error
	}{
		{"every offered kind that is understood", s | w | r, w | r, w | r, nil},
		{"not more than was offered", w, s | w | r, w, nil},
		{"none matches: what is understood", s, w | r, w | r, nil},
		{"none offered: what is understood", 0, r, r, nil},
		{"nothing understood", w | r, 0, 0, mpa.ErrNoRTR},
	} {
		local := mpa.Local{Rev: 2, RTR: c.local}
		rep, res, err := local.Answer(enhanced(mpa.Enhanced{PeerToPeer: true, RTR: c.offered, IRD: 1, ORD: 0}))
		if err != c.err || res.RTR != c.want || rep.Enhanced.RTR != c.want || !rep.Enhanced.PeerToPeer {
			t.Errorf("%s: %+v %+v %v", c.name, rep, res, err)
		}
		if want := (c.want&r != 0); (res.IRD == 1) != want || (rep.Enhanced.IRD == 1) != want {
			t.Errorf("%s: a Read as RTR needs IRD 1: %+v", c.name, res)
		}
		// A=0: the control flags are 0 and the offer is ignored.
		rep, res, err = local.Answer(enhanced(mpa.Enhanced{RTR: c.offered}))
		if err != nil || rep.Enhanced.RTR != 0 || rep.Enhanced.PeerToPeer || res.RTR != 0 {
			t.Errorf("%s, A=0: %+v %+v %v", c.name, rep, res, err)
		}
	}
}

func TestInitiatorSendsExactlyOneNamedRTR(t *testing.T) {
	const s, w, r = mpa.RTRSend, mpa.RTRWrite, mpa.RTRRead
	for _, c := range []struct {
		name  string
		local mpa.RTR
		reply mpa.Enhanced
		want  mpa.RTR
		err   error
	}{
		{"a Write before all", s | w | r, mpa.Enhanced{PeerToPeer: true, RTR: s | w | r, IRD: 1}, w, nil},
		{"a Read if no Write", w | r, mpa.Enhanced{PeerToPeer: true, RTR: s | r, IRD: 1}, r, nil},
		{"no Read into a queue of 0", s | r, mpa.Enhanced{PeerToPeer: true, RTR: s | r, IRD: 0}, s, nil},
		{"only a Read, and a queue of 0", r, mpa.Enhanced{PeerToPeer: true, RTR: r, IRD: 0}, 0, mpa.ErrNoRTR},
		{"a Send last", s | w, mpa.Enhanced{PeerToPeer: true, RTR: s | r, IRD: 1}, s, nil},
		{"none in common", w | r, mpa.Enhanced{PeerToPeer: true, RTR: s, IRD: 1}, 0, mpa.ErrNoRTR},
		{"none named", w | r, mpa.Enhanced{PeerToPeer: true, IRD: 1}, 0, mpa.ErrNoRTR},
		{"A=0 in the Reply makes its flags void", w | r, mpa.Enhanced{RTR: w | r, IRD: 1}, 0, mpa.ErrNoRTR},
	} {
		local := mpa.Local{Rev: 2, PeerToPeer: true, RTR: c.local}
		res, err := local.Conclude(local.Request(), enhanced(c.reply))
		if err != c.err || res.RTR != c.want {
			t.Errorf("%s: %+v %v", c.name, res, err)
		}
	}
	if code, _ := rddp.CodeOf(mpa.ErrNoRTR); code != 0x2007 || !code.Sendable() {
		t.Errorf("code %v", code)
	}
	unasked := mpa.Local{Rev: 2, RTR: w}
	if res, err := unasked.Conclude(unasked.Request(), enhanced(mpa.Enhanced{PeerToPeer: true, RTR: w, IRD: 1})); err != nil || res.RTR != 0 {
		t.Errorf("A=1 not asked for: %+v %v", res, err)
	}
	onlyRead := mpa.Local{Rev: 2, PeerToPeer: true, RTR: r}
	if q := onlyRead.Request().Enhanced; q.ORD != 1 {
		t.Errorf("only a Read to offer, but ORD %d", q.ORD)
	}
}

// RFC 5044 section 7.1.1: C=1 in either frame turns CRCs on for both directions;
// M says what its own sender wants to receive.
func TestFlagsAreNegotiatedByRFC5044(t *testing.T) {
	for bits := range 64 {
		on := func(i int) bool { return bits>>i&1 == 1 }
		ini := mpa.Local{Rev: 2, CRC: on(0), Markers: on(1), GSO: on(2)}
		res := mpa.Local{Rev: 2, CRC: on(3), Markers: on(4), GSO: on(5), RTR: mpa.RTRWrite}
		rep, r, err := res.Answer(ini.Request())
		if err != nil {
			t.Fatal(err)
		}
		i, err := ini.Conclude(ini.Request(), rep)
		if err != nil {
			t.Fatal(err)
		}
		if crc := on(0) || on(3); i.CRC != crc || r.CRC != crc || rep.Flags&mpa.FlagCRC != 0 != crc {
			t.Errorf("%06b: CRC %v, %v, Reply %02x", bits, i.CRC, r.CRC, rep.Flags)
		}
		if gso := on(2) && on(5); i.GSO != gso || r.GSO != gso {
			t.Errorf("%06b: GSO %v, %v", bits, i.GSO, r.GSO)
		}
		if i.ReceiveMarkers != on(1) || r.SendMarkers != on(1) || r.ReceiveMarkers != on(4) || i.SendMarkers != on(4) {
			t.Errorf("%06b: markers %+v, %+v", bits, i, r)
		}
		if rep.Flags&(mpa.FlagReject|7) != 0 {
			t.Errorf("%06b: Reply flags %02x", bits, rep.Flags)
		}
	}
	// Reserved bits and R of a Request are never echoed.
	rep, _, err := mpa.Local{Rev: 2, RTR: mpa.RTRWrite}.Answer(mpa.Header{Flags: 0x2F, Rev: 1})
	if err != nil || rep.Flags != 0 {
		t.Errorf("Reply flags %02x, %v", rep.Flags, err)
	}
}

func TestRevisions(t *testing.T) {
	plain := func(rev uint8) mpa.Header { return mpa.Header{Rev: rev} }
	two, one := mpa.Local{Rev: 2, RTR: mpa.RTRWrite, IRD: 3, ORD: 2}, mpa.Local{Rev: 1, IRD: 3, ORD: 2}

	for rev, want := range map[uint8]error{0: mpa.ErrRevision, 1: nil, 2: nil, 3: mpa.ErrRevision, 255: mpa.ErrRevision} {
		rep, r, err := two.Answer(plain(rev))
		if err != want || err == nil && (rep != plain(rev) || r.Enhanced || r.IRD != 3 || r.ORD != 2 || r.PeerIRD != none || r.PeerORD != none) {
			t.Errorf("Request of revision %d: %+v %+v %v", rev, rep, r, err)
		}
		if _, ok := two.Reject(plain(rev)); ok != (want == nil) {
			t.Errorf("Request of revision %d: rejected by a Reply: %v", rev, ok)
		}
	}
	if _, _, err := one.Answer(two.Request()); err != mpa.ErrRevision {
		t.Errorf("a side held to revision 1 answers a Request of revision 2: %v", err)
	}
	if q := one.Request(); q != plain(1) {
		t.Errorf("Request of revision 1: %+v", q)
	}
	// The initiator's side.
	for _, c := range []struct {
		name     string
		req, rep mpa.Header
		want     error
	}{
		{"1 to 1", plain(1), plain(1), nil},
		{"0 to 1", plain(1), plain(0), mpa.ErrRevision},
		{"2 to 1", plain(1), plain(2), mpa.ErrRevision},
		{"plain 1 to plain 2", plain(2), plain(1), nil},
		{"plain to enhanced", two.Request(), plain(2), mpa.ErrEnhancedReply},
		{"enhanced to plain", plain(2), enhanced(mpa.Enhanced{}), mpa.ErrEnhancedReply},
		{"S in revision 1 means nothing", plain(1), mpa.Header{Flags: mpa.FlagEnhanced, Rev: 1}, nil},
		{"plain rejection of an enhanced Request", two.Request(), mpa.Header{Flags: mpa.FlagReject, Rev: 2}, mpa.ErrRejected},
	} {
		r, err := two.Conclude(c.req, c.rep)
		if err != c.want || err == nil && r.Rev != c.rep.Rev {
			t.Errorf("%s: %+v %v", c.name, r, err)
		}
	}
}

func TestRejectionCarriesTheDepthsBothWays(t *testing.T) {
	ini := mpa.Local{Rev: 2, CRC: true, PeerToPeer: true, RTR: mpa.RTRWrite, IRD: 5, ORD: 7}
	res := mpa.Local{Rev: 2, RTR: mpa.RTRWrite | mpa.RTRRead, IRD: 2, ORD: 9}
	rep, ok := res.Reject(ini.Request())
	want := mpa.Header{Flags: mpa.FlagCRC | mpa.FlagReject | mpa.FlagEnhanced, Rev: 2,
		Enhanced: mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRWrite, IRD: 2, ORD: 5}}
	if !ok || rep != want {
		t.Errorf("%+v, want %+v", rep, want)
	}
	r, err := ini.Conclude(ini.Request(), rep)
	if err != mpa.ErrRejected || r.PeerIRD != 2 || r.PeerORD != 5 {
		t.Errorf("%+v %v", r, err)
	}
	if _, ok := rddp.CodeOf(err); ok {
		t.Error("a rejection is no violation")
	}
}

func drawLocal(t *rapid.T, name string) mpa.Local {
	depth := rapid.OneOf(rapid.Uint16Range(0, 4), rapid.Uint16())
	return mpa.Local{
		Rev: rapid.Uint8Range(1, 2).Draw(t, name+".Rev"),
		CRC: rapid.Bool().Draw(t, name+".CRC"), Markers: rapid.Bool().Draw(t, name+".Markers"),
		GSO: rapid.Bool().Draw(t, name+".GSO"), PeerToPeer: rapid.Bool().Draw(t, name+".PeerToPeer"),
		RTR: mpa.RTR(rapid.IntRange(0, 7).Draw(t, name+".RTR")),
		IRD: depth.Draw(t, name+".IRD"), ORD: depth.Draw(t, name+".ORD"), MaxIRD: depth.Draw(t, name+".MaxIRD"),
		RequireORD: rapid.Bool().Draw(t, name+".RequireORD"), LeaveDepths: rapid.Bool().Draw(t, name+".LeaveDepths"),
	}
}

// Whatever two sides want: if both take the connection, they mean the same by it,
// and no side has more Reads outstanding than the other takes.
func TestTwoSidesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ini, res := drawLocal(t, "initiator"), drawLocal(t, "responder")
		q := ini.Request()
		rep, r, err := res.Answer(q)
		if err != nil {
			if wants := err == mpa.ErrRevision; wants != (rep.Flags&mpa.FlagReject == 0) || wants != (ini.Rev > res.Rev) {
				t.Fatalf("%+v %v", rep, err)
			}
			return
		}
		i, err := ini.Conclude(q, rep)
		if err != nil {
			if err == mpa.ErrNoRTR && ini.PeerToPeer && ini.RTR&res.RTR == 0 {
				return
			}
			t.Fatalf("the Reply %+v is refused: %v", rep, err)
		}
		if i.Rev != r.Rev || i.CRC != r.CRC || i.GSO != r.GSO || i.SendMarkers != r.ReceiveMarkers || i.ReceiveMarkers != r.SendMarkers || i.Enhanced != r.Enhanced {
			t.Fatalf("%+v and %+v", i, r)
		}
		if (i.RTR != 0) != (i.Enhanced && ini.PeerToPeer) || i.RTR&r.RTR != i.RTR || i.RTR&(i.RTR-1) != 0 {
			t.Fatalf("RTR %v of %v", i.RTR, r.RTR)
		}
		if i.Enhanced && !ini.LeaveDepths {
			if i.ORD > r.IRD || r.ORD > i.IRD {
				t.Fatalf("initiator %+v, responder %+v", i, r)
			}
			if i.RTR == mpa.RTRRead && r.IRD == 0 {
				t.Fatal("a Read as RTR into no queue")
			}
		}
		if i.IRD > mpa.MaxDepth || r.IRD > mpa.MaxDepth || i.ORD > max(ini.ORD, 1) || r.ORD > res.ORD {
			t.Fatalf("%+v %+v", i, r)
		}
	})
}

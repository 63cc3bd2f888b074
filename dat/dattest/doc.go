// Package dattest is the conformance suite of package dat: one named subtest for each rule of DAT that an adapter must
// keep, checked through the DAT API alone. An adapter's own tests call [Run] with a function that says how its IAs are
// opened:
//
//	func TestDAT(t *testing.T) {
//		d := mydevice.New(mydevice.Config{})
//		open := func(cfg dat.Config) (*dat.IA, error) { return dat.Open(d, cfg) }
//		dattest.Run(t, func(testing.TB) dattest.Adapters {
//			return dattest.Adapters{Active: open, Passive: open}
//		})
//	}
//
// One rule at a time: go test -run 'TestDAT/rmr/a_bind_of_no_bytes_unbinds'. With -short the repetitions are fewer, the
// rules are the same.
//
// The suite branches on the attributes of the IAs and on nothing else. Rules about what an adapter says it lacks are
// skipped, and that it refuses such calls with MODEL_NOT_SUPPORTED is checked in their place. Where a successful send
// or RDMA write means that the source may be reused only (KDAPL_COMPLETION_MEANING), a peer's refusal is expected as the
// end of the connection; where there is no receiver-not-ready (KDAPL_RECEIVER_NOT_READY), receives are posted before
// their messages.
//
// Under every rule runs an account: when it ends, each operation that was posted on an end point must have
// completed once, and both IAs must close.
//
// An adapter may do its work whenever it likes: every wait has a deadline that a working adapter never reaches.
// Where a rule says that something must not happen it looks for a while. No rule sleeps.
package dattest

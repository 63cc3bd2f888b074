// Package dat is kDAPL 2.0, the kernel Direct Access Programming Library of the DAT
// Collaborative, for Go programs in user space, with what uDAPL 2.0 adds for threads that
// wait.
//
// An [IA] is an open interface adapter ([Open]; package registry opens one by name). It
// makes protection zones ([PZ]), which hold memory regions ([LMR]), windows onto them ([RMR]), shared
// receive queues ([SRQ]) and end points ([EP]); service points ([PSP], [RSP], [CSP]) that take connection
// requests ([CR]); event dispatchers ([EVD]), which queue completions, connection and software events, and
// call the consumer up; and notification objects ([CNO]) to wait for several of them. Atomics, immediate data
// and datagrams ([EP.PostSendUD]) are those of DAT's InfiniBand extension.
// Each type and method is named after its DAT call without the prefix; its document names the
// call. Errors are of type [*Error] and answer to errors.Is with DAT's types and subtypes.
//
// # What blocks
//
// [EVD.Wait], [EVD.Events], [EVD.Teardown], [CNO.Wait] and [IA.Close] wait, and take a context. Nothing
// else blocks: connect, accept, disconnect and posts return at once and tell by events.
// Posts, dequeues, waits and upcalls allocate nothing.
//
// All methods may be called by several goroutines at once. After an object was freed, its
// methods return INVALID_HANDLE; so do those of nil and of zero values.
//
// # Memory
//
// A region is the consumer's slice, which the LMR keeps alive, or memory that the IA allocates.
// Triplets name parts of it by number and context. From the post until its event is taken the
// memory belongs to the operation. Data that a peer writes may be read after the completion
// of a later receive (or of an RDMA write with immediate data) was taken: placement
// happens before that. Polling memory instead is unsupported under the race detector, except
// for aligned 8-byte words through sync/atomic, which RDMA atomics and 8-byte writes use too.
//
// # Events
//
//   - Each event goes to exactly one dequeue, wait or upcall, in order of arrival.
//   - Each posted operation completes exactly once, unless CompletionSuppress was asked for
//     and it succeeded.
//   - ConnectionEstablished comes before the EP's completions, and the completions of all that was
//     posted in the connection, flushed ones included, before its one ConnectionDisconnected or
//     ConnectionBroken, if they share an EVD. What is posted in StateDisconnected completes flushed
//     after it.
//   - An EVD has room for all operations of the EPs attached to it, so their events cannot
//     overflow; other events use the room that was asked for. What finds none raises
//     AsyncErrorEVDOverflow once; a connection request is refused, and a connection whose
//     ConnectionEstablished cannot be told is ended.
//   - While upcalls or a wait are pending and entitled, nobody stays idle: "empty" includes
//     the adapter's completion queue.
//
// # Upcalls
//
// An EVD with a live policy calls the consumer's function in a goroutine of its own, never in the
// stack of a call of the consumer's and never with a lock held. An upcall is pending from the
// arrival of an event that notifies until the queue is empty.
//
//	UpcallDisable         no new upcall starts; a running one ends; events queue
//	UpcallSingleInstance  while pending: takes the head of the queue and calls up, one at a time
//	UpcallMany            the same, up to Config.MaxUpcalls at once, started in queue order
//	UpcallNotify          one upcall without an event per arming; nothing is taken; modify arms again
//	UpcallTeardown        as Disable, and waits for running upcalls; see EVD.Teardown
//
// [EVD.ModifyUpcall] changes the policy at any time, with events queued or not. Its flag says
// what becomes of the backlog when upcalls are switched on:
//
//	InvocNew    only an event that arrives after the call starts upcalls; the backlog is then
//	            delivered first. As IBTA's Request Completion Notification: enable, then dequeue
//	            until empty one last time.
//	InvocAny    anything queued starts an upcall at once. No last look is needed.
//	InvocEmpty  INVALID_STATE, and no change, while anything is queued (ours).
//
// InvocNew forgets what is queued on a change from a policy that makes no upcalls. From a live policy to the same one
// nothing changes, except that Notify is armed again; and an activation whose upcall runs while the policy becomes live again
// goes on as one that is started then.
//
// Completions posted with CompletionUnsignalled, and unsolicited receives of an EP with
// CompletionSolicitedWait, do not notify: they queue, start nothing, and are delivered in order
// once an activation runs.
//
// In an upcall everything is allowed but waiting for upcalls: [EVD.Teardown] and [IA.Close] return
// INVALID_STATE there, and freeing the own EVD EVD_IN_USE. An upcall that blocks holds up
// its EVD under SingleInstance and Notify, and one of its places under Many. runtime.Goexit in
// an upcall counts as a return; a panic is not recovered.
//
// The two consumers of the discussion of 2005 are examples of [EVD.ModifyUpcall].
package dat

/*
 * Consumers: what a program may do around modify. Each is a thread and an upcall; software events and completions, all
 * notifying, arrive whenever they like. When everything is quiet nothing may lie in the queue.
 *
 * One of these is defined:
 *   DRAIN_THEN_ANY      2005, A: the first upcall disables, a thread drains and then enables with INVOC_ANY
 *   NEW_THEN_POLL       2005, B: the thread enables with INVOC_NEW, then polls one final time while upcalls may run
 *   NEW_THEN_POLL_LOOP  both together: the upcall disables, the thread drains, enables with INVOC_NEW, polls once more
 *   EMPTY_OR_AGAIN      the third voice: enabling over a non-empty queue is an error; the thread drains and tries again
 *   REARM_THEN_POLL     NOTIFY as a verbs consumer uses it: the thread arms again, then polls
 *   POLL_THEN_REARM     NOTIFY the other way round; the policy stays live, so pending remembers
 *   NEW_WITHOUT_POLL    negative: the thread enables with INVOC_NEW and relies on upcalls
 *   POLL_THEN_NEW       negative: the final poll comes before the enabling
 */

#if defined(DRAIN_THEN_ANY) || defined(NEW_THEN_POLL_LOOP) || defined(EMPTY_OR_AGAIN) || defined(POLL_THEN_NEW)
#define DISABLES_IN_UPCALL
#define STARTS_LIVE
#endif

#if defined(REARM_THEN_POLL) || defined(POLL_THEN_REARM)
#define LIVE Notify
#define STARTS_LIVE
#endif

#ifndef LIVE
#define LIVE Single
#endif

#include "evd.pml"

bool wake;                       /* the upcall's word to the thread */
bool changed;                    /* what modify returns in the upcall, which never asks for INVOC_EMPTY */

inline upcall(e) {
#ifdef DISABLES_IN_UPCALL
	modify(Disable, New, changed);
#endif
	wake = true
}

#include "activation.pml"

/* for evd.Drain(): dequeue until QUEUE_EMPTY. */
inline poll() {
	do
	:: dequeue(r, e);
		if
		:: e -> e = 0
		:: else -> break
		fi
	od
}

proctype Consumer() {
	byte r, e;
	bool ok;
#ifdef NEW_THEN_POLL
	modify(LIVE, New, ok);
	poll()
#endif
#ifdef NEW_WITHOUT_POLL
	modify(LIVE, New, ok)
#endif
#ifdef STARTS_LIVE
end:
	do
	:: atomic { wake -> wake = false };
		ok = false;
#ifdef DRAIN_THEN_ANY
		poll();
		modify(LIVE, Any, ok)
#endif
#ifdef NEW_THEN_POLL_LOOP
		poll();
		modify(LIVE, New, ok);
		poll()
#endif
#ifdef POLL_THEN_NEW
		poll();
		modify(LIVE, New, ok)
#endif
#ifdef EMPTY_OR_AGAIN
		do
		:: ok -> break
		:: else -> poll(); modify(LIVE, Empty, ok)
		od
#endif
#ifdef REARM_THEN_POLL
		modify(LIVE, New, ok);
		poll()
#endif
#ifdef POLL_THEN_REARM
		poll();
		modify(LIVE, New, ok)
#endif
	od
#endif
}

#define ALL_TAKEN
#include "sources.pml"

init {
	atomic {
#ifdef STARTS_LIVE
		make(LIVE);
#else
		make(Disable);
#endif
		run Producer(); run Device(); run Consumer()
	}
}

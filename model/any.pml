/*
 * Everything at once: software events, completions, a thread that dequeues, and a controller that makes CHANGES changes
 * of the policy, each to any policy and with any flag. The upcall only takes its event.
 *
 * The policies are DISABLE and one of ONLY_SINGLE, ONLY_NOTIFY, ONLY_MANY, or all of them.
 */

#include "evd.pml"

inline upcall(e) { skip }

#include "activation.pml"

inline somePolicy(p) {
	if
	:: p = Disable
#if !defined(ONLY_NOTIFY) && !defined(ONLY_MANY)
	:: p = Single
#endif
#if !defined(ONLY_SINGLE) && !defined(ONLY_MANY)
	:: p = Notify
#endif
#if !defined(ONLY_SINGLE) && !defined(ONLY_NOTIFY)
	:: p = Many
#endif
	fi
}

inline someFlag(f) {
	if
	:: f = New
	:: f = Any
	:: f = Empty
	fi
}

proctype Controller() {
	byte i;
	mtype p, f;
	bool ok;
	do
	:: i < CHANGES ->
		i++;
		atomic { somePolicy(p); someFlag(f) };
		modify(p, f, ok);
		ok = false
	:: else -> break
	od
}

#include "sources.pml"

init {
	mtype p;
	atomic {
		somePolicy(p);
		make(p);
		run Producer(); run Device(); run Controller();
		run Thread()
#ifdef TWO_THREADS
		; run Thread()
#endif
#ifdef TWO_DEVICES
		; run Device()
#endif
	}
}

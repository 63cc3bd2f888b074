/*
 * Calls from inside an upcall: dequeue, PostSE and modify of its own EVD, while the usual sources are at work.
 * Every one is allowed and none waits for the upcall that makes it. An upcall makes one such call; REENTRIES bounds
 * how many are made in all.
 *   WAITS        instead, an upcall waits for the upcall of the next event, as MANY permits
 */

#ifndef REENTRIES
#define REENTRIES 2
#endif
#ifndef LIVE
#define LIVE Single
#endif

byte budget = REENTRIES;

#include "evd.pml"

#ifdef WAITS
inline upcall(e) {
	/* the upcall of event 1 returns when event 2 has been handed over */
	if
	:: (e & NUMBER) == 1 -> got & bitOf(2)
	:: else
	fi
}
#else
inline upcall(e) {
	byte from, x;
	bool ok;
	if
	:: true
	:: atomic { budget > 0 -> budget-- }; dequeue(from, x)
	:: atomic { budget > 0 -> budget-- }; postSE(x)
	:: atomic { budget > 0 -> budget-- }; modify(Disable, New, ok)
	:: atomic { budget > 0 -> budget-- }; modify(Single, New, ok)
	:: atomic { budget > 0 -> budget-- }; modify(Single, Any, ok)
#ifdef WITH_MANY
	:: atomic { budget > 0 -> budget-- }; modify(Many, Any, ok)
#endif
	fi;
	x = 0;
	ok = false
}
#endif

#include "activation.pml"

#include "sources.pml"

init {
	atomic { make(LIVE); run Producer(); run Device(); run Thread() }
}

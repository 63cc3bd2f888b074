/*
 * The rest of an EVD's life: resize while threads dequeue and upcalls run; Teardown; free. A producer, a device and a
 * thread that dequeues are at work all the time. One of these is defined:
 *   RESIZES          one resize, larger or smaller
 *   TEARS_DOWN       Teardown, then free once the device is detached
 *   TEARS_DOWN_TWICE two threads call Teardown, and a third makes the policy live again meanwhile
 *   FREES            free at any time, without Teardown
 */

#ifndef LIVE
#define LIVE Single
#endif

#if defined(TEARS_DOWN) || defined(TEARS_DOWN_TWICE)
#define TEARDOWNS
#endif

#include "evd.pml"

inline upcall(e) { skip }

#include "activation.pml"

#include "sources.pml"

#ifdef RESIZES
proctype Controller() {
	bool ok;
	if
	:: resize(COMPLETIONS + SOFTROOM + 1, ok)
	:: resize(COMPLETIONS + SOFTROOM - 1, ok)
	fi
}
#endif

#ifdef TEARS_DOWN
proctype Controller() {
	bool ok;
	teardown();
	!attached;
	free(ok);
	assert(ok)                       /* nothing holds a torn down, detached EVD */
}
#endif

#ifdef FREES
proctype Controller() {
	bool ok;
	free(ok)
}
#endif

#ifdef TEARS_DOWN_TWICE
proctype Controller() {
	teardown()
}

proctype Enabler() {
	bool ok;
	modify(LIVE, Any, ok)
}
#endif

init {
	atomic {
		make(LIVE);
		run Producer(); run Device(); run Thread(); run Controller();
#ifdef TEARS_DOWN_TWICE
		run Controller(); run Enabler()
#endif
	}
}

/*
 * What surrounds an EVD in most scenarios: a producer of software events, a device, and a thread that dequeues whenever it
 * likes. Bounds: SOFT events, COMPLETIONS, TAKES calls of dequeue. Two devices stand for two QPs that share the CQ.
 *   SOME_SILENT  a completion may be one that does not notify (UNSIGNALLED, or unsolicited)
 *   OVERNOTIFY   the device may notify although it was not armed
 *   ALL_TAKEN    in the end nothing may lie in the queue, whatever the policy is
 */

#ifndef TAKES
#define TAKES 0
#endif

proctype Producer() {
	byte i, e;
	do
	:: i < SOFT -> i++; postSE(e); e = 0
	:: else -> break
	od
}

byte outstanding;                /* completions that are still to come */

/* The stream is detached with its last completion; the notification may come after that, and after a free. */
proctype Device() {
	byte e;
	bool note;
	do
	:: atomic { outstanding > 0 ->
			outstanding--;
			if
			:: complete(true, e, note)
#ifdef SOME_SILENT
			:: complete(false, e, note)
#endif
			fi;
			attached = outstanding > 0
		};
		if
		:: note -> note = false; notified()
#ifdef OVERNOTIFY
		:: !note -> notified()
#endif
		:: !note
		fi
	:: outstanding == 0 -> break
	od
}

proctype Thread() {
	byte i, r, e;
	do
	:: i < TAKES -> i++; dequeue(r, e); e = 0
	:: else -> break
	od
}

/* The EVD is made with policy p. One that is made with a live policy is armed before anything can feed it. */
inline make(p) {
	length[0] = COMPLETIONS + SOFTROOM;
	policy = p;
#ifndef MUT_NOT_PRIMED
	cqArmed = live(p);
#endif
	armed = live(p);
	notifyArmed = (p == Notify);
	mayNotify = notifyArmed;
	outstanding = COMPLETIONS;
	attached = outstanding > 0
}

active proctype Quiet() {
	timeout ->
	quiet();
#ifdef ALL_TAKEN
	assert(arrivals == claimed)
#endif
}

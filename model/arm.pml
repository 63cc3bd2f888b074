/*
 * Below the EVD: a consumer of a bare CQ that sleeps until the device notifies. Arm is one-shot and covers what arrives
 * after it. One of these is defined:
 *   ARM_THEN_POLL    arm, then poll until empty, then sleep
 *   POLL_ARM_CHECK   poll, arm, and poll again if Arm reports completions; this is what the EVD does
 *   POLL_THEN_ARM    negative: poll until empty, arm, sleep; what Arm reports is ignored
 *   NOT_PRIMED       negative: as POLL_ARM_CHECK, but sleeps first, on a CQ that nobody has armed
 */

#include "queue.pml"

bool fired;                      /* the device has notified since the consumer woke */

active proctype Device() {
	byte i, e;
	bool note;
	for (i : 1 .. COMPLETIONS) {
		complete(true, e, note);
		if
		:: note -> atomic { fired = true; printf("@%d Consumer notify\n", _pid) }
		:: else
		fi
	}
}

inline poll() {
	do
	:: atomic { len(cq) > 0 -> cq?e; claimed++; printf("@%d cq poll: completion %d\n", _pid, e & NUMBER); e = 0 }
	:: atomic { len(cq) == 0 -> printf("@%d cq poll: empty\n", _pid); break }
	od
}

inline sleep() {
	printf("@%d note sleeps\n", _pid);
end:	atomic { fired -> fired = false; printf("@%d note wakes\n", _pid) }
}

active proctype Consumer() {
	byte e;
	bool had;
#ifdef ARM_THEN_POLL
	do
	:: arm(had); poll(); sleep()
	od
#endif
#ifdef POLL_ARM_CHECK
	do
	:: poll();
		arm(had);
		if
		:: had
		:: else -> sleep()
		fi
	od
#endif
#ifdef POLL_THEN_ARM
	do
	:: poll(); arm(had); sleep()
	od
#endif
#ifdef NOT_PRIMED
	sleep();
	do
	:: poll();
		arm(had);
		if
		:: had
		:: else -> break
		fi
	od
#endif
}

active proctype Quiet() {
	timeout -> assert(len(cq) == 0)  /* nobody sleeps while a completion lies there */
}

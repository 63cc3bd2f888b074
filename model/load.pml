/*
 * Load that never ends: whenever there is room, a producer posts. Can a consumer that wants upcalls be refused for ever?
 * FLAG is the flag of its modify. The thread drains the queue before every attempt, as well as it can.
 *
 * A run is judged by its cycles: the label accept_refused marks a refusal, so an acceptance cycle is an execution that
 * is refused again and again without end. Weak fairness is asked for: nobody who can always move is kept from it.
 */

#define ENDLESS
#ifndef FLAG
#define FLAG Empty
#endif

bool accepted;

#include "evd.pml"

inline upcall(e) { skip }

#include "activation.pml"

active proctype Producer() {
	byte e;
	do
	:: accepted -> break              /* what happens afterwards is not the question */
	:: !accepted -> postSE(e); e = 0
	od
}

active proctype Thread() {
	byte r, e;
	bool ok;
	do
	:: dequeue(r, e);
		if
		:: e -> e = 0
		:: else ->
			modify(Single, FLAG, ok);
			if
			:: ok -> accepted = true; break
			:: else ->
accept_refused:	printf("@%d note the consumer is refused\n", _pid)
			fi
		fi
	od
}

init { length[0] = COMPLETIONS + SOFTROOM }

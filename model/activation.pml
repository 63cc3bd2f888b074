/*
 * The activation: a goroutine that begins when there is something to deliver and ends when there is not. The processes
 * below are a pool; each turn of the outer loop is one goroutine. The scenario's upcall(e) runs without the lock; e has no
 * number under NOTIFY, where the upcall carries no event.
 *
 * Under the lock an activation asks what to do. An event it then takes without the lock: its claim carries the generation
 * under which it asked, and fails once that has turned. Under SINGLE it goes on like that until a claim fails.
 *   UNDER_LOCK   the plainer way: each event is taken under the lock, after asking
 *   GOEXIT       the consumer's function may end the goroutine
 *   TEARDOWNS    the scenario calls Teardown, which tells activations that are older than it
 */

#ifndef ACTIVATIONS
#define ACTIVATIONS 1            /* as many as can ever run at once */
#endif

#ifdef TEARDOWNS
/*
 * Activations are numbered as they begin to run. Those with numbers below oldBelow are older than the last Teardown; among
 * those that were started and had not begun any one is as good as another.
 */
byte begun, ended, oldBelow;
byte old;                        /* old activations that have not ended */
byte tears, oldCalls;            /* a property's: calls of Teardown; upcalls that ran at the last one and have not returned */
#ifdef MUT_OLD_UNSEEN
/* an activation looks for later calls of Teardown from when it begins to run, not from when it was started */
#define FIRST_NUMBER tears
#define isOld(n) ((n) != tears)
#else
#define FIRST_NUMBER begun
#define isOld(n) ((n) < oldBelow)
#endif
#else
#define isOld(n) false
#endif

/* The upcalls that may run at once under policy p; unlike cap, no mutation changes it. */
#define limit(p) (((p) == Many) -> MAXUPCALLS : 1)

/* An upcall is decided on; inside an atomic step. */
inline begin() {
	calls++;
	assert(live(policy));                            /* none starts under DISABLE or TEARDOWN */
	assert(calls <= limit(policy));
	assert(!torn && !freed);
#ifdef TEARDOWNS
	at = tears
#endif
}

/* The head of ring r is taken for an upcall, unless the generation has turned or nothing is there: then e is 0. */
inline take(g, r, e) {
	atomic {
		e = 0;
		if
		:: turn == g && ready(r) ->
			assert(cause);                   /* backlog and events that do not notify are no reason for an upcall */
#ifdef MUT_PEEK
			ring[r]?<e>;
			printf("@%d evd looks at event %d\n", _pid, e & NUMBER);
#else
			claim(r, e);
#endif
			begin()
		:: else
		fi
	}
}

/* The upcall. From here on the event is the consumer's. */
inline call(e) {
	atomic {
		if
		:: e & NUMBER ->
			printf("@%d me upcall(event %d)\n", _pid, e & NUMBER);
			deliver(e);
#ifdef IN_ORDER
			assert((e & NUMBER) > lastCalled);
			lastCalled = e & NUMBER
#endif
		:: else -> printf("@%d me upcall(no event)\n", _pid)
		fi
	};
	upcall(e);
	atomic {
		calls--;
		assert(!torn && !freed);
#ifdef TEARDOWNS
		if
		:: at != tears -> oldCalls--
		:: else
		fi;
		at = 0;
#endif
		printf("@%d note the upcall returns\n", _pid)
	}
}

bool busy;                       /* the first of the pool runs; it goes first, since they are all the same */

active [ACTIVATIONS] proctype Activation() {
	byte e, g, r, here;
	mtype p;
	bool out;
#ifdef TEARDOWNS
	byte number, at;
#endif
end:
	do
	:: atomic { started > 0 && (_pid == 0 || busy) ->
			started--;
			busy = busy || _pid == 0
		};
		atomic {
			!locked ->
			locked = true;
			refill();
			arrived();
			staged = 0;                              /* what the refill found must be there to be claimed */
#ifdef TEARDOWNS
			number = FIRST_NUMBER;
			begun++
#endif
		};
		do
		:: atomic {
				here = queued;
				if
				:: here == 0 -> pending = false
				:: else
				fi;
				if
				:: out || isOld(number) || !mayGoOn -> break
				:: else
				fi;
				p = policy;
				g = turn;
				r = cur;
				if
				:: p == Notify ->
					assert(cause || claimed == arrivals);    /* dequeuers may have emptied it by now */
					assert(mayNotify);               /* one for each arming */
					mayNotify = false;
#ifndef MUT_STAYS_ARMED
					notifyArmed = false;
#endif
					e = NOTIFIES;
					begin()
				:: else ->
					if
					:: here > 1 -> start()           /* another one, for the events behind this one */
					:: else
					fi
				fi
			};
#ifdef UNDER_LOCK
			if
			:: p != Notify -> take(g, r, e)
			:: else
			fi;
#endif
			LEAVE(skip);
#ifndef UNDER_LOCK
			if
			:: p != Notify -> take(g, r, e)
			:: else
			fi;
#endif
			do
			:: e == 0 -> break
			:: else ->
				call(e);
#ifdef MUT_PEEK
				if
				:: e & NUMBER -> claim(r, e)
				:: else
				fi;
#endif
				e = 0;
#ifdef GOEXIT
				if
				:: out = true; break
				:: true
				fi;
#endif
#ifndef UNDER_LOCK
				if
				:: p == Single -> take(g, r, e)
				:: else
				fi
#endif
			od;
			atomic {
				!locked ->
				locked = true;
				p = 0;
				g = 0;
				r = 0;
				refill();
				arrived();
				staged = 0
			}
		od;
		atomic {
			running--;
#ifdef TEARDOWNS
			ended++;
			old = old - (isOld(number) -> 1 : 0);
			number = 0;
#endif
			if
			:: running == 0 ->
				turn = 0                                 /* nobody remembers it: fewer states */
#ifdef TEARDOWNS
				; begun = 0; ended = 0; oldBelow = 0
#endif
			:: else
			fi;
			out = false;
			here = 0;
			busy = busy && _pid != 0;
			start()                                          /* another one in its place, if it should not have ended */
		};
		LEAVE(skip)
	od
}

#ifdef TEARDOWNS
/* evd.Teardown: no upcall starts, and the caller waits for the activations that are older. */
inline teardown() {
	enter();
	atomic {
		turnOn(Teardown);
		policy = Teardown;
		notifyArmed = false;
		old = running;
		oldBelow = ended + running;
		tears++;
		oldCalls = calls;
		printf("@%d evd Teardown\n", _pid)
	};
	LEAVE(skip);
	atomic {
#ifndef MUT_TEARDOWN_NO_WAIT
		!locked && old == 0 ->
#endif
		assert(oldCalls == 0);                           /* what ran when it was called has returned */
		torn = (policy == Teardown);
		printf("@%d evd Teardown has returned\n", _pid)
	}
}
#endif

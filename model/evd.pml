/*
 * The event dispatcher: what each call of a consumer, each notification of a device and each activation does, step by
 * step, as package dat does it. What the code does in one atomic operation, or under a lock that nobody else needs, is one
 * atomic step here; everything between two such steps can be interleaved with everything else.
 *
 * A scenario file includes this file, defines upcall(e), the consumer's function, and includes activation.pml.
 * Switches that begin with MUT_ break one rule each; the runner expects every one of them to be caught.
 */

mtype = { Disable, Single, Many, Notify, Teardown,      /* policies */
          New, Any, Empty };                             /* flags of modify */

#define live(p) ((p) == Single || (p) == Many || (p) == Notify)

#ifndef MAXUPCALLS
#define MAXUPCALLS 2             /* MANY: upcalls at once */
#endif
/* The activations that the policy allows. */
#ifdef MUT_TWO_ACTIVATIONS
#define cap(p) (live(p) -> MAXUPCALLS : 0)
#else
#define cap(p) (live(p) -> ((p) == Many -> MAXUPCALLS : 1) : 0)
#endif

bool locked;                     /* the EVD's lock */
mtype policy = Disable;
bool notifyArmed;                /* NOTIFY: an upcall is still due for this arming */
bool pending;                    /* a notifying event, or INVOC_ANY, has asked for an upcall */
byte running;                    /* activations: started, and not yet stopped */
byte started;                    /* activations whose goroutine has not begun to run */
bool armed;                      /* the EVD expects a notification: it has armed, and none came since */
byte turn;                       /* the generation of claims: turned when activations must ask before they go on */
bool attached;                   /* a stream feeds this EVD */

/* What a section under the lock has done so far; 0 outside. */
byte c;
bool had;
bool appended, wasEmpty, notifying;
bool wants;                      /* a dequeuer at an empty ring takes the first completion without the detour */
byte direct;                     /* … this one */

#include "queue.pml"

/* An activation may start, or another one beside those that run. */
#define entitled (pending && running < cap(policy) && (policy != Notify || notifyArmed))
/* A running activation may go on. More may run than the policy allows if it was changed while they ran. */
#define mayGoOn  (pending && running <= cap(policy) && (policy != Notify || notifyArmed))
/* The CQ is to be armed, and is not. */
#define mustArm  (live(policy) && !armed && !freed)

/*
 * The following are parts of atomic steps of the lock's holder. Steps are as long as they can be without hiding an
 * interleaving that matters: what others do without the lock is to take published events and to add to the CQ.
 */

/* Start an activation if one is entitled to run. */
inline start() {
	if
	:: entitled ->
		assert(queued == 0 || cause);    /* backlog and events that do not notify are no reason for an upcall */
		running++;
		started++;
		printf("@%d note an activation is started\n", _pid)
	:: else
	fi
}

/* Append to the ring, which has room. The event is published with others of the section. */
inline append(e) {
	assert(queued < length[cur]);            /* room is reserved for DTOs, and checked for all others */
	if
	:: !appended -> appended = true; wasEmpty = (queued == 0)
	:: else
	fi;
	notifying = notifying || (e & NOTIFIES);
	softQueued = softQueued + ((e & SOFTWARE) -> 1 : 0);
	ring[cur]!e;
	staged++
}

/* Move completions from the CQ to the ring; the first one to a dequeuer who wants it. */
inline refill() {
	do
	:: len(cq) > 0 ->
		pollCQ(c);
		if
		:: wants && !direct -> direct = c; printf("@%d cq takes event %d\n", _pid, c & NUMBER); taken(c)
		:: else -> append(c); printf("@%d cq refill: moves completion %d to the ring\n", _pid, c & NUMBER)
		fi;
		c = 0
	:: len(cq) == 0 -> break
	od
}

/*
 * What was appended asks for upcalls. Dequeuers that do not take the lock cannot clear pending when they take the last
 * event, so what they left behind is cleared when the next event finds the ring empty; and if an activation runs, it must
 * ask before it takes an event that is owed no upcall.
 */
inline arrived() {
	if
	:: appended ->
		if
#ifndef MUT_STALE_PENDING
		:: wasEmpty ->
			pending = false;
#ifndef MUT_NO_TURN_WHEN_EMPTY
			turn = turn + (!notifying && running > 0 -> 1 : 0)
#endif
#endif
		:: else
		fi;
		pending = pending || notifying;
		start();
		appended = false;
		notifying = false;
		wasEmpty = false
	:: else
	fi
}

/* Most sections under the lock begin like this. */
inline enter() {
	atomic { !locked -> locked = true; refill(); arrived() }
}

/*
 * All end like this: arm the CQ, if somebody is to be notified, until nothing is left unseen. What Arm reports has arrived,
 * and nobody else will tell. Then publish and unlock; `last` is done with that.
 */
#define LEAVE(last) \
	do \
	:: atomic { mustArm -> \
		arm(had); \
		if \
		:: had && !IGNORED -> had = false \
		:: else -> armed = true; UNLOCK(last); break \
		fi }; \
		atomic { refill(); arrived() } \
	:: atomic { !mustArm -> UNLOCK(last); break } \
	od

#define UNLOCK(last) last; staged = 0; wants = false; had = false; direct = 0; locked = false

#ifdef MUT_SKIP_RECHECK
#define IGNORED true
#else
#define IGNORED false
#endif

/* ---- what begins such a section ---- */

/* The device's notification: it arrives any time after the completion, also without one. */
inline notified() {
	atomic {
		!locked ->
		locked = true;
		printf("@%d evd notify\n", _pid);
#ifndef MUT_NO_REARM
		armed = false;
#endif
		if
		:: freed
		:: else -> refill(); arrived()
		fi
	};
	LEAVE(skip)
}

/* dat_evd_post_se. `e` is 0 afterwards if there was no room (QUEUE_FULL), or no EVD any more. */
inline postSE(e) {
	atomic {
		!locked ->
		locked = true;
#ifndef MUT_NO_REFILL
		refill();                        /* completions that are already there go first */
#endif
		if
		:: softQueued < length[cur] - COMPLETIONS && !freed ->
			arrive(true, e);
			e = e | SOFTWARE;
			append(e);
			printf("@%d evd PostSE: event %d\n", _pid, e & NUMBER)
		:: else -> e = 0; printf("@%d evd PostSE: no room\n", _pid)
		fi;
		arrived()
	};
	LEAVE(skip)
}

/*
 * dat_evd_dequeue. First without the lock. Then, with it: if the ring is empty, the CQ's first completion is next. The queue
 * is known to be empty if, while nobody could append, the ring was seen empty and after that the CQ too. e is 0 for
 * QUEUE_EMPTY, or if there is no EVD any more.
 */
inline dequeue(r, e) {
	bool more;
#ifdef MUT_EMPTY_AT_TWO_TIMES
	/* a wrong QUEUE_EMPTY is one of a queue that was not empty when the call began, and never became empty */
	byte before;
	atomic { before = (claimed == arrivals -> ALREADY : emptied) };
#endif
	r = cur;
	claim(r, e);
	do
	:: e || freed -> break
	:: !e && !freed ->
		atomic {
			!locked ->
			locked = true;
#ifndef MUT_EMPTY_AT_TWO_TIMES
			more = queued > 0;
#ifdef MUT_DIRECT_OVERTAKES
			wants = true;
#else
			wants = !more;
#endif
#endif
			refill();
#ifndef MUT_EMPTY_AT_TWO_TIMES
			assert(more || direct || freed || claimed == arrivals);  /* QUEUE_EMPTY is true at this instant */
#endif
			arrived()
		};
		LEAVE(e = direct);
		if
		:: e -> break
		:: else -> r = cur; claim(r, e)
		fi;
		if
		:: !e && !more ->
#ifdef MUT_EMPTY_AT_TWO_TIMES
			assert(before == ALREADY || emptied != before);
#endif
			break
		:: else
		fi
	od;
	atomic {
		r = 0;
		more = false;
		if
		:: e -> deliver(e)
		:: else -> printf("@%d evd dequeue: QUEUE_EMPTY\n", _pid)
		fi
	}
}

/* A change of the policy to p turns the generation: activations that are about to take an event ask again. */
#ifdef MUT_NO_TURN
#define turnOn(p) skip
#else
#define turnOn(p) turn = turn + (policy != (p) && running > 0 -> 1 : 0)
#endif

/* dat_evd_modify_upcall. ok is false if INVOC_EMPTY refuses; then nothing has changed. */
inline modify(p, f, ok) {
	/* the backlog: what is queued before the policy changes */
	atomic { !locked -> locked = true; refill(); cut(p, f); arrived() };
	if
	:: f == Empty && queued == 0 ->
		arm(had);                        /* drain, arm, drain: what Arm reports counts as queued */
		if
		:: had -> atomic { had = false; refill(); arrived() }
		:: else
		fi
	:: else
	fi;
	atomic {
		if
		:: f == Empty && queued > 0 -> ok = false; printf("@%d evd modify(%e, %e): INVALID_STATE\n", _pid, p, f)
		:: else ->
			ok = true;
			printf("@%d evd modify(%e, %e)\n", _pid, p, f);
			if
			:: queued == 0 || (f == New && live(p) && !live(policy)) -> pending = false
			:: queued > 0 && f == Any -> pending = true
			:: else
			fi;
#ifdef MUT_FORGET_PENDING
			pending = false;
#endif
			turnOn(p);
			policy = p;
			notifyArmed = (p == Notify);
			mayNotify = notifyArmed;
			if
			:: live(p) -> torn = false
			:: else
			fi;
			start()
		fi
	};
	LEAVE(skip)                              /* from here on what arrives is new, also what Arm reports */
}

/*
 * dat_evd_free: refused (ok is false) while a stream feeds the EVD or an activation runs. It freezes the ring, or a dequeuer
 * without the lock could take from an EVD that is gone. A notification of the device may still be on its way.
 */
inline free(ok) {
	enter();
	atomic {
		if
#ifndef MUT_FREE_RUNNING
		:: attached || running > 0 -> ok = false; printf("@%d evd Free: EVD_IN_USE\n", _pid)
#endif
		:: else -> ok = true; freed = true; frozen[cur] = true; policy = Disable; printf("@%d evd Free\n", _pid)
		fi
	};
	LEAVE(skip)
}

/*
 * dat_evd_resize: freeze the old ring, so that no claim can succeed any more, copy, publish. Refused (ok is false) if the
 * events for which no room is kept do not fit the new length. Appends need the lock and so do not happen meanwhile.
 */
#ifdef MUT_RESIZE_RESERVED
#define fits(n) true
#else
#define fits(n) (softQueued <= (n) - COMPLETIONS)
#endif

inline resize(n, ok) {
	byte i;
	enter();
	if
	:: !fits(n) -> ok = false; printf("@%d evd resize: INVALID_STATE\n", _pid)
	:: else ->
		atomic {                         /* publish, then freeze */
			staged = 0;
#ifndef MUT_NO_FREEZE
			frozen[cur] = true
#endif
		};
		atomic {                         /* one step: the frozen ring cannot change */
			length[1 - cur] = n;
			i = queued;
			do
			:: i > 0 ->
				ring[cur]?c; ring[cur]!c;        /* turned round by one: in the end it is as it was */
#ifdef MUT_RESIZE_LOSES
				if
				:: i > 1 -> ring[1 - cur]!c      /* the last one is forgotten */
				:: else
				fi;
#else
				ring[1 - cur]!c;
#endif
				i--
			:: else -> c = 0; break
			od
		};
		atomic { cur = 1 - cur; ok = true; printf("@%d evd resize to %d\n", _pid, n) }
	fi;
	LEAVE(skip)
}

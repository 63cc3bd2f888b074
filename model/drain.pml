/*
 * The end of a connection: every completion of an EP, flushed ones included, comes before its one DISCONNECTED (or
 * BROKEN), none before its ESTABLISHED, and each posted DTO completes once. All events of the EP share one EVD here.
 *
 * What the device promises (package verbs): when the QP leaves RTS everything outstanding is flushed, and behind the last
 * completion of each queue comes one drained mark; a request that is posted after that is flushed at once, behind the mark;
 * a connection event may come before or after the marks. What dat adds: it keeps a record of each outstanding request,
 * swallows the success of a suppressed one, holds completions back until ESTABLISHED is appended, and makes the terminal
 * event due when it knows of the end and has seen both marks. Events of the connection are appended in order by whoever
 * finds them due, each behind a refill of its own. Posts are not refused after the end, they complete as flushed; so the
 * promise is for those that returned while the EP was connected.
 *
 * Besides a receive that is posted before the connection, POSTS requests are, at any time.
 * DEVICE_DIES: the device is reported dead at any time after ESTABLISHED and may or may not say more; dat flushes what its
 * records still hold.
 */

/*
 * What a CQ and the EVD carry. The last of a list gets the number 1, so the requests are 1 to 4 and have bits in a byte.
 * FirstReceive is posted before the connection; a SuppressedSend completes only if it fails; Terminal is DISCONNECTED or,
 * if the device dies, BROKEN.
 */
mtype = { Terminal, Established, ReceiveMark, SendMark, LastReceive, SuppressedSend, Send, FirstReceive };

mtype = { Connecting, Connected, Over };        /* the EP, as dat sees it */
mtype = { Init, Rts, Error };                   /* the QP */

#define bitOf(n) (1 << (n))

mtype ep = Connecting;
mtype qp = Init;
bool postLocked, evdLocked;      /* the lock of posts, held across the device's; the EVD's */

chan sq = [2] of { byte };
chan rq = [2] of { byte };
bool sqDrained, rqDrained;       /* the device has delivered the queue's mark */
chan cq = [6] of { byte, bool };  /* with: flushed */
chan held = [4] of { byte };     /* completions that wait for ESTABLISHED */

byte record;                     /* bit n: request n is outstanding, as dat knows it */
bool holding = true;             /* completions are held back */
bool markSend, markRecv;         /* dat has seen the mark */
bool awaited;                    /* dat knows of the end and waits for marks */
bool establishedDue, terminalDue, posting;
bool dead;

/* the properties' own */
byte posted, got, silently;      /* bit n: accepted; completed to the consumer; succeeded without an event */
byte before;                     /* bit n: the post returned while the EP was connected */
bool sawEstablished, sawTerminal;

/*
 * An event is appended to the EVD's ring, which keeps the order; so what a consumer will see is checked here. Inside an atomic
 * step.
 */
inline append(n) {
	printf("@%d evd appends %e\n", _pid, n);
	if
	:: n == Established -> assert(!sawEstablished); sawEstablished = true
	:: n == Terminal -> assert(sawEstablished && !sawTerminal); sawTerminal = true
	:: else ->
		assert(sawEstablished);
		assert(!(sawTerminal && (before & bitOf(n))));
		assert(!(got & bitOf(n)));              /* once */
		got = got | bitOf(n)
	fi
}

inline lock(l) { atomic { !l -> l = true } }

/* ---- the device ---- */

inline devicePost(n, q, drained) {
	atomic {
		if
		:: dead -> record = record & ~bitOf(n); posted = posted & ~bitOf(n)     /* the device refuses */
		:: !dead && drained -> cq!n, true; printf("@%d cq post %e: flushed at once, behind the mark\n", _pid, n)
		:: !dead && !drained -> q!n; printf("@%d qp post %e\n", _pid, n)
		fi
	}
}

proctype Queue(chan q; byte mark) {
	byte n;
	do
	:: dead -> break                                        /* it may say nothing more */
	:: atomic { qp == Rts && len(q) > 0 -> q?n; cq!n, false; printf("@%d cq completion %e\n", _pid, n) }
#ifdef MUT_DEVICE_TWICE
	:: atomic { qp == Rts && len(q) > 0 -> q?<n>; cq!n, false; printf("@%d cq completion %e\n", _pid, n) }
#endif
	:: atomic { qp == Error && len(q) > 0 -> q?n; cq!n, true; printf("@%d cq completion %e, flushed\n", _pid, n) }
	:: atomic { qp == Error && len(q) == 0 ->
			cq!mark, false;
			printf("@%d cq %e\n", _pid, mark);
			if
			:: mark == SendMark -> sqDrained = true
			:: else -> rqDrained = true
			fi;
			break
		}
	od
}

/* ---- dat ---- */

/*
 * Under the EVD's lock: completions become events, or are held back, and marks are noted. One step, since nobody else does
 * more than add to the CQ.
 */
inline refill() {
	do
	:: len(cq) > 0 ->
		cq?x, flushed;
		if
		:: x == SendMark -> markSend = true
		:: x == ReceiveMark -> markRecv = true
		:: x < SendMark ->
			if
			:: record & bitOf(x) ->
#ifndef MUT_COMPLETE_TWICE
				record = record & ~bitOf(x);
#endif
				if
				:: x == SuppressedSend && !flushed -> silently = silently | bitOf(x)
#ifndef MUT_NO_HOLD
				:: !(x == SuppressedSend && !flushed) && holding -> held!x
#endif
				:: else -> append(x)
				fi
			:: else -> assert(dead)         /* only a dead device speaks of what dat has flushed */
			fi
		fi;
		x = 0;
		flushed = false
	:: len(cq) == 0 -> break
	od
}

inline lockAndRefill() {
	atomic { !evdLocked -> evdLocked = true; refill() }
}

/* The end is known. A second cause is ignored. */
inline ended() {
	atomic {
		if
		:: ep == Connected -> ep = Over; awaited = true
		:: else
		fi
	}
}

#ifdef MUT_FLUSH_AFTER_DISCONNECT
#define over awaited
#else
#ifdef MUT_ONE_MARK
#define over (awaited && markSend)
#else
#define over (awaited && markSend && markRecv)
#endif
#endif

/* Whatever may have been the last thing missing for an event of the connection calls this, with no lock held. */
inline settle() {
	do
	:: atomic { over -> awaited = false; terminalDue = true }
	:: atomic { !posting && establishedDue -> posting = true; establishedDue = false };
		lockAndRefill();
		atomic { append(Established); evdLocked = false };
		lockAndRefill();
		atomic {
			holding = false;
			do
			:: len(held) > 0 -> held?x; append(x)
			:: len(held) == 0 -> x = 0; break
			od;
			evdLocked = false
		};
		posting = false
	:: atomic { !posting && !establishedDue && terminalDue -> posting = true; terminalDue = false };
#ifdef MUT_NO_LAST_REFILL
		lock(evdLocked);
#else
		lockAndRefill();                        /* what was posted behind a mark */
#endif
		atomic { append(Terminal); evdLocked = false };
		posting = false
	:: atomic { !over && (posting || (!establishedDue && !terminalDue)) -> break }    /* another is at it, or nothing is due */
	od
}

/* dat_ep_post_*: the record is made first, a completion may overtake the return. */
inline post(n, q, drained) {
	lock(postLocked);
	atomic { record = record | bitOf(n); posted = posted | bitOf(n) };
	devicePost(n, q, drained);
	atomic {
		postLocked = false;
		if
		:: ep == Connected -> before = before | (posted & bitOf(n))
		:: else
		fi
	}
}

proctype Poster() {
	ep != Connecting;
#if POSTS > 0
	post(Send, sq, sqDrained);
#endif
#if POSTS > 1
	if
	:: post(SuppressedSend, sq, sqDrained)
	:: post(LastReceive, rq, rqDrained)
	fi
#endif
}

/* The connection ends at any time: it is lost, or the peer ends it, or with BOTH_END perhaps this side. */
proctype Link() {
	byte x;
	bool flushed;
#ifdef BOTH_END
	if
	:: true
	:: ep == Connected -> ended()                   /* this side's Disconnect */
	fi;
#endif
	atomic { qp = Error; printf("@%d qp leaves RTS\n", _pid) };
	settle()
}

/* The device's connection events, one after the other. */
proctype Connection() {
	byte x;
	bool flushed;
	atomic { ep = Connected; establishedDue = true };
	settle();
	atomic { qp == Error -> printf("@%d dat connection event: disconnected\n", _pid) };
	ended();
	settle()
}

/* The CQ's notification; that it comes whenever it must is the business of the other scenarios. */
proctype Notification() {
	byte x;
	bool flushed;
end:
	do
	:: len(cq) > 0 ->
		lockAndRefill();
		evdLocked = false;
		settle()
	od
}

#ifdef DEVICE_DIES
proctype Death() {
	byte x, n;
	bool flushed;
	ep != Connecting;
	dead = true;
	ended();
	lock(postLocked);                               /* a post that is being made has or has not reached the device */
	lockAndRefill();
	atomic {
		for (n : FirstReceive .. LastReceive) {
			if
			:: (record & bitOf(n)) && holding -> held!n
			:: (record & bitOf(n)) && !holding -> append(n)
			:: else
			fi
		};
		record = 0;
		markSend = true;                        /* nothing more is waited for */
		markRecv = true;
		evdLocked = false;
		postLocked = false
	};
	settle()
}
#endif

active proctype Quiet() {
	timeout ->
	assert(sawEstablished && sawTerminal);
	assert((posted & ~got & ~silently) == 0)                /* every DTO completed */
}

init {
	atomic {
		qp = Rts;                       /* the wire is up; dat has not yet been told */
		record = bitOf(FirstReceive);
		posted = record;
		before = record;
		rq!FirstReceive;
		run Queue(sq, SendMark);
		run Queue(rq, ReceiveMark);
		run Link();
		run Poster();
		run Connection();
		run Notification()
#ifdef DEVICE_DIES
		;
		run Death()
#endif
	}
}

/*
 * What must hold, in variables that the rules themselves never read. They record what has happened, not what the
 * implementation believes, so that a rule which loses track of an event does not also lose it from the property.
 */

byte arrivals;                   /* events that have arrived, in the CQ or by PostSE; also the last one's number */
byte claimed;                    /* events taken by somebody */
byte got;                        /* bit n: event n was handed to a consumer */
byte due;                        /* bit n: event n may not be left lying once a live policy is quiet */
bool cause;                      /* since the queue was last empty, and since the last INVOC_NEW, something justified an upcall */
byte calls;                      /* upcalls that run, or that have their event and are about to */
byte lastCalled;                 /* the last event that an upcall was given */
bool mayNotify;                  /* NOTIFY was set, and no upcall was made since */
bool torn;                       /* Teardown has returned, and no live policy was set since */
bool freed;                      /* Free has succeeded */
#ifdef MUT_EMPTY_AT_TWO_TIMES
byte emptied;                    /* how often the queue has become empty */
#define ALREADY 255
#endif

#define bitOf(e)   (1 << ((e) & NUMBER))

/*
 * An event arrives: gives it its number. Inside an atomic step. Under ENDLESS load there are no numbers: arrivals is then
 * what has arrived and not been taken, and whether each event is delivered once is left to the bounded scenarios.
 */
inline arrive(notifies, e) {
	arrivals++;
#ifdef ENDLESS
	e = 1 | NOTIFIES;
	cause = true
#else
	assert(arrivals <= NUMBER);              /* a bound of the model */
	e = arrivals | ((notifies) -> NOTIFIES : 0);
	if
	:: notifies -> due = due | bitOf(e); cause = true
	:: else
	fi
#endif
}

/* Event e is taken. Inside the atomic step that takes it. */
inline taken(e) {
#ifdef ENDLESS
	arrivals--;
#else
	claimed++;
	assert(claimed == (e & NUMBER));         /* in order of arrival, whoever takes it; so none twice and none left out */
#endif
	if
	:: claimed == arrivals ->
		cause = false
#ifdef MUT_EMPTY_AT_TWO_TIMES
		; emptied++
#endif
	:: else
	fi
}

/* Event e is handed to a consumer. */
inline deliver(e) {
#ifdef ENDLESS
	skip
#else
	atomic {
		assert(!(got & bitOf(e)));       /* exactly once: never twice */
		got = got | bitOf(e)
	}
#endif
}

/*
 * The instant from which INVOC_NEW counts: what arrived before is backlog and is owed no upcall. For INVOC_ANY, all
 * that is queued at that instant is owed one. Inside the atomic step that saw the CQ empty.
 */
inline cut(p, f) {
	if
	:: f == New && !live(policy) && live(p) -> due = 0; cause = false
	:: f == Any && live(p) && queued > 0 -> due = (1 << (arrivals + 1)) - 1; cause = true
	:: else
	fi
}

/* The checks of a state in which nothing can run any more. */
#define owed (due & ~got & ~1)
#define nth(m, n) (((m) >> (n)) & 1)
#define bits(m)   (nth(m, 1) + nth(m, 2) + nth(m, 3) + nth(m, 4) + nth(m, 5) + nth(m, 6) + nth(m, 7))

inline quiet() {
	assert(!locked && started == 0 && running == 0 && calls == 0);
	/* exactly once: what was not taken is still queued, what was taken was handed over */
	assert(freed || arrivals - claimed == queued + len(cq));
	assert(bits(got) == claimed);
	/* while somebody can be notified, the device is armed and holds nothing back that notifies */
	assert(freed || !live(policy) || (cqArmed && counted == 0));
	/* nobody is idle while an upcall is pending and entitled */
	assert(freed || (policy != Single && policy != Many) || !owed);
	assert(freed || policy != Notify || !owed || !notifyArmed)
}

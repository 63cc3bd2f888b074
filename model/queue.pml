/*
 * The two queues of an EVD: the CQ that a device fills, and the ring from which events are taken.
 *
 * An event is one byte: its number (1..7, in order of arrival), and two marks.
 * A ring is a Promela channel: the head is claimed in one atomic step, as the compare-and-swap of the code does.
 * There are two rings because a resize makes a new one while a claimer may still hold the old one.
 */

#ifndef RING
#define RING 4                   /* slots of a ring; its length can be set below that */
#endif
#ifndef COMPLETIONS
#define COMPLETIONS 2            /* room of the CQ, and the DTOs for which the ring keeps room */
#endif
#ifndef SOFTROOM
#define SOFTROOM 2               /* the room of the ring that is not kept for DTOs */
#endif

#define NUMBER   7               /* mask of the event's number */
#define NOTIFIES 8               /* the event sets pending */
#define SOFTWARE 16              /* the event was made by software: it uses room that is not kept for DTOs */

chan cq = [COMPLETIONS] of { byte };
bool cqArmed;                    /* one-shot: the next completion makes the device notify */
byte cqNotifying;                /* completions in the CQ that notify */

chan ring[2] = [RING] of { byte };
byte length[2];                  /* the length the consumer asked for */
bool frozen[2];                  /* a resize has begun to copy this ring: claims fail */
bit  cur;                        /* the ring in use; written under the EVD's lock, read without it */
byte softQueued;                 /* software events in the ring */
byte staged;                     /* events at the end of the ring that the lock's holder has not published */

#define queued   len(ring[cur])
#define ready(r) (!frozen[r] && len(ring[r]) > ((r) == cur -> staged : 0))

/* SOLICITED: the EVD arms for completions that notify, and only those count. Otherwise for all. */
#ifdef SOLICITED
#define fires(notifies) (cqArmed && (notifies))
#define counted cqNotifying
#else
#define fires(notifies) cqArmed
#define counted len(cq)
#endif

#include "properties.pml"

/* The CQ's lock is the atomic step. The device looks at the arming under it and notifies after it. */
inline complete(notifies, e, note) {
	atomic {
		arrive(notifies, e);
		cq!e;
		cqNotifying = cqNotifying + ((notifies) -> 1 : 0);
		note = fires(notifies);
		if
		:: note -> cqArmed = false; printf("@%d cq completion %d; the CQ is armed\n", _pid, e & NUMBER)
		:: else -> printf("@%d cq completion %d; nobody is told\n", _pid, e & NUMBER)
		fi;
		e = 0
	}
}

/* Poll, inside an atomic step. */
inline pollCQ(e) {
	cq?e;
	cqNotifying = cqNotifying - ((e & NOTIFIES) -> 1 : 0)
}

/*
 * Arm covers what arrives after it and reports what is already there. A device that reports may or may not stay armed;
 * the caller must not depend on either.
 */
inline arm(had) {
	atomic {
		had = counted > 0;
		if
		:: had -> if :: cqArmed = true :: cqArmed = false fi
		:: else -> cqArmed = true
		fi;
		printf("@%d cq arm: reports %d completions\n", _pid, counted)
	}
}

/* Event e left ring r, inside an atomic step. */
inline left(e) {
	softQueued = softQueued - ((e & SOFTWARE) -> 1 : 0);
	taken(e)
}

/* Claim takes the head of ring r, or sets e to 0. Nothing but this step decides who gets an event. */
inline claim(r, e) {
	atomic {
		if
		:: ready(r) -> ring[r]?e; printf("@%d evd takes event %d\n", _pid, e & NUMBER); left(e)
		:: else -> e = 0
		fi
	}
}

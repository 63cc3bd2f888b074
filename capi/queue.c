//go:build kdapl_capi

// Dequeue, wait and software events without Go, on the rings that Go fills: the documents of the
// packages internal/evring and internal/foreign have the rules. What is rare is left to Go: events of
// connections and the like, queues that are being moved, EVDs with a CNO, errors.

#include "kdapl.h"
#include "_cgo_export.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POSITIONS (((uint64_t)1 << 48) - 1)
#define FROZEN ((uint64_t)1 << 63)
#define NEAR_END ((uint64_t)1 << 47)
#define LOCKED 1

// Every how many fruitless dequeues the adapter is helped along. Its sockets are read by goroutines too, but
// for that a thread has to be woken, which takes tens of microseconds; a poller who reads itself has the
// data at once. A read that finds nothing takes half a microsecond, so to try each time would
// make polling slow, and to try seldom would make it late: sixteen calls last less than such a read.
#define HELP_EVERY 16

typedef struct kd_ring {
	uint64_t head __attribute__((aligned(64)));
	uint64_t tail __attribute__((aligned(64)));
	uint64_t base __attribute__((aligned(64)));
	uint64_t capacity;
	uint64_t slot[][8] __attribute__((aligned(64)));
} kd_ring;

static inline uint64_t load(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline uint32_t load32(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline uint64_t peek(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }

// name_of is the handle of the object that a slot names. NULL: Go has to look.
static kd_shell *name_of(const kd_names *names, uint64_t ref)
{
	uint32_t i = (uint32_t)ref;
	const kd_name *chunk, *n;
	kd_shell *s;

	if (!ref || !names || i / KD_NAMES >= KD_NAME_CHUNKS)
		return NULL;
	chunk = __atomic_load_n(&names->chunk[i / KD_NAMES], __ATOMIC_ACQUIRE);
	if (!chunk)
		return NULL;
	n = &chunk[i % KD_NAMES];
	if (load(&n->ref) != ref)
		return NULL;
	s = __atomic_load_n(&n->shell, __ATOMIC_ACQUIRE);
	return load(&n->ref) == ref ? s : NULL; // it may be another's meanwhile
}

enum taken { EMPTY, TAKEN, FOR_GO };

// take takes the oldest event, if it is of a simple kind. A queue whose lock is held counts as empty only if
// the EVD has no CQ: the holder may be moving completions that have left the CQ already.
static enum taken take(kd_shell *evd, const kd_control *c, DAT_EVENT *ev, DAT_COUNT *left)
{
	kd_ring *r = (kd_ring *)(uintptr_t)load(&c->ring);
	uint64_t head, tail, n, w0, w1, w2, w3;
	const uint64_t *slot;
	kd_shell *object;

	if (!r)
		return FOR_GO;
	for (;;) {
		head = load(&r->head);
		if (head & FROZEN)
			return FOR_GO;
		tail = load(&r->tail);
		n = (tail >> 1) - (head & POSITIONS);
		if (!n)
			return tail & LOCKED && c->flags & KD_HAS_CQ ? FOR_GO : EMPTY;
		// The copy counts only if the claim succeeds.
		slot = r->slot[head & (r->capacity - 1)];
		w0 = peek(&slot[0]);
		w1 = peek(&slot[1]);
		w2 = peek(&slot[2]);
		w3 = peek(&slot[3]);
		object = NULL;
		switch ((uint32_t)w0) {
		case DAT_SOFTWARE_EVENT:
			break;
		case DAT_DTO_COMPLETION_EVENT:
		case DAT_RMR_BIND_COMPLETION_EVENT:
			object = name_of(evd->names, w1);
			if (!object || (uint8_t)(w0 >> 32) == DAT_DTO_RECEIVE_WITH_INVALIDATE)
				return FOR_GO;
			break;
		default:
			return FOR_GO;
		}
		if (!__atomic_compare_exchange_n(&r->head, &head, head + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		kd_event(ev, (uint32_t)w0, evd);
		switch ((uint32_t)w0) {
		case DAT_SOFTWARE_EVENT:
			kd_event_software(ev, w2);
			break;
		case DAT_DTO_COMPLETION_EVENT:
			kd_event_dto(ev, object, w2, (uint8_t)(w0 >> 40), (uint32_t)w3, (uint8_t)(w0 >> 32), 0);
			break;
		default:
			kd_event_bind(ev, object, w2, (uint8_t)(w0 >> 40));
		}
		*left = n - 1 > INT_MAX ? INT_MAX : (DAT_COUNT)(n - 1);
		return TAKEN;
	}
}

// control_of is the control block of an EVD's or CNO's handle, NULL if it is none or Go does all for it.
static kd_control *control_of(DAT_HANDLE handle, DAT_HANDLE_TYPE type)
{
	kd_shell *s = kd_shell_of(handle);

	return s && s->kind == (uint32_t)type + 1 ? s->control : NULL;
}

// still reports that nothing has come to the CQ since it was found empty. It is to be looked at before the ring:
// afterwards, what was in the CQ at the look at the ring could be in the ring.
static int still(const kd_control *c)
{
	uint64_t seen = load(&c->seen);
	const uint64_t *serial = (const uint64_t *)(uintptr_t)load(&c->serial);

	return !(c->flags & KD_HAS_CQ) || (serial && load(serial) == seen);
}

// help_due reports that it is time to help the adapter along. The count need not be exact.
static int help_due(kd_control *c)
{
	uint32_t n = __atomic_load_n(&c->empty, __ATOMIC_RELAXED) + 1;

	__atomic_store_n(&c->empty, n, __ATOMIC_RELAXED);
	return n % HELP_EVERY == 0;
}

DAT_RETURN kd_evd_dequeue(DAT_EVD_HANDLE evd, DAT_EVENT *ev)
{
	kd_control *c = control_of(evd, DAT_HANDLE_TYPE_EVD);
	DAT_COUNT left;
	int quiet;

	if (c && ev && !(load32(&c->status) & (KD_FREED | KD_WAITED))) {
		quiet = still(c);
		switch (take(evd, c, ev, &left)) {
		case TAKEN:
			return DAT_SUCCESS;
		case EMPTY:
			// The type without the bit for errors, since programs compare with that.
			if (quiet && !(c->flags & KD_HELP && help_due(c)))
				return DAT_QUEUE_EMPTY;
			break;
		case FOR_GO:
			break;
		}
	}
	return kdEVDDequeue((uintptr_t)evd, ev);
}

DAT_RETURN kd_evd_post_se(DAT_EVD_HANDLE evd, const DAT_EVENT *ev)
{
	kd_control *c = control_of(evd, DAT_HANDLE_TYPE_EVD);
	uint64_t tail, at, head, *slot;
	uint32_t limit;
	kd_ring *r;

	if (!c || !ev || ev->event_number != DAT_SOFTWARE_EVENT || !load32(&c->limit))
		return kdEVDPostSE((uintptr_t)evd, (DAT_EVENT *)ev);
	r = (kd_ring *)(uintptr_t)load(&c->ring);
	tail = r ? peek(&r->tail) : LOCKED;
	if (tail & LOCKED || !__atomic_compare_exchange_n(&r->tail, &tail, tail | LOCKED, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return kdEVDPostSE((uintptr_t)evd, (DAT_EVENT *)ev);
	limit = load32(&c->limit);
	head = load(&r->head);
	at = tail >> 1;
	if (limit > r->capacity)
		limit = r->capacity;
	if (head & FROZEN || at >= NEAR_END || at - (head & POSITIONS) >= limit) {
		__atomic_store_n(&r->tail, tail, __ATOMIC_RELEASE);
		return kdEVDPostSE((uintptr_t)evd, (DAT_EVENT *)ev);
	}
	slot = r->slot[at & (r->capacity - 1)];
	__atomic_store_n(&slot[0], DAT_SOFTWARE_EVENT, __ATOMIC_RELAXED);
	__atomic_store_n(&slot[1], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&slot[2], kd_software_value(ev), __ATOMIC_RELAXED);
	__atomic_store_n(&slot[3], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&slot[4], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&r->tail, tail + 2, __ATOMIC_RELEASE);
	return DAT_SUCCESS;
}

// deadline_of is the time at which a time-out that begins now ends.
static struct timespec deadline_of(DAT_TIMEOUT timeout)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += timeout / 1000000;
	t.tv_nsec += (long)(timeout % 1000000) * 1000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

// doze sleeps until the word is not what the step has seen, or the deadline, which it notes.
static void doze(kd_wait *w, uint32_t *word, const struct timespec *deadline)
{
	if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, w->word, deadline, NULL, FUTEX_BITSET_MATCH_ANY) &&
	    errno == ETIMEDOUT)
		w->expired = 1;
}

DAT_RETURN kd_evd_wait(DAT_EVD_HANDLE evd, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT *ev, DAT_COUNT *more)
{
	kd_control *c = control_of(evd, DAT_HANDLE_TYPE_EVD);
	kd_wait w = { .threshold = threshold, .expired = timeout == 0 };
	struct timespec deadline;
	DAT_COUNT left;
	DAT_RETURN r;

	if (!c || !ev || !more)
		return kdEVDWait((uintptr_t)evd, timeout, threshold, ev, more);
	if (threshold == 1 && !load32(&c->status) && take(evd, c, ev, &left) == TAKEN) {
		*more = left;
		return DAT_SUCCESS;
	}
	deadline = deadline_of(timeout);
	while (r = kdEVDWaitStep((uintptr_t)evd, &w, ev, more), w.sleep)
		doze(&w, &c->wake, timeout == DAT_TIMEOUT_INFINITE ? NULL : &deadline);
	return r;
}

DAT_RETURN kd_cno_wait(DAT_CNO_HANDLE cno, DAT_TIMEOUT timeout, DAT_EVD_HANDLE *evd)
{
	kd_control *c = control_of(cno, DAT_HANDLE_TYPE_CNO);
	kd_wait w = { .threshold = 1, .expired = timeout == 0 };
	struct timespec deadline;
	DAT_RETURN r;

	if (!c)
		return KD_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
	deadline = deadline_of(timeout);
	while (r = kdCNOWaitStep((uintptr_t)cno, &w, evd), w.sleep)
		doze(&w, &c->wake, timeout == DAT_TIMEOUT_INFINITE ? NULL : &deadline);
	return r;
}

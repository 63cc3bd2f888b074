// Many threads at one EVD: software events are posted, dequeued and waited for, in C and in Go, while the queue is resized and
// gets and loses a CNO. Each event comes once, and those of a poster in order.
#include "ctest.h"

#include <pthread.h>
#include <sched.h>

#define POSTERS 3
#define TAKERS 2
#define EACH 20000

static DAT_EVD_HANDLE e;
static DAT_CNO_HANDLE cno;
static unsigned char seen[POSTERS][EACH];
static int taken, posting = POSTERS;

static void *poster(void *arg)
{
	uintptr_t who = (uintptr_t)arg, i;
	DAT_EVENT ev;
	DAT_RETURN r;

	memset(&ev, 0, sizeof ev);
	ev.event_number = DAT_SOFTWARE_EVENT;
	for (i = 0; i < EACH;) {
		ev.event_data.software_event_data.pointer = (void *)(who << 32 | i);
		r = dat_evd_post_se(e, &ev);
		if (r == DAT_SUCCESS)
			i++;
		else if (DAT_GET_TYPE(r) == DAT_QUEUE_FULL)
			sched_yield();
		else
			CHECK(r == DAT_SUCCESS);
	}
	__atomic_sub_fetch(&posting, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void count(const DAT_EVENT *ev, int64_t last[POSTERS])
{
	uintptr_t v = (uintptr_t)ev->event_data.software_event_data.pointer, who = v >> 32, i = v & 0xFFFFFFFF;

	CHECK(ev->event_number == DAT_SOFTWARE_EVENT && ev->evd_handle == e && who < POSTERS && i < EACH);
	CHECK((int64_t)i > last[who]);
	last[who] = i;
	CHECK(!__atomic_exchange_n(&seen[who][i], 1, __ATOMIC_SEQ_CST));
	__atomic_add_fetch(&taken, 1, __ATOMIC_SEQ_CST);
}

static int all_taken(void) { return __atomic_load_n(&taken, __ATOMIC_SEQ_CST) == POSTERS * EACH; }

static void *taker(void *arg)
{
	int64_t last[POSTERS] = { -1, -1, -1 };
	DAT_COUNT more;
	DAT_RETURN r;
	DAT_EVENT ev;

	while (!all_taken()) {
		r = arg ? dat_evd_dequeue(e, &ev) : dat_evd_wait(e, 500, 1, &ev, &more);
		if (r == DAT_SUCCESS)
			count(&ev, last);
		else if (DAT_GET_TYPE(r) == DAT_INVALID_STATE || DAT_GET_TYPE(r) == DAT_QUEUE_EMPTY)
			sched_yield(); // a waiter owns the events, or there are none
		else
			CHECK(DAT_GET_TYPE(r) == DAT_TIMEOUT_EXPIRED);
	}
	return NULL;
}

static void *changer(void *arg)
{
	DAT_EVD_HANDLE which;
	DAT_RETURN r;
	int i;

	(void)arg;
	for (i = 0; __atomic_load_n(&posting, __ATOMIC_SEQ_CST); i++) {
		r = dat_evd_resize(e, 8 << i % 6);
		CHECK(r == DAT_SUCCESS || DAT_GET_TYPE(r) == DAT_INVALID_STATE); // more are queued, or a waiter waits
		OK(dat_evd_modify_cno(e, i % 3 ? DAT_HANDLE_NULL : cno));
		dat_cno_wait(cno, 100, &which);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[POSTERS + TAKERS + 2];
	DAT_EVENT ev;
	int i, n = 0;

	CHECK(argc == 2);
	open_ia(argv[1]);
	OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &e));
	OK(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
	for (i = 0; i < POSTERS; i++)
		CHECK(!pthread_create(&t[n++], NULL, poster, (void *)(uintptr_t)i));
	for (i = 0; i < TAKERS; i++)
		CHECK(!pthread_create(&t[n++], NULL, taker, (void *)1));
	CHECK(!pthread_create(&t[n++], NULL, taker, NULL));
	CHECK(!pthread_create(&t[n++], NULL, changer, NULL));
	for (i = 0; i < n; i++)
		CHECK(!pthread_join(t[i], NULL));
	CHECK(DAT_GET_TYPE(dat_evd_dequeue(e, &ev)) == DAT_QUEUE_EMPTY);
	OK(dat_evd_modify_cno(e, DAT_HANDLE_NULL));
	OK(dat_evd_free(e));
	close_ia();
	puts("PASS");
	return 0;
}

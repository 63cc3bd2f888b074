// What calls cost through libdat2, at two IAs in turn: usage bench YARDSTICK IA [ROUNDS]. Each figure is the best of its
// rounds, in nanoseconds a call; the goals are ratios to the yardstick, a minimal provider in C.
#include "ctest.h"

#include <pthread.h>
#include <time.h>

#define CALLS 20000
#define TRIPS 1000

enum { NOTHING, POST, WAIT, MEASURES };

static const struct {
	const char *name;
	double goal;
} measure[MEASURES] = { { "dequeue, empty", 1 }, { "post_se and dequeue", 3 }, { "blocked wait, round trip", 1 } };

struct side {
	DAT_IA_HANDLE ia;
	DAT_EVD_HANDLE here, there, back;
	double best[MEASURES];
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void note(struct side *s, int what, double start, int calls)
{
	double each = (now() - start) / calls;

	if (!s->best[what] || each < s->best[what])
		s->best[what] = each;
}

static void *echo(void *arg)
{
	struct side *s = arg;
	DAT_EVENT ev;
	DAT_COUNT more;
	int i;

	for (i = 0; i < TRIPS; i++) {
		OK(dat_evd_wait(s->there, DAT_TIMEOUT_INFINITE, 1, &ev, &more));
		OK(dat_evd_post_se(s->back, &ev));
	}
	return NULL;
}

static void open_side(struct side *s, const char *name)
{
	open_ia(name);
	s->ia = ia;
	OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &s->here));
	OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &s->there));
	OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &s->back));
}

static void run(struct side *s)
{
	DAT_EVENT ev;
	DAT_COUNT more;
	pthread_t t;
	double start = now();
	int i;

	for (i = 0; i < CALLS; i++)
		CHECK(DAT_GET_TYPE(dat_evd_dequeue(s->here, &ev)) == DAT_QUEUE_EMPTY);
	note(s, NOTHING, start, CALLS);

	memset(&ev, 0, sizeof ev);
	ev.event_number = DAT_SOFTWARE_EVENT;
	start = now();
	for (i = 0; i < CALLS; i++) {
		OK(dat_evd_post_se(s->here, &ev));
		OK(dat_evd_dequeue(s->here, &ev));
	}
	note(s, POST, start, CALLS);

	CHECK(!pthread_create(&t, NULL, echo, s));
	start = now();
	for (i = 0; i < TRIPS; i++) {
		OK(dat_evd_post_se(s->there, &ev));
		OK(dat_evd_wait(s->back, DAT_TIMEOUT_INFINITE, 1, &ev, &more));
	}
	note(s, WAIT, start, TRIPS);
	CHECK(!pthread_join(t, NULL));
}

int main(int argc, char **argv)
{
	struct side side[2] = { 0 };
	double ratio;
	int i, n = argc > 3 ? atoi(argv[3]) : 3;

	CHECK(argc >= 3);
	for (i = 0; i < 2; i++)
		open_side(&side[i], argv[1 + i]);
	for (i = 0; i < 2 * n; i++)
		run(&side[i % 2]);
	printf("%-26s %12s %12s %7s %6s\n", "nanoseconds", argv[1], argv[2], "ratio", "goal");
	for (i = 0; i < MEASURES; i++) {
		ratio = side[1].best[i] / side[0].best[i];
		printf("%-26s %12.1f %12.1f %7.2f %6.1f%s\n", measure[i].name, side[0].best[i], side[1].best[i], ratio,
		       measure[i].goal, ratio > measure[i].goal ? "  missed" : "");
	}
	for (i = 0; i < 2; i++)
		OK(dat_ia_close(side[i].ia, DAT_CLOSE_ABRUPT_FLAG));
	puts("PASS");
	return 0;
}

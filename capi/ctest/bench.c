// What calls cost through libdat2: prints nanoseconds a call.
#include "ctest.h"

#include <pthread.h>
#include <time.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static DAT_EVD_HANDLE there, back;

static void *echo(void *arg)
{
	DAT_EVENT ev;
	DAT_COUNT more;
	int i, n = *(int *)arg;

	for (i = 0; i < n; i++) {
		OK(dat_evd_wait(there, DAT_TIMEOUT_INFINITE, 1, &ev, &more));
		OK(dat_evd_post_se(back, &ev));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	DAT_EVENT ev;
	DAT_COUNT more;
	DAT_EVD_HANDLE e;
	pthread_t t;
	double start;
	int i, n = argc > 2 ? atoi(argv[2]) : 1000, rounds = n / 10;

	CHECK(argc >= 2);
	open_ia(argv[1]);
	OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &e));
	OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &there));
	OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &back));

	start = now();
	for (i = 0; i < n; i++)
		CHECK(DAT_GET_TYPE(dat_evd_dequeue(e, &ev)) == DAT_QUEUE_EMPTY);
	printf("dequeue, empty        %8.1f ns\n", (now() - start) / n);

	memset(&ev, 0, sizeof ev);
	ev.event_number = DAT_SOFTWARE_EVENT;
	start = now();
	for (i = 0; i < n; i++) {
		OK(dat_evd_post_se(e, &ev));
		OK(dat_evd_dequeue(e, &ev));
	}
	printf("post_se and dequeue   %8.1f ns\n", (now() - start) / n);

	CHECK(!pthread_create(&t, NULL, echo, &rounds));
	start = now();
	for (i = 0; i < rounds; i++) {
		OK(dat_evd_post_se(there, &ev));
		OK(dat_evd_wait(back, DAT_TIMEOUT_INFINITE, 1, &ev, &more));
	}
	printf("blocked wait, round trip %8.1f ns\n", (now() - start) / rounds);
	CHECK(!pthread_join(t, NULL));
	close_ia();
	puts("PASS");
	return 0;
}

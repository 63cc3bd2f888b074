// EVDs and CNOs: software events, resize, unwaitable, enable and disable, CNO of either kind, contexts.
#include "ctest.h"

#include <dat2/dat_registry.h>

#include <poll.h>
#include <pthread.h>
#include <time.h>

static void *wait_forever(void *arg)
{
	DAT_EVENT ev;
	DAT_COUNT more;

	return (void *)(uintptr_t)dat_evd_wait(arg, DAT_TIMEOUT_INFINITE, 1, &ev, &more);
}

static DAT_EVENT software(uintptr_t value)
{
	DAT_EVENT ev;

	memset(&ev, 0, sizeof ev);
	ev.event_number = DAT_SOFTWARE_EVENT;
	ev.event_data.software_event_data.pointer = (void *)value;
	return ev;
}

static int agent_called;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;

static void agent(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
	CHECK(data == (void *)7 && evd);
	pthread_mutex_lock(&lock);
	agent_called++;
	pthread_cond_signal(&called);
	pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
	DAT_EVD_HANDLE e, triggered;
	DAT_CNO_HANDLE cno;
	const DAT_PROVIDER *table;
	DAT_IA_HANDLE other;
	DAT_EVD_HANDLE other_async;
	DAT_EVD_PARAM param;
	DAT_CNO_PARAM cparam;
	DAT_EVENT ev, out;
	DAT_COUNT more;
	DAT_CONTEXT ctx;
	DAT_HANDLE_TYPE type;
	DAT_OS_WAIT_PROXY_AGENT proxy = { (void *)7, agent };
	pthread_t t;
	struct pollfd p;
	struct timespec a, b;
	void *ret;
	uintptr_t i;

	CHECK(argc == 2);
	open_ia(argv[1]);
	OK(dat_evd_create(ia, 4, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &e));
	OK(dat_get_handle_type(e, &type));
	CHECK(type == DAT_HANDLE_TYPE_EVD);
	OK(dat_get_consumer_context(e, &ctx));
	CHECK(ctx.as_64 == 0);
	ctx.as_64 = 0x1122334455667788;
	OK(dat_set_consumer_context(e, ctx));
	ctx.as_64 = 0;
	OK(dat_get_consumer_context(e, &ctx));
	CHECK(ctx.as_64 == 0x1122334455667788);

	CHECK(DAT_GET_TYPE(dat_evd_dequeue(e, &out)) == DAT_QUEUE_EMPTY);
	FAILS(dat_evd_dequeue(e, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
	ev = software(1);
	ev.event_number = DAT_DTO_COMPLETION_EVENT;
	FAILS(dat_evd_post_se(e, &ev), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
	OK(dat_evd_query(e, DAT_EVD_FIELD_ALL, &param));
	CHECK(param.evd_qlen >= 4 && param.ia_handle == ia && param.evd_flags == DAT_EVD_SOFTWARE_FLAG);
	CHECK(param.evd_state & DAT_EVD_STATE_ENABLED && param.evd_state & DAT_EVD_STATE_WAITABLE);
	FAILS(dat_evd_query(e, DAT_EVD_FIELD_ALL, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);

	for (i = 0; (int)i < param.evd_qlen; i++) {
		ev = software(i);
		OK(dat_evd_post_se(e, &ev));
	}
	FAILS(dat_evd_post_se(e, &ev), DAT_QUEUE_FULL, 0);
	FAILS(dat_evd_resize(e, 1), DAT_INVALID_STATE, 0);
	OK(dat_evd_resize(e, 64));
	ev = software(i);
	OK(dat_evd_post_se(e, &ev));
	OK(dat_evd_wait(e, 0, i + 1, &out, &more));
	CHECK(out.event_data.software_event_data.pointer == NULL && more == (int)i);
	for (i = 1; (int)i <= param.evd_qlen; i++) {
		OK(dat_evd_dequeue(e, &out));
		CHECK(out.event_data.software_event_data.pointer == (void *)i);
	}
	FAILS(dat_evd_wait(e, 10000, 1, &out, &more), DAT_TIMEOUT_EXPIRED, 0);
	FAILS(dat_evd_wait(e, 0, 0, &out, &more), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);

	// 10 ms last at least that.
	clock_gettime(CLOCK_MONOTONIC, &a);
	FAILS(dat_evd_wait(e, 10000, 1, &out, &more), DAT_TIMEOUT_EXPIRED, 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	CHECK((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec >= 10000000);

	// A waiter ends when the EVD becomes unwaitable.
	CHECK(!pthread_create(&t, NULL, wait_forever, e));
	OK(dat_evd_set_unwaitable(e));
	CHECK(!pthread_join(t, &ret));
	CHECK((DAT_RETURN)(uintptr_t)ret == (DAT_RETURN)(DAT_CLASS_ERROR | DAT_INVALID_STATE | DAT_INVALID_STATE_EVD_UNWAITABLE));
	FAILS(dat_evd_wait(e, 0, 1, &out, &more), DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_UNWAITABLE);
	OK(dat_evd_clear_unwaitable(e));

	// A CNO with an agent.
	OK(dat_cno_create(ia, proxy, &cno));
	OK(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &cparam));
	CHECK(cparam.proxy_type == DAT_PROXY_TYPE_AGENT && cparam.proxy.agent.proxy_agent_func == agent);
	OK(dat_evd_modify_cno(e, cno));
	FAILS(dat_cno_free(cno), DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE);
	ev = software(1);
	OK(dat_evd_post_se(e, &ev));
	pthread_mutex_lock(&lock);
	while (!agent_called)
		pthread_cond_wait(&called, &lock);
	pthread_mutex_unlock(&lock);
	OK(dat_evd_dequeue(e, &out));
	OK(dat_cno_modify_agent(cno, DAT_OS_WAIT_PROXY_AGENT_NULL));
	ev = software(2);
	OK(dat_evd_post_se(e, &ev));
	do // the trigger of before may still be there
		OK(dat_cno_wait(cno, DAT_TIMEOUT_INFINITE, &triggered));
	while (dat_evd_dequeue(e, &out) != DAT_SUCCESS);
	CHECK(triggered == e);
	OK(dat_evd_disable(e));
	OK(dat_evd_post_se(e, &ev));
	CHECK(DAT_GET_TYPE(dat_cno_wait(cno, 1000, &triggered)) == DAT_QUEUE_EMPTY && !triggered);
	OK(dat_evd_enable(e));
	OK(dat_cno_wait(cno, DAT_TIMEOUT_INFINITE, &triggered));
	OK(dat_evd_dequeue(e, &out));
	OK(dat_evd_modify_cno(e, DAT_HANDLE_NULL));
	OK(dat_cno_free(cno));
	FAILS(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &cparam), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);

	// A CNO with a descriptor; libdat2 exports none of its calls.
	table = *(DAT_PROVIDER **)pz;
	other_async = DAT_HANDLE_NULL;
	OK(table->ia_open_func(argv[1], 8, &other_async, &other));
	OK(table->cno_fd_create_func(other, &p.fd, &cno));
	OK(table->cno_query_func(cno, DAT_CNO_FIELD_ALL, &cparam));
	CHECK(cparam.proxy_type == DAT_PROXY_TYPE_FD && cparam.proxy.fd == p.fd);
	OK(table->evd_create_func(other, 4, cno, DAT_EVD_SOFTWARE_FLAG, &e));
	CHECK(DAT_GET_TYPE(table->cno_trigger_func(cno, &triggered)) == DAT_QUEUE_EMPTY);
	ev = software(3);
	OK(dat_evd_post_se(e, &ev));
	p.events = POLLIN;
	CHECK(poll(&p, 1, 20000) == 1);
	OK(table->cno_trigger_func(cno, &triggered));
	CHECK(triggered == e);
	CHECK(poll(&p, 1, 0) == 0);
	OK(dat_evd_dequeue(e, &out));
	OK(dat_evd_free(e));
	OK(dat_cno_free(cno));
	OK(table->ia_close_func(other, DAT_CLOSE_GRACEFUL_FLAG));
	close_ia();
	puts("PASS");
	return 0;
}

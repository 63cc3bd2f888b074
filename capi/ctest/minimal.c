// The least that a provider in C can be, as a yardstick for what calls cost through libdat2: software events in
// a ring under a mutex, with a condition for the waiter, which is how Debian's own providers do it.
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <dat2/udat.h>
#include <dat2/dat_registry.h>

#define FAULT(type, subtype) ((DAT_RETURN)(DAT_CLASS_ERROR | (type) | (subtype)))
#define ROOM 64

// What every handle points to begins with the table.
struct object {
	const DAT_PROVIDER *provider;
};

struct evd {
	const DAT_PROVIDER *provider;
	pthread_mutex_t lock;
	pthread_cond_t more;
	unsigned head, tail, waiting;
	DAT_EVENT ring[ROOM];
};

static DAT_PROVIDER table;

static DAT_RETURN ia_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *async, DAT_IA_HANDLE *ia)
{
	struct object *o = calloc(1, sizeof *o);

	(void)name;
	(void)qlen;
	if (!o)
		return FAULT(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
	o->provider = &table;
	*async = DAT_HANDLE_NULL;
	*ia = o;
	return DAT_SUCCESS;
}

static DAT_RETURN ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *async, DAT_IA_ATTR_MASK ia_mask, DAT_IA_ATTR *ia_attr,
			   DAT_PROVIDER_ATTR_MASK mask, DAT_PROVIDER_ATTR *attr)
{
	(void)ia;
	(void)ia_mask;
	(void)mask;
	if (async)
		*async = DAT_HANDLE_NULL;
	if (ia_attr)
		memset(ia_attr, 0, sizeof *ia_attr);
	if (attr) {
		memset(attr, 0, sizeof *attr);
		attr->dapl_version_major = 2;
	}
	return DAT_SUCCESS;
}

static DAT_RETURN ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
	(void)flags;
	free(ia);
	return DAT_SUCCESS;
}

static DAT_RETURN pz_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE *pz)
{
	*pz = ia; // never looked at
	return DAT_SUCCESS;
}

static DAT_RETURN evd_create(DAT_IA_HANDLE ia, DAT_COUNT qlen, DAT_CNO_HANDLE cno, DAT_EVD_FLAGS flags, DAT_EVD_HANDLE *out)
{
	struct evd *e = calloc(1, sizeof *e);
	pthread_condattr_t attr;

	(void)ia;
	(void)cno;
	(void)flags;
	if (!e || qlen > ROOM)
		return FAULT(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
	e->provider = &table;
	pthread_mutex_init(&e->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&e->more, &attr);
	*out = e;
	return DAT_SUCCESS;
}

static DAT_RETURN evd_free(DAT_EVD_HANDLE evd)
{
	free(evd);
	return DAT_SUCCESS;
}

static DAT_RETURN evd_post_se(DAT_EVD_HANDLE evd, const DAT_EVENT *ev)
{
	struct evd *e = evd;
	DAT_RETURN r = DAT_SUCCESS;

	if (!e || !ev || ev->event_number != DAT_SOFTWARE_EVENT)
		return FAULT(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
	pthread_mutex_lock(&e->lock);
	if (e->tail - e->head == ROOM) {
		r = FAULT(DAT_QUEUE_FULL, 0);
	} else {
		e->ring[e->tail % ROOM] = *ev;
		e->ring[e->tail++ % ROOM].evd_handle = evd;
		if (e->waiting)
			pthread_cond_signal(&e->more);
	}
	pthread_mutex_unlock(&e->lock);
	return r;
}

static DAT_RETURN evd_dequeue(DAT_EVD_HANDLE evd, DAT_EVENT *ev)
{
	struct evd *e = evd;
	DAT_RETURN r = DAT_SUCCESS;

	if (!e || !ev)
		return FAULT(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
	pthread_mutex_lock(&e->lock);
	if (e->head == e->tail)
		r = FAULT(DAT_QUEUE_EMPTY, 0);
	else
		*ev = e->ring[e->head++ % ROOM];
	pthread_mutex_unlock(&e->lock);
	return r;
}

static DAT_RETURN evd_wait(DAT_EVD_HANDLE evd, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT *ev, DAT_COUNT *more)
{
	struct evd *e = evd;
	struct timespec t;
	int err = 0;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += timeout / 1000000;
	t.tv_nsec += timeout % 1000000 * 1000L;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&e->lock);
	e->waiting = 1;
	while (e->tail - e->head < (unsigned)threshold && err != ETIMEDOUT)
		err = timeout == DAT_TIMEOUT_INFINITE ? pthread_cond_wait(&e->more, &e->lock)
						      : pthread_cond_timedwait(&e->more, &e->lock, &t);
	e->waiting = 0;
	if (err != ETIMEDOUT)
		*ev = e->ring[e->head++ % ROOM];
	*more = e->tail - e->head;
	pthread_mutex_unlock(&e->lock);
	return err == ETIMEDOUT ? FAULT(DAT_TIMEOUT_EXPIRED, 0) : DAT_SUCCESS;
}

void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *params)
{
	(void)params;
	table.device_name = strdup(info->ia_name);
	table.ia_open_func = ia_open;
	table.ia_query_func = ia_query;
	table.ia_close_func = ia_close;
	table.pz_create_func = pz_create;
	table.evd_create_func = evd_create;
	table.evd_free_func = evd_free;
	table.evd_post_se_func = evd_post_se;
	table.evd_dequeue_func = evd_dequeue;
	table.evd_wait_func = evd_wait;
	dat_registry_add_provider(&table, info);
}

void dat_provider_fini(const DAT_PROVIDER_INFO *info)
{
	dat_registry_remove_provider(&table, info);
}

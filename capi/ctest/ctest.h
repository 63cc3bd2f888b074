// What the C tests share: an IA of the name in argv[1], and checks that end the program.
#ifndef CTEST_H
#define CTEST_H

#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dat2/udat.h>
#include <dat2/dat_ib_extensions.h>

#define CHECK(cond) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			exit(1); \
		} \
	} while (0)

// OK expects success, FAILS a DAT_RETURN of a type and subtype.
#define OK(call) \
	do { \
		DAT_RETURN r_ = (call); \
		if (r_ != DAT_SUCCESS) { \
			fprintf(stderr, "%s:%d: %s: %#x\n", __FILE__, __LINE__, #call, r_); \
			exit(1); \
		} \
	} while (0)

#define FAILS(call, type, subtype) \
	do { \
		DAT_RETURN r_ = (call); \
		if (r_ != (DAT_RETURN)(DAT_CLASS_ERROR | (type) | (subtype))) { \
			fprintf(stderr, "%s:%d: %s: %#x, not %#x\n", __FILE__, __LINE__, #call, r_, \
				(unsigned)(DAT_CLASS_ERROR | (type) | (subtype))); \
			exit(1); \
		} \
	} while (0)

static DAT_IA_HANDLE ia;
static DAT_EVD_HANDLE async;
static DAT_PZ_HANDLE pz;

static inline void open_ia(const char *name)
{
	async = DAT_HANDLE_NULL;
	OK(dat_ia_open((DAT_NAME_PTR)name, 8, &async, &ia));
	OK(dat_pz_create(ia, &pz));
}

static inline void close_ia(void)
{
	OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
}

// expect waits for an event of a number on an EVD.
static inline DAT_EVENT expect(DAT_EVD_HANDLE evd, int number)
{
	DAT_EVENT ev;
	DAT_COUNT more;

	OK(dat_evd_wait(evd, 20 * 1000 * 1000, 1, &ev, &more));
	if ((int)ev.event_number != number) {
		fprintf(stderr, "event %#x, not %#x\n", ev.event_number, number);
		exit(1);
	}
	CHECK(ev.evd_handle == evd);
	return ev;
}

// A pair of connected EPs of the IA, each with one EVD for everything.
static DAT_EP_HANDLE ep[2];
static DAT_EVD_HANDLE evd[2];
static DAT_PSP_HANDLE psp;

static inline DAT_IA_ADDRESS_PTR address(void)
{
	DAT_IA_ATTR attr;

	memset(&attr, 0, sizeof attr);
	OK(dat_ia_query(ia, NULL, DAT_IA_FIELD_IA_ADDRESS_PTR, &attr, 0, NULL));
	return attr.ia_address_ptr;
}

static inline void connect_pair(void)
{
	DAT_CONN_QUAL qual;
	DAT_EVENT ev;
	DAT_CR_PARAM cr;
	char hello[] = "hello", welcome[] = "welcome";
	int i;

	for (i = 0; i < 2; i++) {
		OK(dat_evd_create(ia, 16, DAT_HANDLE_NULL, DAT_EVD_DEFAULT_FLAG & ~DAT_EVD_ASYNC_FLAG, &evd[i]));
		OK(dat_ep_create(ia, pz, evd[i], evd[i], evd[i], NULL, &ep[i]));
	}
	OK(dat_psp_create_any(ia, &qual, evd[1], DAT_PSP_CONSUMER_FLAG, &psp));
	OK(dat_ep_connect(ep[0], address(), qual, 10 * 1000 * 1000, sizeof hello, hello, DAT_QOS_BEST_EFFORT,
			  DAT_CONNECT_DEFAULT_FLAG));
	ev = expect(evd[1], DAT_CONNECTION_REQUEST_EVENT);
	CHECK(ev.event_data.cr_arrival_event_data.sp_handle.psp_handle == psp);
	CHECK(ev.event_data.cr_arrival_event_data.conn_qual == qual);
	OK(dat_cr_query(ev.event_data.cr_arrival_event_data.cr_handle, DAT_CR_FIELD_ALL, &cr));
	CHECK(cr.private_data_size >= (int)sizeof hello && !strcmp(cr.private_data, hello));
	CHECK(cr.remote_ia_address_ptr->sa_family == address()->sa_family);
	CHECK(cr.local_ep_handle == DAT_HANDLE_NULL);
	((char *)cr.private_data)[0] = 'j'; // programs do
	OK(dat_cr_accept(ev.event_data.cr_arrival_event_data.cr_handle, ep[1], sizeof welcome, welcome));
	FAILS(dat_cr_accept(ev.event_data.cr_arrival_event_data.cr_handle, ep[1], 0, NULL), DAT_INVALID_HANDLE,
	      DAT_INVALID_HANDLE_CR);
	ev = expect(evd[0], DAT_CONNECTION_EVENT_ESTABLISHED);
	CHECK(ev.event_data.connect_event_data.ep_handle == ep[0]);
	CHECK(ev.event_data.connect_event_data.private_data_size >= (int)sizeof welcome);
	CHECK(!strcmp(ev.event_data.connect_event_data.private_data, welcome));
	expect(evd[1], DAT_CONNECTION_EVENT_ESTABLISHED);
}

#endif

// One of two processes, of which the other is killed: usage peer IA QUALIFIER server|client [ADDRESS]. Says "connected" when it is,
// and passes if the end of the other shows as it should: receives flushed, then one event of the end, and nothing after it; then
// everything can be freed.
#include "ctest.h"

#include <arpa/inet.h>

#define RECEIVES 8

int main(int argc, char **argv)
{
	static char memory[4096];
	DAT_REGION_DESCRIPTION region;
	struct sockaddr_in to = { 0 };
	DAT_DTO_COOKIE cookie;
	DAT_LMR_CONTEXT ctx;
	DAT_LMR_TRIPLET t;
	DAT_LMR_HANDLE lmr;
	DAT_CONN_QUAL qual;
	DAT_COUNT more;
	DAT_EVENT ev;
	int i;

	CHECK(argc >= 4);
	qual = strtoull(argv[2], NULL, 10);
	open_ia(argv[1]);
	OK(dat_evd_create(ia, 16, DAT_HANDLE_NULL, DAT_EVD_DEFAULT_FLAG & ~DAT_EVD_ASYNC_FLAG, &evd[0]));
	OK(dat_ep_create(ia, pz, evd[0], evd[0], evd[0], NULL, &ep[0]));
	region.for_va = memory;
	OK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, &ctx, NULL, NULL,
			  NULL));
	t.virtual_address = (uintptr_t)memory;
	t.segment_length = 64;
	t.lmr_context = ctx;
	for (i = 0; i < RECEIVES; i++) {
		cookie.as_64 = i;
		OK(dat_ep_post_recv(ep[0], 1, &t, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	}
	if (!strcmp(argv[3], "server")) {
		OK(dat_psp_create(ia, qual, evd[0], DAT_PSP_CONSUMER_FLAG, &psp));
		puts("listening");
		fflush(stdout);
		ev = expect(evd[0], DAT_CONNECTION_REQUEST_EVENT);
		OK(dat_cr_accept(ev.event_data.cr_arrival_event_data.cr_handle, ep[0], 0, NULL));
	} else {
		CHECK(argc == 5);
		to.sin_family = AF_INET;
		CHECK(inet_pton(AF_INET, argv[4], &to.sin_addr) == 1);
		OK(dat_ep_connect(ep[0], (DAT_IA_ADDRESS_PTR)&to, qual, 10 * 1000 * 1000, 0, NULL, DAT_QOS_BEST_EFFORT,
				  DAT_CONNECT_DEFAULT_FLAG));
	}
	expect(evd[0], DAT_CONNECTION_EVENT_ESTABLISHED);
	puts("connected");
	fflush(stdout);
	for (i = 0; i < RECEIVES; i++) {
		ev = expect(evd[0], DAT_DTO_COMPLETION_EVENT);
		CHECK(ev.event_data.dto_completion_event_data.status == DAT_DTO_ERR_FLUSHED);
		CHECK(ev.event_data.dto_completion_event_data.user_cookie.as_64 == (uint64_t)i);
	}
	OK(dat_evd_wait(evd[0], 20 * 1000 * 1000, 1, &ev, &more));
	CHECK(ev.event_number == DAT_CONNECTION_EVENT_DISCONNECTED || ev.event_number == DAT_CONNECTION_EVENT_BROKEN);
	CHECK(ev.event_data.connect_event_data.ep_handle == ep[0] && more == 0);
	FAILS(dat_evd_wait(evd[0], 10000, 1, &ev, &more), DAT_TIMEOUT_EXPIRED, 0);
	OK(dat_ep_free(ep[0]));
	OK(dat_lmr_free(lmr));
	OK(dat_pz_free(pz));
	if (psp)
		OK(dat_psp_free(psp));
	OK(dat_evd_free(evd[0]));
	OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
	puts("PASS");
	return 0;
}

// Memory, end points, requests: what Debian's programs never call.
#include "ctest.h"

static char memory[8192] __attribute__((aligned(4096)));
static DAT_LMR_HANDLE lmr;
static DAT_LMR_CONTEXT lctx;
static DAT_RMR_CONTEXT rctx;

static DAT_LMR_TRIPLET local(int off, int n)
{
	DAT_LMR_TRIPLET t = { (uintptr_t)memory + off, n, lctx };

	return t;
}

static DAT_EVENT completion(DAT_EVD_HANDLE e, uint64_t cookie, int operation)
{
	DAT_EVENT ev = expect(e, DAT_DTO_COMPLETION_EVENT);

	CHECK(ev.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
	CHECK(ev.event_data.dto_completion_event_data.user_cookie.as_64 == cookie);
	CHECK((int)ev.event_data.dto_completion_event_data.operation == operation);
	return ev;
}

int main(int argc, char **argv)
{
	DAT_LMR_TRIPLET t, two[2];
	DAT_RMR_TRIPLET remote;
	DAT_DTO_COOKIE cookie;
	DAT_EVENT ev;
	DAT_EP_PARAM param;
	DAT_EP_STATE state;
	DAT_BOOLEAN recv_idle, request_idle;
	DAT_LMR_PARAM lparam;
	DAT_LMR_HANDLE twin;
	DAT_VLEN length;
	DAT_VADDR registered;
	DAT_PZ_PARAM pparam;
	DAT_PZ_HANDLE gone;
	DAT_SRQ_HANDLE srq;
	DAT_SRQ_ATTR sattr = { 8, 2, DAT_SRQ_LW_DEFAULT };
	DAT_SRQ_PARAM sparam;
	DAT_PROVIDER_ATTR prov;
	DAT_IA_ATTR attr;
	DAT_REGION_DESCRIPTION region;
	DAT_COUNT buffers, span;
	DAT_EP_HANDLE third;
	DAT_RMR_HANDLE rmr;
	DAT_RMR_CONTEXT bound;
	DAT_RMR_PARAM rparam;
	int i;

	CHECK(argc == 2);
	open_ia(argv[1]);
	memset(&attr, 0, sizeof attr);
	memset(&prov, 0, sizeof prov);
	OK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &prov));
	CHECK(!strcmp(attr.adapter_name, argv[1]) && prov.dapl_version_major == 2 && !prov.is_thread_safe);
	for (i = 0; i < prov.num_provider_specific_attr; i++)
		CHECK(prov.provider_specific_attr[i].name && prov.provider_specific_attr[i].value);
	FAILS(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, NULL, 0, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);

	region.for_va = memory;
	OK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, &lctx,
			  &rctx, &length, &registered));
	CHECK(length == sizeof memory && registered == (uintptr_t)memory);
	FAILS(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, 0, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &twin, NULL, NULL, NULL,
			     NULL), DAT_LENGTH_ERROR, 0);
	OK(dat_lmr_query(lmr, DAT_LMR_FIELD_ALL, &lparam));
	CHECK(lparam.ia_handle == ia && lparam.pz_handle == pz && lparam.region_desc.for_va == memory);
	CHECK(lparam.mem_priv == DAT_MEM_PRIV_ALL_FLAG);
	region.for_lmr_handle = lmr;
	OK(dat_lmr_create(ia, DAT_MEM_TYPE_LMR, region, 0, pz, DAT_MEM_PRIV_LOCAL_WRITE_FLAG, DAT_VA_TYPE_VA, &twin, NULL, NULL, NULL,
			  NULL));
	OK(dat_lmr_query(twin, DAT_LMR_FIELD_ALL, &lparam));
	CHECK(lparam.region_desc.for_lmr_handle == lmr && lparam.mem_priv == DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
	OK(dat_lmr_free(twin));
	FAILS(dat_lmr_free(twin), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR);
	t = local(0, 64);
	OK(dat_lmr_sync_rdma_read(ia, &t, 1));
	OK(dat_lmr_sync_rdma_write(ia, &t, 1));
	t.lmr_context = ~t.lmr_context;
	FAILS(dat_lmr_sync_rdma_read(ia, &t, 1), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
	OK(dat_pz_query(pz, DAT_PZ_FIELD_ALL, &pparam));
	CHECK(pparam.ia_handle == ia);
	FAILS(dat_pz_free(pz), DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE);
	OK(dat_pz_create(ia, &gone));
	OK(dat_pz_free(gone));
	FAILS(dat_ep_create(ia, gone, NULL, NULL, NULL, NULL, &third), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
	FAILS(dat_ep_create(ia, (DAT_PZ_HANDLE)1, NULL, NULL, NULL, NULL, &third), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
	FAILS(dat_ep_create(ia, lmr, NULL, NULL, NULL, NULL, &third), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);

	connect_pair();
	OK(dat_ep_query(ep[0], DAT_EP_FIELD_ALL, &param));
	CHECK(param.ia_handle == ia && param.pz_handle == pz && param.recv_evd_handle == evd[0] && param.srq_handle == NULL);
	CHECK(param.ep_state == DAT_EP_STATE_CONNECTED && param.remote_ia_address_ptr->sa_family == address()->sa_family);
	FAILS(dat_ep_modify(ep[0], DAT_EP_FIELD_PZ_HANDLE, &param), DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);

	// A message in two segments, and one of none.
	cookie.as_64 = 0xAAAABBBBCCCCDDDD;
	t = local(4096, 64);
	OK(dat_ep_post_recv(ep[1], 1, &t, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	if (dat_ep_recv_query(ep[1], &buffers, &span) == DAT_SUCCESS)
		CHECK(buffers == 1);
	OK(dat_ep_post_recv(ep[1], 0, NULL, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	memcpy(memory, "abcdefgh", 8);
	two[0] = local(0, 3);
	two[1] = local(3, 5);
	OK(dat_ep_post_send(ep[0], 2, two, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	OK(dat_ep_post_send(ep[0], 0, NULL, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	FAILS(dat_ep_post_send(ep[0], 1, NULL, cookie, DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
	ev = completion(evd[1], cookie.as_64, DAT_DTO_RECEIVE);
	CHECK(ev.event_data.dto_completion_event_data.transfered_length == 8 && !memcmp(memory + 4096, "abcdefgh", 8));
	CHECK(ev.event_data.dto_completion_event_data.ep_handle == ep[1]);
	ev = completion(evd[1], cookie.as_64, DAT_DTO_RECEIVE);
	CHECK(ev.event_data.dto_completion_event_data.transfered_length == 0);
	completion(evd[0], cookie.as_64, DAT_DTO_SEND);
	completion(evd[0], cookie.as_64, DAT_DTO_SEND);

	remote.virtual_address = (uintptr_t)memory + 6000;
	remote.segment_length = 8;
	remote.rmr_context = rctx;
	t = local(0, 8);
	OK(dat_ep_post_rdma_write(ep[0], 1, &t, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
	completion(evd[0], cookie.as_64, DAT_DTO_RDMA_WRITE);
	t = local(7000, 8);
	OK(dat_ep_post_rdma_read(ep[0], 1, &t, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
	completion(evd[0], cookie.as_64, DAT_DTO_RDMA_READ);
	CHECK(!memcmp(memory + 7000, "abcdefgh", 8));

	// A window, if the adapter has them.
	if (attr.max_rmrs > 0) {
		OK(dat_rmr_create(pz, &rmr));
		t = local(0, 4096);
		OK(dat_rmr_bind(rmr, lmr, &t, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA, ep[1], cookie, DAT_COMPLETION_DEFAULT_FLAG,
				&bound));
		ev = expect(evd[1], DAT_RMR_BIND_COMPLETION_EVENT);
		CHECK(ev.event_data.rmr_completion_event_data.rmr_handle == rmr);
		CHECK(ev.event_data.rmr_completion_event_data.user_cookie.as_64 == cookie.as_64);
		OK(dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &rparam));
		CHECK(rparam.rmr_context == bound && rparam.lmr_triplet.segment_length == 4096 && rparam.ia_handle == ia);
		OK(dat_rmr_free(rmr));
	}

	// The end: flushed receives, then one DISCONNECTED on each side; reset; a second connection of the same EPs.
	t = local(4096, 64);
	OK(dat_ep_post_recv(ep[1], 1, &t, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	OK(dat_ep_disconnect(ep[0], DAT_CLOSE_GRACEFUL_FLAG));
	expect(evd[0], DAT_CONNECTION_EVENT_DISCONNECTED);
	ev = expect(evd[1], DAT_DTO_COMPLETION_EVENT);
	CHECK(ev.event_data.dto_completion_event_data.status == DAT_DTO_ERR_FLUSHED);
	expect(evd[1], DAT_CONNECTION_EVENT_DISCONNECTED);
	OK(dat_ep_disconnect(ep[1], DAT_CLOSE_ABRUPT_FLAG));
	CHECK(DAT_GET_TYPE(dat_evd_dequeue(evd[1], &ev)) == DAT_QUEUE_EMPTY);
	for (i = 0; i < 2; i++) {
		OK(dat_ep_reset(ep[i]));
		OK(dat_ep_get_status(ep[i], &state, &recv_idle, &request_idle));
		CHECK(state == DAT_EP_STATE_UNCONNECTED && recv_idle && request_idle);
		OK(dat_ep_free(ep[i]));
		FAILS(dat_ep_free(ep[i]), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
	}
	OK(dat_psp_free(psp));

	// A shared receive queue.
	FAILS(dat_srq_create(ia, pz, NULL, &srq), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
	OK(dat_srq_create(ia, pz, &sattr, &srq));
	for (i = 0; i < 4; i++)
		OK(dat_srq_post_recv(srq, 1, &t, cookie));
	OK(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &sparam));
	CHECK(sparam.ia_handle == ia && sparam.pz_handle == pz && sparam.max_recv_dtos >= 8 && sparam.available_dto_count == 4);
	OK(dat_srq_resize(srq, 16));
	if (prov.srq_watermarks_supported) {
		OK(dat_srq_set_lw(srq, 6));
		ev = expect(async, 0x08201);
		CHECK(ev.event_data.asynch_error_event_data.dat_handle == srq);
		CHECK(ev.event_data.asynch_error_event_data.reason == DAT_SRQ_LOW_WATERMARK_EVENT);
	}
	OK(dat_srq_free(srq));
	FAILS(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);
	close_ia();
	FAILS(dat_pz_free(pz), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
	puts("PASS");
	return 0;
}

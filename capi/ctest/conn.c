// Connections and requests that libdat2 has no functions for, or Debian's programs none: CSP and common_connect,
// dup_connect, handoff, reject, RSP, EPs that the provider makes, windows of an EP and sends that invalidate them, reads to a
// window, datagrams; and stale handles of every kind. What libdat2 does not export is called through the provider's table,
// on an IA that is opened through it too.
#include "ctest.h"

#include <dat2/dat_registry.h>

static const DAT_PROVIDER *table;
static DAT_IA_HANDLE raw;
static DAT_PZ_HANDLE rawpz;
static char memory[4096] __attribute__((aligned(4096)));
static DAT_LMR_HANDLE lmr;
static DAT_LMR_CONTEXT lctx;
static DAT_RMR_CONTEXT rctx;
static DAT_IA_ADDRESS_PTR here;
static int windows, datagrams;
static DAT_DTO_COOKIE cookie;

#define SECONDS (1000 * 1000)

static DAT_EVD_HANDLE new_evd(void)
{
	DAT_EVD_HANDLE e;

	OK(table->evd_create_func(raw, 16, DAT_HANDLE_NULL, DAT_EVD_DEFAULT_FLAG & ~DAT_EVD_ASYNC_FLAG, &e));
	return e;
}

static DAT_EP_HANDLE new_ep(DAT_EVD_HANDLE e, const DAT_EP_ATTR *attr)
{
	DAT_EP_HANDLE out;

	OK(table->ep_create_func(raw, rawpz, e, e, e, attr, &out));
	return out;
}

static DAT_LMR_TRIPLET local(int off, int n)
{
	DAT_LMR_TRIPLET t = { (uintptr_t)memory + off, n, lctx };

	return t;
}

// arrived is the request of an event.
static DAT_CR_HANDLE arrived(DAT_EVD_HANDLE e, DAT_HANDLE sp, DAT_CONN_QUAL qual)
{
	DAT_EVENT ev = expect(e, DAT_CONNECTION_REQUEST_EVENT);

	CHECK(ev.event_data.cr_arrival_event_data.sp_handle.psp_handle == sp);
	CHECK(!qual || ev.event_data.cr_arrival_event_data.conn_qual == qual);
	return ev.event_data.cr_arrival_event_data.cr_handle;
}

static void connected(DAT_EVD_HANDLE a, DAT_EVD_HANDLE b)
{
	expect(a, DAT_CONNECTION_EVENT_ESTABLISHED);
	expect(b, DAT_CONNECTION_EVENT_ESTABLISHED);
}

static void end(DAT_EP_HANDLE a, DAT_EVD_HANDLE ae, DAT_EVD_HANDLE be)
{
	OK(dat_ep_disconnect(a, DAT_CLOSE_GRACEFUL_FLAG));
	expect(ae, DAT_CONNECTION_EVENT_DISCONNECTED);
	expect(be, DAT_CONNECTION_EVENT_DISCONNECTED);
}

// A common service point takes requests by address and port.
static void common(DAT_EVD_HANDLE a, DAT_EVD_HANDLE b)
{
	DAT_COMM comm = { 0 };
	DAT_CSP_HANDLE csp;
	DAT_CSP_PARAM param;
	DAT_EP_HANDLE x = new_ep(a, NULL), y = new_ep(b, NULL);

	comm.domain = here->sa_family;
	OK(table->csp_create_func(raw, &comm, NULL, b, &csp));
	OK(table->csp_query_func(csp, DAT_CSP_FIELD_ALL, &param));
	CHECK(param.evd_handle == b && param.comm->domain == comm.domain && param.address_ptr->sa_family == here->sa_family);
	CHECK(((struct sockaddr_in *)param.address_ptr)->sin_port);
	FAILS(table->ep_common_connect_func(x, NULL, 10 * SECONDS, 0, NULL), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
	OK(table->ep_common_connect_func(x, param.address_ptr, 10 * SECONDS, 0, NULL));
	OK(dat_cr_accept(arrived(b, csp, 0), y, 0, NULL));
	connected(a, b);
	end(x, a, b);
	OK(dat_ep_free(x));
	OK(dat_ep_free(y));
	OK(table->csp_free_func(csp));
	FAILS(table->csp_free_func(csp), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CSP);
	FAILS(table->csp_query_func(csp, DAT_CSP_FIELD_ALL, &param), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CSP);
}

// A request may be rejected, or handed to another service point, and an EP connect where another is connected to.
static void requests(DAT_EVD_HANDLE a, DAT_EVD_HANDLE b)
{
	DAT_PSP_HANDLE first, second;
	DAT_CONN_QUAL q1, q2;
	DAT_EVD_HANDLE other = new_evd(), third = new_evd();
	DAT_EP_HANDLE x = new_ep(a, NULL), y = new_ep(b, NULL), z = new_ep(third, NULL), w = new_ep(other, NULL);
	char no[] = "no";
	DAT_CR_HANDLE cr;
	DAT_EVENT ev;

	OK(table->psp_create_any_func(raw, &q1, b, DAT_PSP_CONSUMER_FLAG, &first));
	OK(table->psp_create_any_func(raw, &q2, other, DAT_PSP_CONSUMER_FLAG, &second));
	FAILS(table->ep_dup_connect_func(z, x, 10 * SECONDS, 0, NULL, DAT_QOS_BEST_EFFORT), DAT_INVALID_STATE,
	      DAT_INVALID_STATE_EP_UNCONNECTED);

	OK(dat_ep_connect(x, here, q1, 10 * SECONDS, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	cr = arrived(b, first, q1);
	OK(table->cr_reject_func(cr, sizeof no, no));
	FAILS(table->cr_reject_func(cr, 0, NULL), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR);
	ev = expect(a, DAT_CONNECTION_EVENT_PEER_REJECTED);
	CHECK(ev.event_data.connect_event_data.private_data_size >= (int)sizeof no);
	CHECK(!strcmp(ev.event_data.connect_event_data.private_data, no));
	OK(dat_ep_reset(x));

	OK(dat_ep_connect(x, here, q1, 10 * SECONDS, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	cr = arrived(b, first, q1);
	FAILS(dat_cr_handoff(cr, 1), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
	OK(dat_cr_handoff(cr, q2));
	FAILS(dat_cr_handoff(cr, q2), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR);
	OK(dat_cr_accept(arrived(other, second, 0), w, 0, NULL));
	connected(a, other);

	OK(dat_ep_dup_connect(z, x, 10 * SECONDS, 0, NULL, DAT_QOS_BEST_EFFORT));
	OK(dat_cr_accept(arrived(b, first, q1), y, 0, NULL));
	connected(third, b);
	end(x, a, other);
	end(z, third, b);
	OK(dat_ep_free(x));
	OK(dat_ep_free(y));
	OK(dat_ep_free(z));
	OK(dat_ep_free(w));
	OK(dat_psp_free(first));
	OK(dat_psp_free(second));
	FAILS(dat_psp_free(second), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PSP);
	OK(dat_evd_free(other));
	OK(dat_evd_free(third));
}

// An EP that waits for one request, and one that the provider makes.
static void reserved(DAT_EVD_HANDLE a, DAT_EVD_HANDLE b)
{
	DAT_EP_HANDLE x = new_ep(a, NULL), y = new_ep(b, NULL), made;
	DAT_RSP_HANDLE rsp;
	DAT_RSP_PARAM param;
	DAT_PSP_HANDLE sp;
	DAT_CONN_QUAL qual;
	DAT_CR_HANDLE cr;
	DAT_CR_PARAM cparam;

	// A qualifier that is free: that of a service point that was there.
	OK(table->psp_create_any_func(raw, &qual, b, DAT_PSP_CONSUMER_FLAG, &sp));
	OK(dat_psp_free(sp));
	OK(table->rsp_create_func(raw, qual, y, b, &rsp));
	OK(dat_rsp_query(rsp, DAT_RSP_FIELD_ALL, &param));
	CHECK(param.conn_qual == qual && param.ep_handle == y && param.evd_handle == b);
	OK(dat_ep_connect(x, here, qual, 10 * SECONDS, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	OK(dat_cr_accept(arrived(b, rsp, qual), DAT_HANDLE_NULL, 0, NULL));
	connected(a, b);
	end(x, a, b);
	OK(dat_rsp_free(rsp));
	FAILS(dat_rsp_free(rsp), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RSP);
	OK(dat_ep_free(y));

	OK(dat_ep_reset(x));
	OK(table->psp_create_any_func(raw, &qual, b, DAT_PSP_PROVIDER_FLAG, &sp));
	OK(dat_ep_connect(x, here, qual, 10 * SECONDS, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	cr = arrived(b, sp, qual);
	OK(dat_cr_query(cr, DAT_CR_FIELD_ALL, &cparam));
	made = cparam.local_ep_handle;
	CHECK(made);
	OK(dat_cr_reject(cr, 0, NULL));
	expect(a, DAT_CONNECTION_EVENT_PEER_REJECTED);
	FAILS(dat_ep_free(made), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
	OK(dat_ep_free(x));
	OK(dat_psp_free(sp));
}

static void completed(DAT_EVD_HANDLE e, int operation)
{
	DAT_EVENT ev = expect(e, DAT_DTO_COMPLETION_EVENT);

	CHECK(ev.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
	CHECK((int)ev.event_data.dto_completion_event_data.operation == operation);
}

// A window that belongs to an EP, a peer's send that invalidates it, and a read whose sink is one.
static void invalidation(DAT_EVD_HANDLE a, DAT_EVD_HANDLE b)
{
	DAT_EP_HANDLE x = new_ep(a, NULL), y = new_ep(b, NULL);
	DAT_LMR_TRIPLET t = local(0, 1024), in = local(2048, 64);
	DAT_RMR_TRIPLET from, to;
	DAT_RMR_HANDLE rmr, plain;
	DAT_RMR_CONTEXT ctx;
	DAT_PSP_HANDLE sp;
	DAT_CONN_QUAL qual;
	DAT_EVENT ev;

	OK(table->psp_create_any_func(raw, &qual, b, DAT_PSP_CONSUMER_FLAG, &sp));
	OK(dat_ep_connect(x, here, qual, 10 * SECONDS, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	OK(dat_cr_accept(arrived(b, sp, qual), y, 0, NULL));
	connected(a, b);

	OK(table->rmr_create_for_ep_func(rawpz, &rmr));
	OK(dat_rmr_bind(rmr, lmr, &t, DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA, y, cookie,
			DAT_COMPLETION_DEFAULT_FLAG, &ctx));
	ev = expect(b, DAT_RMR_BIND_COMPLETION_EVENT);
	CHECK(ev.event_data.rmr_completion_event_data.status == DAT_RMR_BIND_SUCCESS);

	memcpy(memory, "windowed", 8);
	from.virtual_address = (uintptr_t)memory;
	from.segment_length = 8;
	from.rmr_context = ctx;
	t = local(1024, 8);
	OK(dat_ep_post_rdma_read(x, 1, &t, cookie, &from, DAT_COMPLETION_DEFAULT_FLAG));
	completed(a, DAT_DTO_RDMA_READ);
	CHECK(!memcmp(memory + 1024, "windowed", 8));

	to.virtual_address = (uintptr_t)memory + 3072;
	to.segment_length = 8;
	to.rmr_context = rctx;
	OK(table->ep_post_rdma_read_to_rmr_func(x, &to, cookie, &from, DAT_COMPLETION_DEFAULT_FLAG));
	completed(a, DAT_DTO_RDMA_READ);
	CHECK(!memcmp(memory + 3072, "windowed", 8));
	FAILS(table->ep_post_rdma_read_to_rmr_func(x, NULL, cookie, &from, DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_PARAMETER,
	      DAT_INVALID_ARG2);

	OK(dat_ep_post_recv(y, 1, &in, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	t = local(0, 8);
	OK(table->ep_post_send_with_invalidate_func(x, 1, &t, cookie, DAT_COMPLETION_DEFAULT_FLAG, DAT_TRUE, ctx));
	completed(a, DAT_DTO_SEND);
	ev = expect(b, DAT_DTO_COMPLETION_EVENT);
	CHECK(ev.event_data.dto_completion_event_data.operation == DAT_DTO_RECEIVE_WITH_INVALIDATE);
	CHECK(ev.event_data.dto_completion_event_data.rmr_context == ctx);
	OK(dat_rmr_free(rmr));
	FAILS(dat_rmr_free(rmr), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RMR);
	OK(dat_rmr_create(rawpz, &plain));
	OK(dat_rmr_free(plain));
	end(x, a, b);
	OK(dat_ep_free(x));
	OK(dat_ep_free(y));
	OK(dat_psp_free(sp));
}

// Datagrams: a connect asks where the peer is, and the answer has the address to send to.
static void datagram(DAT_EVD_HANDLE a, DAT_EVD_HANDLE b)
{
	DAT_EP_ATTR attr;
	DAT_EP_PARAM param;
	DAT_EP_HANDLE x = new_ep(a, NULL), y;
	DAT_IB_EXTENSION_EVENT_DATA *ext;
	DAT_IB_ADDR_HANDLE ah, back;
	DAT_LMR_TRIPLET in = local(0, 128), t = local(1024, 8);
	DAT_PSP_HANDLE sp;
	DAT_CONN_QUAL qual;
	DAT_EVENT ev;

	OK(dat_ep_query(x, DAT_EP_FIELD_ALL, &param));
	OK(dat_ep_free(x));
	attr = param.ep_attr;
	attr.service_type = (DAT_SERVICE_TYPE)DAT_IB_SERVICE_TYPE_UD;
	x = new_ep(a, &attr);
	y = new_ep(b, &attr);
	OK(table->psp_create_any_func(raw, &qual, b, DAT_PSP_CONSUMER_FLAG, &sp));
	OK(dat_ep_connect(x, here, qual, 10 * SECONDS, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	ev = expect(b, DAT_IB_UD_CONNECTION_REQUEST_EVENT);
	OK(dat_cr_accept(ev.event_data.cr_arrival_event_data.cr_handle, y, 0, NULL));
	ev = expect(a, DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED);
	ext = (DAT_IB_EXTENSION_EVENT_DATA *)ev.event_extension_data;
	ah = ext->remote_ah;
	CHECK(ext->type == DAT_IB_UD_REMOTE_AH && ah.ah && ah.qpn);
	ev = expect(b, DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED);
	back = ((DAT_IB_EXTENSION_EVENT_DATA *)ev.event_extension_data)->remote_ah;

	OK(dat_ep_post_recv(y, 1, &in, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	memcpy(memory + 1024, "datagram", 8);
	OK(dat_ib_post_send_ud(x, 1, &t, &ah, cookie, DAT_COMPLETION_DEFAULT_FLAG));
	ev = expect(b, DAT_IB_DTO_EVENT);
	CHECK(ev.event_data.dto_completion_event_data.transfered_length == 48 && !memcmp(memory + 40, "datagram", 8));
	ev = expect(a, DAT_IB_DTO_EVENT);
	CHECK(ev.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
	OK(dat_ib_ud_ah_free(x, &ah));
	FAILS(dat_ib_ud_ah_free(x, &ah), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE4);
	FAILS(dat_ib_post_send_ud(x, 1, &t, &ah, cookie, DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE4);
	OK(dat_ib_ud_ah_free(y, &back));
	OK(dat_ep_free(x));
	OK(dat_ep_free(y));
	OK(dat_psp_free(sp));
}

// What is freed, of another kind, or no handle at all is refused, and harms nothing.
static void stale(void)
{
	DAT_EVD_HANDLE e = new_evd(), kinds[5];
	DAT_CNO_HANDLE cno;
	DAT_SRQ_HANDLE srq;
	DAT_SRQ_ATTR sattr = { 8, 2, DAT_SRQ_LW_DEFAULT };
	DAT_EVENT ev;
	DAT_COUNT more;
	DAT_CONTEXT ctx;
	DAT_HANDLE_TYPE type;
	DAT_EVD_HANDLE triggered;
	int i;

	OK(table->cno_create_func(raw, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
	OK(dat_cno_free(cno));
	OK(table->srq_create_func(raw, rawpz, &sattr, &srq));
	OK(dat_srq_free(srq));
	OK(dat_evd_free(e));
	memset(&ev, 0, sizeof ev);
	ev.event_number = DAT_SOFTWARE_EVENT;
	kinds[0] = e;
	kinds[1] = cno;
	kinds[2] = srq;
	kinds[3] = lmr;
	kinds[4] = (char *)e + 8; // within a shell
	for (i = 0; i < 5; i++) {
		FAILS(table->evd_dequeue_func(kinds[i], &ev), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
		FAILS(table->evd_post_se_func(kinds[i], &ev), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
		FAILS(table->evd_wait_func(kinds[i], 0, 1, &ev, &more), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
		FAILS(table->cno_wait_func(kinds[i], 0, &triggered), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
		FAILS(table->srq_free_func(kinds[i]), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_SRQ);
	}
	FAILS(dat_get_consumer_context(e, &ctx), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
	FAILS(dat_set_consumer_context(e, ctx), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
	FAILS(table->get_handle_type_func(e, &type), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
}

int main(int argc, char **argv)
{
	DAT_EVD_HANDLE a, b, rawasync = DAT_HANDLE_NULL;
	DAT_IA_ATTR attr;
	DAT_PROVIDER_ATTR prov;
	DAT_REGION_DESCRIPTION region;
	int i;

	CHECK(argc == 2);
	open_ia(argv[1]);
	table = *(DAT_PROVIDER **)pz;
	OK(table->ia_open_func(argv[1], 8, &rawasync, &raw));
	OK(table->pz_create_func(raw, &rawpz));
	memset(&attr, 0, sizeof attr);
	memset(&prov, 0, sizeof prov);
	OK(table->ia_query_func(raw, NULL, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &prov));
	here = attr.ia_address_ptr;
	windows = attr.max_rmrs > 0;
	for (i = 0; i < prov.num_provider_specific_attr; i++)
		if (!strcmp(prov.provider_specific_attr[i].name, DAT_IB_ATTR_UD))
			datagrams = !strcmp(prov.provider_specific_attr[i].value, "TRUE");
	region.for_va = memory;
	OK(table->lmr_create_func(raw, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, rawpz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr,
				  &lctx, &rctx, NULL, NULL));
	a = new_evd();
	b = new_evd();
	common(a, b);
	requests(a, b);
	reserved(a, b);
	if (windows)
		invalidation(a, b);
	if (datagrams)
		datagram(a, b);
	stale();
	OK(dat_evd_free(a));
	OK(dat_evd_free(b));
	OK(dat_lmr_free(lmr));
	OK(dat_pz_free(rawpz));
	OK(table->ia_close_func(raw, DAT_CLOSE_GRACEFUL_FLAG));
	FAILS(table->ia_close_func(raw, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
	close_ia();
	printf("windows %d, datagrams %d\n", windows, datagrams);
	puts("PASS");
	return 0;
}

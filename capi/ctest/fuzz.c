// Calls every entry of the provider table with arguments drawn by seed, from several threads: handles that are live, of another
// type, freed, null, or none at all; numbers at the borders of their types; flags and masks that nobody defined; null where a
// pointer is expected. What must hold: the library does not crash or hang, each return is one that DAT knows, a handle that never
// was one is refused as such, an error hands no handle out, and at the end everything closes.
//
// What an adapter cannot check is not drawn: addresses of memory that is not there, and lengths beyond it.
//
// usage: fuzz IA SEED CALLS THREADS
#include "ctest.h"

#include <pthread.h>
#include <stdarg.h>
#include <unistd.h>

#include <dat2/dat_registry.h>

#define MEMORY 65536
#define HANDLES 256

static char memory[MEMORY] __attribute__((aligned(4096)));
static const char *ia_name;
static const DAT_PROVIDER *table;
static DAT_HANDLE inner; // the IA as the provider knows it

// The handles that were ever handed out; the oldest are forgotten.
static DAT_HANDLE known[HANDLES];
static unsigned known_next;

extern DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE, DAT_IA_HANDLE *); // of the registry, to which an IA is a number

// What a thread draws from, and what it does now.
typedef struct {
	uint64_t state;
	unsigned calls, ok, refused;
	const char *doing;
	int none; // the first handle of this call never was one
	DAT_LMR_TRIPLET iov[64];
	DAT_RMR_TRIPLET remote;
	char out[8192], private[8192];
	DAT_HANDLE handle;
	struct sockaddr_storage sa;
	DAT_EP_ATTR ep;
	DAT_EP_PARAM param;
	DAT_SRQ_ATTR srq;
	DAT_COMM comm;
	DAT_EVENT event;
} drawer;

static uint64_t draw(drawer *d) // xorshift64*
{
	d->state ^= d->state >> 12;
	d->state ^= d->state << 25;
	d->state ^= d->state >> 27;
	return d->state * 2685821657736338717ULL;
}

static unsigned below(drawer *d, unsigned n) { return (unsigned)(draw(d) >> 33) % n; }

static uint64_t border(drawer *d)
{
	static const uint64_t at[] = {0, 1, 2, 3, 4, 8, 16, 64, 100, 255, 256, 4095, 4096, 65535, 65536, 0x7fffffff, 0x80000000, 0xffffffff,
		0x100000000, 0x7fffffffffffffff, 0x8000000000000000, ~0ULL};

	return below(d, 4) ? at[below(d, sizeof at / sizeof *at)] : draw(d);
}

static int small(drawer *d) // a number that is often good
{
	return below(d, 3) ? (int)below(d, 20) : (int)border(d);
}

static DAT_HANDLE one_known(drawer *d)
{
	unsigned n = __atomic_load_n(&known_next, __ATOMIC_RELAXED);

	return __atomic_load_n(&known[below(d, n < HANDLES ? n : HANDLES)], __ATOMIC_RELAXED);
}

static DAT_HANDLE any(drawer *d)
{
	switch (below(d, 16)) {
	case 0:
		return DAT_HANDLE_NULL;
	case 1:
		return (DAT_HANDLE)(uintptr_t)border(d);
	case 2:
		return (char *)one_known(d) + 8;
	case 3:
		return memory;
	default:
		return one_known(d);
	}
}

// typed draws a handle that is, with luck, of a type.
static DAT_HANDLE typed(drawer *d, DAT_HANDLE_TYPE want)
{
	DAT_HANDLE_TYPE type;
	int i;

	for (i = 0; i < 30 && below(d, 20); i++) {
		DAT_HANDLE h = one_known(d);

		if (h && table->get_handle_type_func(h, &type) == DAT_SUCCESS && type == want)
			return h;
	}
	return any(d);
}

// first is the handle that a call is about.
static DAT_HANDLE first(drawer *d, DAT_HANDLE_TYPE want)
{
	d->none = !below(d, 20);
	if (d->none)
		return below(d, 2) ? (DAT_HANDLE)memory : (DAT_HANDLE)(uintptr_t)(below(d, 3) * 8);
	return typed(d, want);
}

static DAT_HANDLE the_ia(drawer *d)
{
	d->none = 0;
	return below(d, 10) ? inner : first(d, DAT_HANDLE_TYPE_IA);
}

static void *out(drawer *d) { return below(d, 20) ? d->out : NULL; }

static DAT_HANDLE *handle(drawer *d)
{
	d->handle = DAT_HANDLE_NULL;
	return below(d, 20) ? &d->handle : NULL;
}

static DAT_LMR_TRIPLET *iov(drawer *d)
{
	unsigned i;

	for (i = 0; i < sizeof d->iov / sizeof *d->iov; i++) {
		DAT_LMR_PARAM p;

		d->iov[i].lmr_context = (DAT_LMR_CONTEXT)border(d);
		if (i < 4 && below(d, 8) && table->lmr_query_func(typed(d, DAT_HANDLE_TYPE_LMR), DAT_LMR_FIELD_ALL, &p) == DAT_SUCCESS)
			d->iov[i].lmr_context = p.lmr_context;
		d->iov[i].virtual_address = below(d, 4) ? (DAT_VADDR)(uintptr_t)(memory + below(d, MEMORY)) : border(d);
		d->iov[i].segment_length = below(d, 4) ? below(d, 100) : border(d);
	}
	return below(d, 20) ? d->iov : NULL;
}

static DAT_COUNT segments(drawer *d) { return below(d, 4) ? (int)below(d, 3) : (int)border(d); }

static DAT_RMR_TRIPLET *remote(drawer *d)
{
	DAT_LMR_PARAM p;

	d->remote.rmr_context = (DAT_RMR_CONTEXT)border(d);
	if (below(d, 8) && table->lmr_query_func(typed(d, DAT_HANDLE_TYPE_LMR), DAT_LMR_FIELD_ALL, &p) == DAT_SUCCESS)
		d->remote.rmr_context = p.rmr_context;
	d->remote.virtual_address = below(d, 4) ? (DAT_VADDR)(uintptr_t)(memory + below(d, MEMORY)) : border(d);
	d->remote.segment_length = below(d, 4) ? below(d, 100) : border(d);
	return below(d, 20) ? &d->remote : NULL;
}

static void *private(drawer *d) { return below(d, 20) ? d->private : NULL; }

static DAT_CONTEXT cookie(drawer *d)
{
	DAT_CONTEXT c;

	c.as_64 = border(d);
	return c;
}

static DAT_TIMEOUT brief(drawer *d) { return below(d, 2) ? 0 : below(d, 2000); }

static DAT_IA_ADDRESS_PTR sockaddr(drawer *d)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&d->sa;

	memset(&d->sa, 0, sizeof d->sa);
	in->sin_family = below(d, 5) ? AF_INET : (sa_family_t)border(d);
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	in->sin_port = htons((uint16_t)(47700 + below(d, 8)));
	if (!below(d, 3)) {
		DAT_IA_ATTR attr;

		if (table->ia_query_func(inner, NULL, DAT_IA_FIELD_IA_ADDRESS_PTR, &attr, 0, NULL) == DAT_SUCCESS)
			return attr.ia_address_ptr;
	}
	return below(d, 20) ? (DAT_IA_ADDRESS_PTR)&d->sa : NULL;
}

static DAT_EP_ATTR *ep_attr(drawer *d)
{
	int32_t *word = (int32_t *)&d->ep;
	unsigned i;

	if (below(d, 3))
		return NULL;
	for (i = 0; i < sizeof d->ep / sizeof *word; i++)
		word[i] = small(d);
	d->ep.ep_transport_specific_count = d->ep.ep_provider_specific_count = 0;
	return &d->ep;
}

static DAT_EP_PARAM *ep_param(drawer *d)
{
	DAT_EP_ATTR *attr = ep_attr(d);

	memset(&d->param, 0, sizeof d->param);
	if (attr)
		d->param.ep_attr = *attr;
	d->param.pz_handle = typed(d, DAT_HANDLE_TYPE_PZ);
	d->param.recv_evd_handle = typed(d, DAT_HANDLE_TYPE_EVD);
	d->param.request_evd_handle = typed(d, DAT_HANDLE_TYPE_EVD);
	d->param.connect_evd_handle = typed(d, DAT_HANDLE_TYPE_EVD);
	d->param.srq_handle = any(d);
	return below(d, 20) ? &d->param : NULL;
}

static void agent(void *data, DAT_EVD_HANDLE evd)
{
	(void)data;
	(void)evd;
}

static DAT_OS_WAIT_PROXY_AGENT some_agent(drawer *d)
{
	DAT_OS_WAIT_PROXY_AGENT a;

	a.instance_data = memory;
	a.proxy_agent_func = below(d, 2) ? agent : NULL;
	return a;
}

static DAT_RETURN extended(DAT_HANDLE h, DAT_EXTENDED_OP op, ...)
{
	DAT_RETURN r;
	va_list args;

	va_start(args, op);
	r = table->handle_extendedop_func(h, op, args);
	va_end(args);
	return r;
}

static DAT_RETURN extension(drawer *d)
{
	DAT_HANDLE h = first(d, DAT_HANDLE_TYPE_EP);
	DAT_IB_ADDR_HANDLE ah;

	memset(&ah, 0, sizeof ah);
	switch (below(d, 6)) {
	case 0:
		return extended(h, DAT_IB_FETCH_AND_ADD_OP, border(d), iov(d), cookie(d), remote(d), (int)border(d));
	case 1:
		return extended(h, DAT_IB_CMP_AND_SWAP_OP, border(d), border(d), iov(d), cookie(d), remote(d), (int)border(d));
	case 2:
		return extended(h, DAT_IB_RDMA_WRITE_IMMED_OP, segments(d), iov(d), cookie(d), remote(d), (DAT_UINT32)border(d), (int)border(d));
	case 3:
		return extended(h, DAT_IB_UD_SEND_OP, segments(d), iov(d), below(d, 4) ? &ah : NULL, cookie(d), (int)border(d));
	case 4:
		d->none = 0;
		return extended(h, DAT_IB_UD_AH_FREE_OP, below(d, 4) ? &ah : NULL, 0);
	default:
		d->none = 0;
		return extended(h, (DAT_EXTENDED_OP)(1000 + below(d, 100)));
	}
}

static DAT_RETURN region(drawer *d)
{
	static const DAT_VLEN lengths[] = {0, 1, 100, 4096, MEMORY, ~0ULL};
	DAT_MEM_TYPE type = below(d, 4) ? DAT_MEM_TYPE_VIRTUAL : (DAT_MEM_TYPE)small(d);
	DAT_REGION_DESCRIPTION r;

	memset(&r, 0, sizeof r);
	r.for_va = memory;
	if (type == DAT_MEM_TYPE_LMR)
		r.for_lmr_handle = typed(d, DAT_HANDLE_TYPE_LMR);
	return table->lmr_create_func(the_ia(d), type, r, lengths[below(d, 6)], typed(d, DAT_HANDLE_TYPE_PZ),
		below(d, 3) ? DAT_MEM_PRIV_ALL_FLAG : (DAT_MEM_PRIV_FLAGS)border(d), (DAT_VA_TYPE)below(d, 3), handle(d), out(d), out(d), out(d), out(d));
}

// open opens another IA, and with luck closes it.
static DAT_RETURN open_another(drawer *d)
{
	DAT_EVD_HANDLE evd = below(d, 2) ? DAT_HANDLE_NULL : typed(d, DAT_HANDLE_TYPE_EVD);
	DAT_IA_HANDLE other = DAT_HANDLE_NULL;
	DAT_RETURN r;

	d->none = 0;
	r = table->ia_open_func(below(d, 4) ? (DAT_NAME_PTR)ia_name : below(d, 2) ? (DAT_NAME_PTR) "nobody" : NULL, small(d),
		below(d, 8) ? &evd : NULL, below(d, 8) ? &other : NULL);
	if (r == DAT_SUCCESS) {
		DAT_RETURN closed = table->ia_close_func(other, below(d, 3) ? DAT_CLOSE_ABRUPT_FLAG : (DAT_CLOSE_FLAGS)border(d));

		if (closed != DAT_SUCCESS && table->ia_close_func(other, DAT_CLOSE_ABRUPT_FLAG) != DAT_SUCCESS) {
			fprintf(stderr, "an IA does not close: %#x\n", closed);
			exit(1);
		}
	}
	return r;
}

// The calls. A: the IA; H(TYPE): the handle that it is about; T(TYPE): another one.
#define A the_ia(d)
#define H(type) first(d, DAT_HANDLE_TYPE_##type)
#define T(type) typed(d, DAT_HANDLE_TYPE_##type)
#define F(type) ((type)border(d))
#define CALLS \
	X(ia_query, A, out(d), F(DAT_IA_ATTR_MASK), (DAT_IA_ATTR *)out(d), 0, NULL) \
	X(ia_query, A, out(d), 0, NULL, F(DAT_PROVIDER_ATTR_MASK), (DAT_PROVIDER_ATTR *)out(d)) \
	X(set_consumer_context, H(EP), cookie(d)) \
	X(get_consumer_context, H(EVD), out(d)) \
	X(get_handle_type, H(PZ), out(d)) \
	X(cr_query, H(CR), F(DAT_CR_PARAM_MASK), out(d)) \
	X(cr_accept, H(CR), T(EP), small(d), private(d)) \
	X(cr_reject, H(CR), small(d), private(d)) \
	X(cr_handoff, H(CR), border(d)) \
	X(evd_create, A, small(d), T(CNO), below(d, 2) ? DAT_EVD_DEFAULT_FLAG & ~DAT_EVD_ASYNC_FLAG : F(DAT_EVD_FLAGS), handle(d)) \
	X(evd_query, H(EVD), F(DAT_EVD_PARAM_MASK), out(d)) \
	X(evd_modify_cno, H(EVD), T(CNO)) \
	X(evd_enable, H(EVD)) \
	X(evd_disable, H(EVD)) \
	X(evd_wait, H(EVD), brief(d), small(d), out(d), out(d)) \
	X(evd_resize, H(EVD), small(d)) \
	X(evd_post_se, H(EVD), below(d, 20) ? &d->event : NULL) \
	X(evd_dequeue, H(EVD), out(d)) \
	X(evd_set_unwaitable, H(EVD)) \
	X(evd_clear_unwaitable, H(EVD)) \
	X(evd_free, H(EVD)) \
	X(ep_create, A, T(PZ), T(EVD), T(EVD), T(EVD), ep_attr(d), handle(d)) \
	X(ep_create_with_srq, A, T(PZ), T(EVD), T(EVD), T(EVD), T(SRQ), ep_attr(d), handle(d)) \
	X(ep_query, H(EP), F(DAT_EP_PARAM_MASK), out(d)) \
	X(ep_modify, H(EP), F(DAT_EP_PARAM_MASK), ep_param(d)) \
	X(ep_connect, H(EP), sockaddr(d), 47700 + below(d, 8), 1 + below(d, 100000), small(d), private(d), F(DAT_QOS), below(d, 4) ? DAT_CONNECT_DEFAULT_FLAG : F(DAT_CONNECT_FLAGS)) \
	X(ep_common_connect, H(EP), sockaddr(d), (DAT_TIMEOUT)border(d), small(d), private(d)) \
	X(ep_dup_connect, H(EP), T(EP), (DAT_TIMEOUT)border(d), small(d), private(d), F(DAT_QOS)) \
	X(ep_disconnect, H(EP), below(d, 2) ? DAT_CLOSE_ABRUPT_FLAG : F(DAT_CLOSE_FLAGS)) \
	X(ep_post_send, H(EP), segments(d), iov(d), cookie(d), below(d, 2) ? 0 : F(DAT_COMPLETION_FLAGS)) \
	X(ep_post_send_with_invalidate, H(EP), segments(d), iov(d), cookie(d), F(DAT_COMPLETION_FLAGS), (DAT_BOOLEAN)below(d, 3), (DAT_RMR_CONTEXT)border(d)) \
	X(ep_post_recv, H(EP), segments(d), iov(d), cookie(d), below(d, 2) ? 0 : F(DAT_COMPLETION_FLAGS)) \
	X(ep_post_rdma_read, H(EP), segments(d), iov(d), cookie(d), remote(d), below(d, 2) ? 0 : F(DAT_COMPLETION_FLAGS)) \
	X(ep_post_rdma_write, H(EP), segments(d), iov(d), cookie(d), remote(d), below(d, 2) ? 0 : F(DAT_COMPLETION_FLAGS)) \
	X(ep_post_rdma_read_to_rmr, H(EP), remote(d), cookie(d), remote(d), F(DAT_COMPLETION_FLAGS)) \
	X(ep_get_status, H(EP), out(d), out(d), out(d)) \
	X(ep_recv_query, H(EP), out(d), out(d)) \
	X(ep_set_watermark, H(EP), small(d), small(d)) \
	X(ep_reset, H(EP)) \
	X(ep_free, H(EP)) \
	X(lmr_query, H(LMR), F(DAT_LMR_PARAM_MASK), out(d)) \
	X(lmr_sync_rdma_read, A, iov(d), (DAT_VLEN)segments(d)) \
	X(lmr_sync_rdma_write, A, iov(d), (DAT_VLEN)segments(d)) \
	X(lmr_free, H(LMR)) \
	X(rmr_create, H(PZ), handle(d)) \
	X(rmr_create_for_ep, H(PZ), handle(d)) \
	X(rmr_query, H(RMR), F(DAT_RMR_PARAM_MASK), out(d)) \
	X(rmr_bind, H(RMR), T(LMR), iov(d), F(DAT_MEM_PRIV_FLAGS), (DAT_VA_TYPE)below(d, 3), T(EP), cookie(d), F(DAT_COMPLETION_FLAGS), out(d)) \
	X(rmr_free, H(RMR)) \
	X(psp_create, A, 47700 + below(d, 8), T(EVD), below(d, 2) ? DAT_PSP_CONSUMER_FLAG : F(DAT_PSP_FLAGS), handle(d)) \
	X(psp_create_any, A, out(d), T(EVD), below(d, 2) ? DAT_PSP_CONSUMER_FLAG : F(DAT_PSP_FLAGS), handle(d)) \
	X(psp_query, H(PSP), F(DAT_PSP_PARAM_MASK), out(d)) \
	X(psp_free, H(PSP)) \
	X(rsp_create, A, 47700 + below(d, 8), T(EP), T(EVD), handle(d)) \
	X(rsp_query, H(RSP), F(DAT_RSP_PARAM_MASK), out(d)) \
	X(rsp_free, H(RSP)) \
	X(csp_create, A, below(d, 3) ? &d->comm : NULL, sockaddr(d), T(EVD), handle(d)) \
	X(csp_query, H(CSP), F(DAT_CSP_PARAM_MASK), out(d)) \
	X(csp_free, H(CSP)) \
	X(pz_create, A, handle(d)) \
	X(pz_query, H(PZ), F(DAT_PZ_PARAM_MASK), out(d)) \
	X(pz_free, H(PZ)) \
	X(srq_create, A, T(PZ), below(d, 10) ? &d->srq : NULL, handle(d)) \
	X(srq_set_lw, H(SRQ), small(d)) \
	X(srq_query, H(SRQ), F(DAT_SRQ_PARAM_MASK), out(d)) \
	X(srq_resize, H(SRQ), small(d)) \
	X(srq_post_recv, H(SRQ), segments(d), iov(d), cookie(d)) \
	X(srq_free, H(SRQ)) \
	X(ia_ha_related, A, below(d, 2) ? (DAT_NAME_PTR)ia_name : NULL, out(d)) \
	X(cno_create, A, some_agent(d), handle(d)) \
	X(cno_fd_create, A, out(d), handle(d)) \
	X(cno_trigger, H(CNO), out(d)) \
	X(cno_modify_agent, H(CNO), some_agent(d)) \
	X(cno_query, H(CNO), F(DAT_CNO_PARAM_MASK), out(d)) \
	X(cno_wait, H(CNO), brief(d), out(d)) \
	X(cno_free, H(CNO))

static const char *const names[] = {
#define X(name, ...) #name,
	CALLS
#undef X
	"lmr_create", "handle_extendedop", "ia_open"};

#define NCALLS (sizeof names / sizeof *names)

static DAT_RETURN call(drawer *d, unsigned which)
{
	unsigned n = 0;

	d->srq.max_recv_dtos = small(d);
	d->srq.max_recv_iov = small(d);
	d->srq.low_watermark = small(d);
	memset(&d->comm, 0, sizeof d->comm);
	d->comm.domain = below(d, 4) ? AF_INET : small(d);
	d->comm.type = below(d, 4) ? SOCK_STREAM : small(d);
	d->comm.protocol = small(d);
	memset(&d->event, 0, sizeof d->event);
	d->event.event_number = below(d, 3) ? DAT_SOFTWARE_EVENT : (DAT_EVENT_NUMBER)border(d);
#define X(name, ...) \
	if (which == n++) \
		return table->name##_func(__VA_ARGS__);
	CALLS
#undef X
	if (which == n++)
		return region(d);
	if (which == n++)
		return extension(d);
	return open_another(d);
}

// known_return reports whether DAT has such a return.
static int known_return(DAT_RETURN r)
{
	return r == DAT_SUCCESS || r == DAT_QUEUE_EMPTY || DAT_GET_TYPE(r) == DAT_NOT_IMPLEMENTED || ((r & DAT_CLASS_ERROR) && DAT_GET_TYPE(r) > 0 && DAT_GET_TYPE(r) <= DAT_COMM_NOT_SUPPORTED &&
		DAT_GET_TYPE(r) != DAT_INTERNAL_ERROR);
}

static void remember(DAT_HANDLE h)
{
	if (h)
		__atomic_store_n(&known[__atomic_fetch_add(&known_next, 1, __ATOMIC_RELAXED) % HANDLES], h, __ATOMIC_RELAXED);
}

static void *work(void *arg)
{
	drawer *d = arg;
	unsigned i, calls = d->calls;

	for (i = 0; i < calls; i++) {
		unsigned which = below(d, NCALLS);
		uint64_t state = d->state;
		DAT_RETURN r;

		d->doing = names[which];
		d->none = 0;
		d->handle = DAT_HANDLE_NULL;
		r = call(d, which);
		if (!known_return(r) || (d->none && DAT_GET_TYPE(r) != DAT_INVALID_HANDLE && DAT_GET_TYPE(r) != DAT_INVALID_PARAMETER &&
		     DAT_GET_TYPE(r) != DAT_NOT_IMPLEMENTED) ||
		    (r != DAT_SUCCESS && d->handle)) {
			fprintf(stderr, "%s at state %#llx: returned %#x, first handle none: %d, handle %p\n", names[which], (unsigned long long)state, r,
				d->none, d->handle);
			exit(1);
		}
		if (r == DAT_SUCCESS) {
			d->ok++;
			remember(d->handle);
		} else {
			d->refused++;
		}
		if (!strcmp(names[which], "evd_dequeue") && r == DAT_SUCCESS) {
			DAT_EVENT *ev = (DAT_EVENT *)d->out;

			if (ev->event_number == DAT_CONNECTION_REQUEST_EVENT)
				remember(ev->event_data.cr_arrival_event_data.cr_handle);
		}
	}
	d->doing = "nothing";
	return NULL;
}

int main(int argc, char **argv)
{
	int i, threads;
	drawer *all;
	pthread_t *t;
	unsigned calls = 0, ok = 0;

	CHECK(argc == 5);
	ia_name = argv[1];
	threads = atoi(argv[4]);
	CHECK(threads > 0 && (all = calloc(threads, sizeof *all)) && (t = calloc(threads, sizeof *t)));
	open_ia(ia_name);
	connect_pair();
	table = *(const DAT_PROVIDER **)pz;
	OK(dats_get_ia_handle(ia, &inner));
	for (i = 0; i < 2; i++) {
		remember(ep[i]);
		remember(evd[i]);
	}
	remember(inner);
	remember(async);
	remember(pz);
	remember(psp);
	for (i = 0; i < threads; i++) {
		all[i].state = strtoull(argv[2], NULL, 0) * 1000003 + i + 1;
		all[i].calls = atoi(argv[3]);
		CHECK(!pthread_create(&t[i], NULL, work, &all[i]));
	}
	for (i = 0; i < threads; i++) {
		CHECK(!pthread_join(t[i], NULL));
		calls += all[i].calls;
		ok += all[i].ok;
	}
	CHECK(ok > calls / 50); // or they were all refused, and nothing was tried
	close_ia();
	open_ia(ia_name); // and all is as at the beginning
	connect_pair();
	close_ia();
	printf("%u calls, %u succeeded\nPASS\n", calls, ok);
	return 0;
}

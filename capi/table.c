//go:build kdapl_capi

// The provider table, and the entries that Go cannot be called from directly: those with unions by value
// or a variable argument list, and the few that need no Go.

#include "kdapl.h"
#include "_cgo_export.h"

#include <pthread.h>
#include <sys/mman.h>

static kd_shell *shells;

kd_shell *kd_shells(void)
{
	if (!shells)
		shells = kd_map(KD_SHELLS * sizeof(kd_shell));
	return shells;
}

void *kd_map(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

kd_shell *kd_shell_of(DAT_HANDLE handle)
{
	uintptr_t off = (uintptr_t)handle - (uintptr_t)shells;
	kd_shell *s = handle;

	if (!shells || off >= KD_SHELLS * sizeof(kd_shell) || off % sizeof(kd_shell))
		return NULL;
	return __atomic_load_n(&s->kind, __ATOMIC_ACQUIRE) ? s : NULL;
}

uintptr_t kd_public(kd_shell *ia)
{
	extern DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE, DAT_IA_HANDLE *);
	DAT_IA_HANDLE out = DAT_HANDLE_NULL;

	if (!ia || dats_get_ia_handle(ia, &out) != DAT_SUCCESS)
		return (uintptr_t)ia;
	return (uintptr_t)out;
}

void kd_call_agent(DAT_AGENT_FUNC f, uintptr_t data, DAT_EVD_HANDLE evd)
{
	f((void *)data, evd);
}

static DAT_RETURN set_context(DAT_HANDLE handle, DAT_CONTEXT context)
{
	kd_shell *s = kd_shell_of(handle);

	if (!s)
		return KD_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
	__atomic_store_n(&s->context, context.as_64, __ATOMIC_RELEASE);
	return DAT_SUCCESS;
}

static DAT_RETURN get_context(DAT_HANDLE handle, DAT_CONTEXT *context)
{
	kd_shell *s = kd_shell_of(handle);

	if (!s)
		return KD_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
	if (!context)
		return KD_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
	context->as_64 = __atomic_load_n(&s->context, __ATOMIC_ACQUIRE);
	return DAT_SUCCESS;
}

static DAT_RETURN get_handle_type(DAT_HANDLE handle, DAT_HANDLE_TYPE *type)
{
	kd_shell *s = kd_shell_of(handle);

	if (!s)
		return KD_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
	if (!type)
		return KD_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
	*type = (DAT_HANDLE_TYPE)(s->kind - 1);
	return DAT_SUCCESS;
}

static DAT_RETURN cno_create(DAT_IA_HANDLE ia, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE *cno)
{
	return kdCNOCreate((uintptr_t)ia, agent.proxy_agent_func, (uintptr_t)agent.instance_data, cno);
}

static DAT_RETURN cno_modify_agent(DAT_CNO_HANDLE cno, DAT_OS_WAIT_PROXY_AGENT agent)
{
	return kdCNOModifyAgent((uintptr_t)cno, agent.proxy_agent_func, (uintptr_t)agent.instance_data);
}

static DAT_RETURN lmr_create(DAT_IA_HANDLE ia, DAT_MEM_TYPE type, DAT_REGION_DESCRIPTION region, DAT_VLEN length,
			     DAT_PZ_HANDLE pz, DAT_MEM_PRIV_FLAGS priv, DAT_VA_TYPE va, DAT_LMR_HANDLE *lmr,
			     DAT_LMR_CONTEXT *lmr_context, DAT_RMR_CONTEXT *rmr_context, DAT_VLEN *registered_length,
			     DAT_VADDR *registered_address)
{
	return kdLMRCreate((uintptr_t)ia, type, (uintptr_t)region.for_va, length, (uintptr_t)pz, priv, va, lmr, lmr_context, rmr_context,
			   registered_length, registered_address);
}

static DAT_RETURN rmr_bind(DAT_RMR_HANDLE rmr, DAT_LMR_HANDLE lmr, const DAT_LMR_TRIPLET *triplet,
			   DAT_MEM_PRIV_FLAGS priv, DAT_VA_TYPE va, DAT_EP_HANDLE ep, DAT_RMR_COOKIE cookie,
			   DAT_COMPLETION_FLAGS flags, DAT_RMR_CONTEXT *context)
{
	return kdRMRBind((uintptr_t)rmr, (uintptr_t)lmr, (DAT_LMR_TRIPLET *)triplet, priv, va, (uintptr_t)ep, cookie.as_64, flags, context);
}

static DAT_RETURN post_send(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie,
			    DAT_COMPLETION_FLAGS flags)
{
	return kdEPPostSend((uintptr_t)ep, n, iov, cookie.as_64, flags);
}

static DAT_RETURN post_send_with_invalidate(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie,
					    DAT_COMPLETION_FLAGS flags, DAT_BOOLEAN invalidate, DAT_RMR_CONTEXT context)
{
	return kdEPPostSendWithInvalidate((uintptr_t)ep, n, iov, cookie.as_64, flags, invalidate, context);
}

static DAT_RETURN post_recv(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie,
			    DAT_COMPLETION_FLAGS flags)
{
	return kdEPPostRecv((uintptr_t)ep, n, iov, cookie.as_64, flags);
}

static DAT_RETURN post_rdma_read(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie,
				 const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags)
{
	return kdEPPostRDMARead((uintptr_t)ep, n, iov, cookie.as_64, (DAT_RMR_TRIPLET *)remote, flags);
}

static DAT_RETURN post_rdma_read_to_rmr(DAT_EP_HANDLE ep, const DAT_RMR_TRIPLET *local, DAT_DTO_COOKIE cookie,
					const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags)
{
	return kdEPPostRDMAReadToRMR((uintptr_t)ep, (DAT_RMR_TRIPLET *)local, cookie.as_64, (DAT_RMR_TRIPLET *)remote, flags);
}

static DAT_RETURN post_rdma_write(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie,
				  const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags)
{
	return kdEPPostRDMAWrite((uintptr_t)ep, n, iov, cookie.as_64, (DAT_RMR_TRIPLET *)remote, flags);
}

static DAT_RETURN srq_post_recv(DAT_SRQ_HANDLE srq, DAT_COUNT n, DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie)
{
	return kdSRQPostRecv((uintptr_t)srq, n, iov, cookie.as_64);
}

// The macros of dat_ib_extensions.h pass cookies as DAT_CONTEXT, by value.
static DAT_RETURN extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP op, va_list args)
{
	kd_extension x;

	memset(&x, 0, sizeof x);
	x.segments = 1;
	switch ((int)op) {
	case DAT_IB_FETCH_AND_ADD_OP:
		x.operand = va_arg(args, DAT_UINT64);
		x.local = va_arg(args, DAT_LMR_TRIPLET *);
		x.cookie = va_arg(args, DAT_DTO_COOKIE).as_64;
		x.remote = va_arg(args, DAT_RMR_TRIPLET *);
		x.flags = va_arg(args, int);
		break;
	case DAT_IB_CMP_AND_SWAP_OP:
		x.compare = va_arg(args, DAT_UINT64);
		x.operand = va_arg(args, DAT_UINT64);
		x.local = va_arg(args, DAT_LMR_TRIPLET *);
		x.cookie = va_arg(args, DAT_DTO_COOKIE).as_64;
		x.remote = va_arg(args, DAT_RMR_TRIPLET *);
		x.flags = va_arg(args, int);
		break;
	case DAT_IB_RDMA_WRITE_IMMED_OP:
		x.segments = va_arg(args, DAT_COUNT);
		x.local = va_arg(args, DAT_LMR_TRIPLET *);
		x.cookie = va_arg(args, DAT_DTO_COOKIE).as_64;
		x.remote = va_arg(args, DAT_RMR_TRIPLET *);
		x.immediate = va_arg(args, DAT_UINT32);
		x.flags = va_arg(args, int);
		break;
	case DAT_IB_UD_SEND_OP:
		x.segments = va_arg(args, DAT_COUNT);
		x.local = va_arg(args, DAT_LMR_TRIPLET *);
		x.ah = kd_ah_handle(va_arg(args, DAT_IB_ADDR_HANDLE *));
		x.cookie = va_arg(args, DAT_DTO_COOKIE).as_64;
		x.flags = va_arg(args, int);
		break;
	case DAT_IB_UD_AH_FREE_OP:
		x.ah = kd_ah_handle(va_arg(args, DAT_IB_ADDR_HANDLE *));
		break;
	case DAT_IB_UD_CM_FREE_OP:
		// The answer of a datagram peer leaves nothing but the address handle behind.
		return DAT_SUCCESS;
	default:
		return KD_ERROR(DAT_NOT_IMPLEMENTED, 0);
	}
	return kdExtensionOp((uintptr_t)handle, op, &x);
}

// Go takes handles, and addresses that it does not look behind, as numbers.
#define ENTRY(name, f) .name##_func = (void *)(f)

static const DAT_PROVIDER template = {
	ENTRY(ia_open, kdIAOpen),
	ENTRY(ia_query, kdIAQuery),
	ENTRY(ia_close, kdIAClose),
	ENTRY(set_consumer_context, set_context),
	ENTRY(get_consumer_context, get_context),
	ENTRY(get_handle_type, get_handle_type),
	ENTRY(cno_create, cno_create),
	ENTRY(cno_modify_agent, cno_modify_agent),
	ENTRY(cno_query, kdCNOQuery),
	ENTRY(cno_free, kdCNOFree),
	ENTRY(cno_wait, kd_cno_wait),
	ENTRY(cr_query, kdCRQuery),
	ENTRY(cr_accept, kdCRAccept),
	ENTRY(cr_reject, kdCRReject),
	ENTRY(cr_handoff, kdCRHandoff),
	ENTRY(evd_create, kdEVDCreate),
	ENTRY(evd_query, kdEVDQuery),
	ENTRY(evd_modify_cno, kdEVDModifyCNO),
	ENTRY(evd_enable, kdEVDEnable),
	ENTRY(evd_disable, kdEVDDisable),
	ENTRY(evd_wait, kd_evd_wait),
	ENTRY(evd_resize, kdEVDResize),
	ENTRY(evd_post_se, kd_evd_post_se),
	ENTRY(evd_dequeue, kd_evd_dequeue),
	ENTRY(evd_free, kdEVDFree),
	ENTRY(ep_create, kdEPCreate),
	ENTRY(ep_query, kdEPQuery),
	ENTRY(ep_modify, kdEPModify),
	ENTRY(ep_connect, kdEPConnect),
	ENTRY(ep_dup_connect, kdEPDupConnect),
	ENTRY(ep_disconnect, kdEPDisconnect),
	ENTRY(ep_post_send, post_send),
	ENTRY(ep_post_recv, post_recv),
	ENTRY(ep_post_rdma_read, post_rdma_read),
	ENTRY(ep_post_rdma_write, post_rdma_write),
	ENTRY(ep_get_status, kdEPGetStatus),
	ENTRY(ep_free, kdEPFree),
	ENTRY(lmr_create, lmr_create),
	ENTRY(lmr_query, kdLMRQuery),
	ENTRY(lmr_free, kdLMRFree),
	ENTRY(rmr_create, kdRMRCreate),
	ENTRY(rmr_query, kdRMRQuery),
	ENTRY(rmr_bind, rmr_bind),
	ENTRY(rmr_free, kdRMRFree),
	ENTRY(psp_create, kdPSPCreate),
	ENTRY(psp_query, kdPSPQuery),
	ENTRY(psp_free, kdPSPFree),
	ENTRY(rsp_create, kdRSPCreate),
	ENTRY(rsp_query, kdRSPQuery),
	ENTRY(rsp_free, kdRSPFree),
	ENTRY(pz_create, kdPZCreate),
	ENTRY(pz_query, kdPZQuery),
	ENTRY(pz_free, kdPZFree),
	ENTRY(psp_create_any, kdPSPCreateAny),
	ENTRY(ep_reset, kdEPReset),
	ENTRY(evd_set_unwaitable, kdEVDSetUnwaitable),
	ENTRY(evd_clear_unwaitable, kdEVDClearUnwaitable),
	ENTRY(lmr_sync_rdma_read, kdLMRSyncRDMARead),
	ENTRY(lmr_sync_rdma_write, kdLMRSyncRDMAWrite),
	ENTRY(ep_create_with_srq, kdEPCreateWithSRQ),
	ENTRY(ep_recv_query, kdEPRecvQuery),
	ENTRY(ep_set_watermark, kdEPSetWatermark),
	ENTRY(srq_create, kdSRQCreate),
	ENTRY(srq_free, kdSRQFree),
	ENTRY(srq_post_recv, srq_post_recv),
	ENTRY(srq_query, kdSRQQuery),
	ENTRY(srq_resize, kdSRQResize),
	ENTRY(srq_set_lw, kdSRQSetLW),
	ENTRY(csp_create, kdCSPCreate),
	ENTRY(csp_query, kdCSPQuery),
	ENTRY(csp_free, kdCSPFree),
	ENTRY(ep_common_connect, kdEPCommonConnect),
	ENTRY(rmr_create_for_ep, kdRMRCreateForEP),
	ENTRY(ep_post_send_with_invalidate, post_send_with_invalidate),
	ENTRY(ep_post_rdma_read_to_rmr, post_rdma_read_to_rmr),
	ENTRY(cno_fd_create, kdCNOFDCreate),
	ENTRY(cno_trigger, kdCNOTrigger),
	ENTRY(ia_ha_related, kdIAHARelated),
	ENTRY(handle_extendedop, extension_op),
};

// The tables, one for each name, are never freed: handles, stale ones too, point to them.
struct named {
	DAT_PROVIDER table;
	char name[DAT_NAME_MAX_LENGTH];
	struct named *next;
};

static pthread_mutex_t named_lock = PTHREAD_MUTEX_INITIALIZER;
static struct named *named;

const DAT_PROVIDER *kd_provider(const char *name)
{
	struct named *n;

	pthread_mutex_lock(&named_lock);
	for (n = named; n && strcmp(n->name, name); n = n->next)
		;
	if (!n && (n = calloc(1, sizeof *n))) {
		n->table = template;
		strncpy(n->name, name, sizeof n->name - 1);
		n->table.device_name = n->name;
		n->next = named;
		named = n;
	}
	pthread_mutex_unlock(&named_lock);
	return n ? &n->table : NULL;
}

__attribute__((visibility("default"))) void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *params)
{
	const DAT_PROVIDER *p = kd_provider(info->ia_name);

	if (p && kd_shells() && kdAddName((char *)info->ia_name, (char *)params))
		dat_registry_add_provider(p, info);
}

__attribute__((visibility("default"))) void dat_provider_fini(const DAT_PROVIDER_INFO *info)
{
	const DAT_PROVIDER *p = kd_provider(info->ia_name);

	if (p)
		dat_registry_remove_provider(p, info);
}

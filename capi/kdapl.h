// What the C and the Go part of the provider share.
#ifndef KDAPL_H
#define KDAPL_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>

#define KD_ERROR(type, subtype) ((DAT_RETURN)(DAT_CLASS_ERROR | (type) | (subtype)))

// What an EVD or CNO shares with Go: package internal/foreign describes the first part, the rest is C's.
typedef struct kd_control {
	uint64_t ring, serial, seen;
	uint32_t status, flags, limit, wake;

	uint32_t empty; // how many dequeues found nothing
	uint32_t unused[5];
} kd_control;

#define KD_CONTROL_SHARED offsetof(kd_control, empty)

// The status of an EVD, and its flags.
enum { KD_FREED = 1, KD_WAITED = 2, KD_UNWAITABLE = 4 };
enum { KD_HAS_CQ = 1, KD_HELP = 2 };

// Which handles the objects have that the slots of an IA's EVDs name.
typedef struct kd_name {
	uint64_t ref;
	struct kd_shell *shell;
} kd_name;

#define KD_NAMES 256 // in a chunk
#define KD_NAME_CHUNKS 4096

typedef struct kd_names {
	kd_name *chunk[KD_NAME_CHUNKS];
} kd_names;

// What a handle points to. kind is 0 for a free shell, else the DAT_HANDLE_TYPE and 1.
typedef struct kd_shell {
	const DAT_PROVIDER *provider;
	uint32_t kind;
	uint32_t unused;
	uint64_t context;
	kd_control *control; // of an EVD or CNO
	kd_names *names;     // of an EVD's IA
	uint64_t reserved[3];
} kd_shell;

// A wait in steps, each of which is a call of Go that may tell to sleep.
typedef struct kd_wait {
	int32_t threshold;
	uint32_t word;
	uint8_t started, expired, sleep;
} kd_wait;

// The most handles of a process. Memory is used for those only that were ever in use.
#define KD_SHELLS ((size_t)1 << 21)

// The arguments of an operation of the InfiniBand extension.
typedef struct kd_extension {
	DAT_COUNT segments;
	DAT_LMR_TRIPLET *local;
	DAT_RMR_TRIPLET *remote;
	uint64_t cookie, operand, compare;
	uint32_t immediate, flags;
	uintptr_t ah;
} kd_extension;

kd_shell *kd_shells(void);

// kd_map is memory, all zero, that is never given back. NULL: there is none.
void *kd_map(size_t size);

DAT_RETURN kd_evd_dequeue(DAT_EVD_HANDLE evd, DAT_EVENT *ev);
DAT_RETURN kd_evd_wait(DAT_EVD_HANDLE evd, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT *ev, DAT_COUNT *more);
DAT_RETURN kd_evd_post_se(DAT_EVD_HANDLE evd, const DAT_EVENT *ev);
DAT_RETURN kd_cno_wait(DAT_CNO_HANDLE cno, DAT_TIMEOUT timeout, DAT_EVD_HANDLE *evd);
const DAT_PROVIDER *kd_provider(const char *name);

// kd_shell_of is the shell of a handle, NULL if it is none or free.
kd_shell *kd_shell_of(DAT_HANDLE handle);

// kd_public is the handle by which the registry knows an IA.
// It is a small number, which Go must not take for a pointer.
uintptr_t kd_public(kd_shell *ia);

void kd_call_agent(DAT_AGENT_FUNC f, uintptr_t data, DAT_EVD_HANDLE evd);

// The members of the unions of DAT_EVENT.
static inline void kd_event(DAT_EVENT *ev, uint32_t number, void *evd)
{
	memset(ev, 0, sizeof *ev);
	ev->event_number = (DAT_EVENT_NUMBER)number;
	ev->evd_handle = evd;
}

static inline void kd_event_dto(DAT_EVENT *ev, void *ep, uint64_t cookie, uint32_t status, uint32_t length,
				uint32_t operation, uint32_t rmr_context)
{
	DAT_DTO_COMPLETION_EVENT_DATA *d = &ev->event_data.dto_completion_event_data;

	d->ep_handle = ep;
	d->user_cookie.as_64 = cookie;
	d->status = (DAT_DTO_COMPLETION_STATUS)status;
	d->transfered_length = length;
	d->operation = (DAT_DTOS)operation;
	d->rmr_context = rmr_context;
}

static inline void kd_event_bind(DAT_EVENT *ev, void *rmr, uint64_t cookie, uint32_t status)
{
	DAT_RMR_BIND_COMPLETION_EVENT_DATA *d = &ev->event_data.rmr_completion_event_data;

	d->rmr_handle = rmr;
	d->user_cookie.as_64 = cookie;
	d->status = (DAT_RMR_BIND_COMPLETION_STATUS)status;
}

static inline void kd_event_cr(DAT_EVENT *ev, void *sp, void *address, uint64_t qual, void *cr, int truncated)
{
	DAT_CR_ARRIVAL_EVENT_DATA *d = &ev->event_data.cr_arrival_event_data;

	d->sp_handle.psp_handle = sp;
	d->local_ia_address_ptr = address;
	d->conn_qual = qual;
	d->cr_handle = cr;
	d->truncate_flag = truncated ? DAT_TRUE : DAT_FALSE;
}

static inline void kd_event_connection(DAT_EVENT *ev, void *ep, int size, void *private_data)
{
	DAT_CONNECTION_EVENT_DATA *d = &ev->event_data.connect_event_data;

	d->ep_handle = ep;
	d->private_data_size = size;
	d->private_data = private_data;
}

static inline void kd_event_async(DAT_EVENT *ev, uintptr_t object, int reason)
{
	ev->event_data.asynch_error_event_data.dat_handle = (void *)object;
	ev->event_data.asynch_error_event_data.reason = reason;
}

static inline void kd_event_software(DAT_EVENT *ev, uint64_t value)
{
	ev->event_data.software_event_data.pointer = (void *)(uintptr_t)value;
}

static inline uint64_t kd_software_value(const DAT_EVENT *ev)
{
	return (uintptr_t)ev->event_data.software_event_data.pointer;
}

static inline void kd_event_ib(DAT_EVENT *ev, uint32_t type, uint32_t status, uint32_t immediate)
{
	DAT_IB_EXTENSION_EVENT_DATA *d = (DAT_IB_EXTENSION_EVENT_DATA *)ev->event_extension_data;

	d->type = (DAT_IB_EXT_TYPE)type;
	d->status = (DAT_IB_STATUS)status;
	d->val.immed.data = immediate;
}

static inline void kd_event_ah(DAT_EVENT *ev, void *handle, uint32_t qpn, const struct sockaddr_in6 *address)
{
	DAT_IB_EXTENSION_EVENT_DATA *d = (DAT_IB_EXTENSION_EVENT_DATA *)ev->event_extension_data;

	d->remote_ah.ah = handle;
	d->remote_ah.qpn = qpn;
	d->remote_ah.ia_addr = *address;
}

static inline void kd_cno_agent(DAT_CNO_PARAM *p, uintptr_t data, DAT_AGENT_FUNC f)
{
	p->proxy.agent.instance_data = (void *)data;
	p->proxy.agent.proxy_agent_func = f;
}

static inline void kd_cno_fd(DAT_CNO_PARAM *p, int fd)
{
	p->proxy.fd = fd;
}

static inline void kd_region_va(DAT_LMR_PARAM *p, uint64_t va)
{
	p->region_desc.for_va = (void *)(uintptr_t)va;
}

static inline void kd_region_lmr(DAT_LMR_PARAM *p, uintptr_t lmr)
{
	p->region_desc.for_lmr_handle = (void *)lmr;
}

static inline uintptr_t kd_ah_handle(const DAT_IB_ADDR_HANDLE *ah)
{
	return ah ? (uintptr_t)ah->ah : 0;
}

#endif

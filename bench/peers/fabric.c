/* A yardstick: what libfabric needs for the things that bench measures, in one process.
 *
 *   fabric eq ROUNDS              one event written to and read from an event queue
 *   fabric send SIZE ROUNDS       receive, send and both completions, an endpoint to itself
 *   fabric write SIZE ROUNDS      RMA write and its completion
 *
 * The endpoint is a reliable datagram one of the shm provider. Prints ns per round.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 4 << 20 };

static void check(const char *what, int ret)
{
	if (ret < 0) {
		fprintf(stderr, "%s: %s\n", what, fi_strerror(-ret));
		exit(1);
	}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void report(double begin, long rounds)
{
	printf("%.3f\n", (now() - begin) / rounds);
}

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fid_mr *mr;
static fi_addr_t self;
static char *mem;
static uint64_t target; /* address of the second half, as the peer of a write names it */

static struct fi_info *find(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	char name[32];

	snprintf(name, sizeof name, "bench-%d", (int)getpid());
	hints->fabric_attr->prov_name = strdup("shm");
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 15), name, NULL, FI_SOURCE, hints, &info));
	fi_freeinfo(hints);
	return info;
}

static void open_endpoint(void)
{
	struct fi_info *info = find();
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_CONTEXT, .size = 512, .wait_obj = FI_WAIT_NONE };
	struct fi_av_attr av_attr = { .type = info->domain_attr->av_type, .count = 1 };
	struct fid_av *av;
	char addr[256];
	size_t len = sizeof addr;

	check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
	check("fi_domain", fi_domain(fabric, info, &domain, NULL));
	check("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, NULL));
	check("fi_av_open", fi_av_open(domain, &av_attr, &av, NULL));
	check("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
	check("bind cq", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	check("bind av", fi_ep_bind(ep, &av->fid, 0));
	check("fi_enable", fi_enable(ep));
	check("fi_getname", fi_getname(&ep->fid, addr, &len));
	if (fi_av_insert(av, addr, 1, &self, 0, NULL) != 1)
		check("fi_av_insert", -FI_EINVAL);
	mem = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	check("fi_mr_reg", fi_mr_reg(domain, mem, ROOM, FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE, 0, 7, 0, &mr, NULL));
	target = ROOM / 2;
	if (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		target += (uint64_t)(uintptr_t)mem;
}

static int done; /* completions that were read and are not yet accounted for */

/* drive makes progress, which is the caller's with this provider. */
static void drive(void)
{
	struct fi_cq_entry entries[8];
	ssize_t got = fi_cq_read(cq, entries, 8);

	if (got > 0)
		done += got;
	else if (got != -FI_EAGAIN)
		check("fi_cq_read", got);
}

/* finish waits for n completions. */
static void finish(int n)
{
	while (done < n)
		drive();
	done -= n;
}

static void again(const char *what, ssize_t ret)
{
	if (ret != -FI_EAGAIN)
		check(what, ret);
	drive();
}

static void send_rounds(size_t size, long rounds)
{
	static struct fi_context2 in, out;
	void *desc = fi_mr_desc(mr);

	while (rounds-- > 0) {
		ssize_t r;
		while ((r = fi_recv(ep, mem + ROOM / 2, size, desc, self, &in)) != 0)
			again("fi_recv", r);
		while ((r = fi_send(ep, mem, size, desc, self, &out)) != 0)
			again("fi_send", r);
		finish(2);
	}
}

static void write_rounds(size_t size, long rounds)
{
	static struct fi_context2 out;
	void *desc = fi_mr_desc(mr);

	while (rounds-- > 0) {
		ssize_t r;
		while ((r = fi_write(ep, mem, size, desc, self, target, fi_mr_key(mr), &out)) != 0)
			again("fi_write", r);
		finish(1);
	}
}

static void eq_rounds(long rounds)
{
	struct fi_eq_attr attr = { .size = 64, .flags = FI_WRITE, .wait_obj = FI_WAIT_NONE };
	struct fi_eq_entry entry = { 0 }, got;
	struct fid_eq *eq;
	uint32_t event;
	double begin = 0;

	check("fi_fabric", fi_fabric(find()->fabric_attr, &fabric, NULL));
	check("fi_eq_open", fi_eq_open(fabric, &attr, &eq, NULL));
	for (long i = -rounds / 10; i < rounds; i++) {
		if (i == 0)
			begin = now();
		check("fi_eq_write", fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0));
		check("fi_eq_read", fi_eq_read(eq, &event, &got, sizeof got, 0));
	}
	report(begin, rounds);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "eq")) {
		eq_rounds(atol(argv[2]));
		return 0;
	}
	if (argc == 4) {
		void (*rounds)(size_t, long) = !strcmp(argv[1], "write") ? write_rounds : send_rounds;
		size_t size = atol(argv[2]);
		long n = atol(argv[3]);
		double begin;

		if (size > ROOM / 2 || n < 1)
			return 2;
		open_endpoint();
		rounds(size, n / 10 + 1);
		begin = now();
		rounds(size, n);
		report(begin, n);
		fflush(stdout);
		_exit(0); /* closing shm takes long and measures nothing */
	}
	fprintf(stderr, "usage: fabric eq ROUNDS | send SIZE ROUNDS | write SIZE ROUNDS\n");
	return 2;
}

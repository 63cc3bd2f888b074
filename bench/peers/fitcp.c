/* A yardstick: libfabric's tcp provider (FI_EP_MSG) between two processes over loopback.
 *
 *   fitcp MODE SIZE DEPTH SECONDS
 *
 *   lat      ping-pong of sends, both ends poll; us is half of a round trip
 *   block    the same with fi_cq_sread
 *   send     one way, DEPTH sends outstanding
 *   write    one way, DEPTH RMA writes outstanding
 *   read     DEPTH RMA reads outstanding
 *   conn     SIZE connections one after the other, kept open
 *
 * With PIN=1 in the environment the two processes stay on processors 0 and 1. Prints one JSON object. The processor
 * time is that of both ends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 4 << 20, CONTEXTS = 512 };

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_eq *eq;
static struct fid_pep *pep;
static struct fid_mr *mr;
static void *desc;
static char *mem;
static uint64_t peer_addr, peer_key;
static int control; /* a socket between the two processes */
static int blocking;

static void check(const char *what, long ret)
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
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu(void)
{
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	return r.ru_utime.tv_sec + r.ru_utime.tv_usec * 1e-6 + r.ru_stime.tv_sec + r.ru_stime.tv_usec * 1e-6;
}

static double resident(void)
{
	long all, res;
	FILE *f = fopen("/proc/self/statm", "r");
	if (!f || fscanf(f, "%ld %ld", &all, &res) != 2)
		exit(1);
	fclose(f);
	return res * (double)sysconf(_SC_PAGESIZE) / 1024;
}

static void tell(const void *p, size_t n)
{
	if (write(control, p, n) != (ssize_t)n)
		exit(1);
}

static void hear(void *p, size_t n)
{
	for (size_t k = 0; k < n;) {
		ssize_t r = read(control, (char *)p + k, n - k);
		if (r <= 0)
			exit(1);
		k += r;
	}
}

static struct fi_info *hints(void)
{
	struct fi_info *h = fi_allocinfo();
	h->fabric_attr->prov_name = strdup("tcp");
	h->ep_attr->type = FI_EP_MSG;
	h->caps = FI_MSG | FI_RMA;
	h->mode = FI_CONTEXT | FI_CONTEXT2;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	h->domain_attr->threading = FI_THREAD_DOMAIN;
	return h;
}

static void open_eq(void)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
	check("fi_eq_open", fi_eq_open(fabric, &attr, &eq, NULL));
}

static void open_domain(void)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_CONTEXT, .size = 4096,
				   .wait_obj = blocking ? FI_WAIT_UNSPEC : FI_WAIT_NONE };
	check("fi_domain", fi_domain(fabric, info, &domain, NULL));
	check("fi_cq_open", fi_cq_open(domain, &attr, &cq, NULL));
}

static struct fid_ep *endpoint(struct fi_info *of)
{
	struct fid_ep *e;
	check("fi_endpoint", fi_endpoint(domain, of, &e, NULL));
	check("bind eq", fi_ep_bind(e, &eq->fid, 0));
	check("bind cq", fi_ep_bind(e, &cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_enable", fi_enable(e));
	return e;
}

/* event waits for the next event of a connection. */
static uint32_t event(struct fi_eq_cm_entry *entry)
{
	uint32_t kind;
	ssize_t r;
	do
		r = fi_eq_sread(eq, &kind, entry, sizeof *entry, 1000, 0);
	while (r == -FI_EAGAIN);
	check("fi_eq_sread", r);
	return kind;
}

static void expect(uint32_t want)
{
	struct fi_eq_cm_entry entry;
	if (event(&entry) != want) {
		fprintf(stderr, "unexpected event\n");
		exit(1);
	}
}

static void listening(void)
{
	struct sockaddr_in sa;
	size_t len = sizeof sa;
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 15), "127.0.0.1", "0", FI_SOURCE, hints(), &info));
	open_eq();
	check("fi_passive_ep", fi_passive_ep(fabric, info, &pep, NULL));
	check("fi_pep_bind", fi_pep_bind(pep, &eq->fid, 0));
	check("fi_listen", fi_listen(pep));
	check("fi_getname", fi_getname(&pep->fid, &sa, &len));
	tell(&sa, sizeof sa);
}

static void resolve(void)
{
	struct sockaddr_in sa;
	char port[16];
	hear(&sa, sizeof sa);
	snprintf(port, sizeof port, "%d", ntohs(sa.sin_port));
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 15), "127.0.0.1", port, 0, hints(), &info));
	open_eq();
	open_domain();
}

static void set_up(int server)
{
	if (server) {
		struct fi_eq_cm_entry entry;
		listening();
		if (event(&entry) != FI_CONNREQ)
			exit(1);
		info = entry.info;
		open_domain();
		ep = endpoint(info);
		check("fi_accept", fi_accept(ep, NULL, 0));
	} else {
		resolve();
		ep = endpoint(info);
		check("fi_connect", fi_connect(ep, info->dest_addr, NULL, 0));
	}
	expect(FI_CONNECTED);
	check("fi_mr_reg", fi_mr_reg(domain, mem, ROOM, FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE,
				     0, 7, 0, &mr, NULL));
	desc = fi_mr_desc(mr);
	uint64_t own[2] = { info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)mem : 0, fi_mr_key(mr) };
	tell(own, sizeof own);
	hear(own, sizeof own);
	peer_addr = own[0], peer_key = own[1];
}

/* The contexts of receives are the upper half. */
static struct fi_context2 contexts[2 * CONTEXTS];
static long sent, received;

static void drive(void)
{
	struct fi_cq_entry entries[32];
	ssize_t n = blocking ? fi_cq_sread(cq, entries, 32, NULL, -1) : fi_cq_read(cq, entries, 32);
	if (n == -FI_EAGAIN)
		return;
	check("fi_cq_read", n);
	for (ssize_t i = 0; i < n; i++) {
		if ((struct fi_context2 *)entries[i].op_context >= contexts + CONTEXTS)
			received++;
		else
			sent++;
	}
}

static void again(const char *what, ssize_t r)
{
	if (r != -FI_EAGAIN)
		check(what, r);
	drive();
}

static void post_send(size_t size, long i)
{
	ssize_t r;
	while ((r = fi_send(ep, mem, size, desc, 0, &contexts[i % CONTEXTS])) != 0)
		again("fi_send", r);
}

static void post_recv(size_t size, long i)
{
	ssize_t r;
	while ((r = fi_recv(ep, mem + ROOM / 2, size, desc, 0, &contexts[CONTEXTS + i % CONTEXTS])) != 0)
		again("fi_recv", r);
}

static void post_rma(int read, size_t size, long i)
{
	ssize_t r;
	void *c = &contexts[i % CONTEXTS];
	while ((r = read ? fi_read(ep, mem, size, desc, 0, peer_addr, peer_key, c)
			 : fi_write(ep, mem, size, desc, 0, peer_addr, peer_key, c)) != 0)
		again("fi_rma", r);
}

/* serve drives the target of RMA until the peer says a byte. */
static void serve(void)
{
	char x;
	fcntl(control, F_SETFL, O_NONBLOCK);
	for (long i = 0;; i++) {
		fi_cq_read(cq, NULL, 0);
		if (i % 64 == 0 && read(control, &x, 1) == 1)
			break;
	}
	fcntl(control, F_SETFL, 0);
}

/* transfer moves n messages and tells the seconds, to the client. */
static double transfer(const char *mode, size_t size, long depth, long n, int server)
{
	char x = 1;
	double begin;

	sent = received = 0;
	if (!strcmp(mode, "lat") || !strcmp(mode, "block")) {
		if (server) {
			post_recv(size, 0);
			tell(&x, 1);
			for (long i = 0; i < n; i++) {
				while (received <= i)
					drive();
				if (i + 1 < n)
					post_recv(size, i);
				post_send(size, i);
			}
			while (sent < n)
				drive();
			return 0;
		}
		hear(&x, 1);
		begin = now();
		for (long i = 0; i < n; i++) {
			post_recv(size, i);
			post_send(size, i);
			while (received <= i)
				drive();
		}
		begin = now() - begin;
		while (sent < n)
			drive();
		return begin;
	}
	if (!strcmp(mode, "send")) {
		if (server) {
			long posted = 0;
			for (; posted < depth && posted < n; posted++)
				post_recv(size, posted);
			tell(&x, 1);
			while (received < n) {
				drive();
				for (; posted < n && posted < received + depth; posted++)
					post_recv(size, posted);
			}
			post_send(8, 0);
			while (sent < 1)
				drive();
			return 0;
		}
		post_recv(8, 0);
		hear(&x, 1);
		begin = now();
		for (long i = 0; i < n; i++) {
			while (i - sent >= depth)
				drive();
			post_send(size, i);
		}
		while (sent < n || received < 1)
			drive();
		return now() - begin;
	}
	if (server) {
		serve();
		return 0;
	}
	begin = now();
	for (long i = 0; i < n; i++) {
		while (i - sent >= depth)
			drive();
		post_rma(!strcmp(mode, "read"), size, i);
	}
	while (sent < n)
		drive();
	begin = now() - begin;
	tell(&x, 1);
	return begin;
}

static void measure(const char *mode, size_t size, long depth, double seconds, int server)
{
	long n = size >= 65536 ? 50 : 500;
	double spent = 0, peer = 0, t = 0;

	set_up(server);
	for (int phase = 0; phase < 2; phase++) {
		if (server)
			hear(&n, sizeof n);
		else
			tell(&n, sizeof n);
		double c = cpu();
		t = transfer(mode, size, depth, n, server);
		spent = cpu() - c;
		if (server) {
			tell(&spent, sizeof spent);
			continue;
		}
		hear(&peer, sizeof peer);
		if (phase == 0) {
			long want = n * seconds / t;
			n = want < 20 ? 20 : want;
		}
	}
	if (server)
		return;
	double mb = n * (double)size / 1e6;
	int half = !strcmp(mode, "lat") || !strcmp(mode, "block") ? 2 : 1;
	printf("{\"us\":%.6g,\"rate\":%.6g,\"mbps\":%.6g,\"cpu_us_per_mb\":%.6g,\"cpu_us\":%.6g}\n", t / n / half * 1e6, n / t, mb / t,
	       (spent + peer) * 1e6 / mb, (spent + peer) / n * 1e6);
}

static void connections(int count, int server)
{
	struct fid_ep **eps = calloc(count, sizeof *eps);
	double before, used, peer;
	char x = 1;

	if (server) {
		listening();
		before = resident();
		for (int got = 0, up = 0; up < count;) {
			struct fi_eq_cm_entry entry;
			uint32_t kind = event(&entry);
			if (kind == FI_CONNECTED) {
				up++;
				continue;
			}
			if (!domain) {
				info = entry.info;
				open_domain();
				before = resident();
			}
			eps[got] = endpoint(entry.info);
			check("fi_accept", fi_accept(eps[got++], NULL, 0));
			if (entry.info != info)
				fi_freeinfo(entry.info);
		}
		used = (resident() - before) / count;
		tell(&used, sizeof used);
		hear(&x, 1);
		return;
	}
	resolve();
	before = resident();
	double begin = now();
	for (int i = 0; i < count; i++) {
		eps[i] = endpoint(info);
		check("fi_connect", fi_connect(eps[i], info->dest_addr, NULL, 0));
		expect(FI_CONNECTED);
	}
	double t = now() - begin;
	used = (resident() - before) / count;
	hear(&peer, sizeof peer);
	printf("{\"rate\":%.6g,\"kib_client\":%.6g,\"kib_server\":%.6g}\n", count / t, used, peer);
	tell(&x, 1);
}

int main(int argc, char **argv)
{
	int pair[2], server;
	pid_t child;

	if (argc != 5 || atol(argv[2]) < 1 || atol(argv[3]) < 1 || atol(argv[3]) > CONTEXTS ||
	    (strcmp(argv[1], "conn") && atol(argv[2]) > ROOM / 2)) {
		fprintf(stderr, "usage: fitcp lat|block|send|write|read|conn SIZE DEPTH SECONDS\n");
		return 2;
	}
	blocking = !strcmp(argv[1], "block");
	mem = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (mem == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
		return 1;
	child = fork();
	server = child == 0;
	control = pair[server];
	close(pair[!server]);
	if (getenv("PIN")) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(server, &set);
		sched_setaffinity(0, sizeof set, &set);
	}
	if (!strcmp(argv[1], "conn"))
		connections(atoi(argv[2]), server);
	else
		measure(argv[1], atol(argv[2]), atol(argv[3]), atof(argv[4]), server);
	fflush(stdout);
	if (server)
		_exit(0);
	close(control);
	waitpid(child, NULL, 0);
	_exit(0);
}

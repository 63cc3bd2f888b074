/* A yardstick: COUNT connections of plain TCP sockets, one after the other, with eight bytes each way, between two
 * processes over loopback.
 *
 *   sockets COUNT
 *
 * With PIN=1 in the environment the two processes stay on processors 0 and 1. Prints one JSON object.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void exchange(int fd, int first)
{
	char b[8] = { 0 };
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (first)
		need(write(fd, b, 8) == 8, "write");
	need(recv(fd, b, 8, MSG_WAITALL) == 8, "read");
	if (!first)
		need(write(fd, b, 8) == 8, "write");
}

int main(int argc, char **argv)
{
	int count = argc == 2 ? atoi(argv[1]) : 0;
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof sa;
	struct rlimit files;

	if (count < 1) {
		fprintf(stderr, "usage: sockets COUNT\n");
		return 2;
	}
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	need(bind(listener, (struct sockaddr *)&sa, sizeof sa) == 0 && listen(listener, 128) == 0, "listen");
	getsockname(listener, (struct sockaddr *)&sa, &len);
	pid_t child = fork();
	if (getenv("PIN")) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(child == 0, &set);
		sched_setaffinity(0, sizeof set, &set);
	}
	double begin = now();
	for (int i = 0; i < count; i++) {
		int fd;
		if (child == 0) {
			fd = accept(listener, NULL, NULL);
			need(fd >= 0, "accept");
		} else {
			fd = socket(AF_INET, SOCK_STREAM, 0);
			need(fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0, "connect");
		}
		exchange(fd, child != 0);
	}
	if (child == 0)
		_exit(0);
	printf("{\"rate\":%.6g}\n", count / (now() - begin));
	fflush(stdout);
	waitpid(child, NULL, 0);
	return 0;
}

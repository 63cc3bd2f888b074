// IAs opened and closed again and again, which loads and unloads the library each time, two adapters at once, the whole life of
// a connection, and as many IAs at once: no descriptor is left behind. usage: open IA OTHER [TIMES]
#include "ctest.h"

#include <dirent.h>

static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

int main(int argc, char **argv)
{
	static DAT_IA_HANDLE many[1000];
	DAT_IA_HANDLE other;
	DAT_EVD_HANDLE other_async;
	int i, before = 0, times = argc > 3 ? atoi(argv[3]) : 1000;

	CHECK(argc >= 3 && times <= 1000);
	for (i = 0; i < times; i++) {
		open_ia(argv[1]);
		other_async = DAT_HANDLE_NULL;
		OK(dat_ia_open(argv[2], 8, &other_async, &other));
		CHECK(other != ia);
		if (i % 50 == 0)
			connect_pair();
		OK(dat_ia_close(other, DAT_CLOSE_GRACEFUL_FLAG));
		close_ia();
		if (i == times / 10)
			before = descriptors();
	}
	CHECK(descriptors() <= before + 4); // sockets of the last connections may linger
	for (i = 0; i < times; i++) {
		other_async = DAT_HANDLE_NULL;
		OK(dat_ia_open(argv[1 + i % 2], 8, &other_async, &many[i]));
	}
	for (i = 0; i < times; i++)
		OK(dat_ia_close(many[i], DAT_CLOSE_GRACEFUL_FLAG));
	CHECK(descriptors() <= before + 4);
	puts("PASS");
	return 0;
}

// IAs opened and closed a thousand times, two adapters at once, and the whole life of a connection again and again: no descriptor
// and no address space is left behind.
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
	DAT_IA_HANDLE other;
	DAT_EVD_HANDLE other_async;
	int i, before = 0;

	CHECK(argc == 3);
	for (i = 0; i < 1000; i++) {
		open_ia(argv[1]);
		other_async = DAT_HANDLE_NULL;
		OK(dat_ia_open(argv[2], 8, &other_async, &other));
		CHECK(other != ia);
		if (i % 50 == 0)
			connect_pair();
		OK(dat_ia_close(other, DAT_CLOSE_GRACEFUL_FLAG));
		close_ia();
		if (i == 100)
			before = descriptors();
	}
	CHECK(descriptors() <= before + 4); // sockets of the last connections may linger
	puts("PASS");
	return 0;
}

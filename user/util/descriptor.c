/* SPDX-License-Identifier: Apache-2.0 */
#include "util/descriptor.h"

#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/error.h"

#define SECOND_NS 1000000000ull

int descriptor_write(int fd, const void *bytes, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t written = write(fd, (const char *)bytes + done, size - done);

		if (written < 0 && errno != EINTR)
			return error_errno();
		if (written > 0)
			done += (size_t)written;
	}
	return 0;
}

int descriptor_wait(int fd, uint64_t until_ns)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	int ready;

	do {
		uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
		uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
		struct timespec left = {.tv_sec = (time_t)(left_ns / SECOND_NS),
					.tv_nsec = (long)(left_ns % SECOND_NS)};

		ready = ppoll(&wait, 1, &left, NULL);
	} while (ready < 0 && errno == EINTR);
	return ready > 0;
}

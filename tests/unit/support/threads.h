/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of a test's own process. Included after cmocka.h. */
#pragma once

#include <sys/stat.h>
#include <unistd.h>

/* Until those that have read another process for us have ended. */
static inline void threads_await(void)
{
	struct stat threads;

	do
		assert_int_equal(stat("/proc/self/task", &threads), 0);
	while (threads.st_nlink > 3 && !usleep(1000));
}

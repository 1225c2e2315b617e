/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* Closes one that is not negative. */
static inline void descriptor_close(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* Writes all bytes, however often the kernel takes a part or a signal comes. 0; -errno. */
int descriptor_write(int fd, const void *bytes, size_t size);
/*
 * 1: there is something to read, or the other end is closed; 0: not before until_ns of
 * CLOCK_MONOTONIC. A signal restarts the wait.
 */
int descriptor_wait(int fd, uint64_t until_ns);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A read under a process's mmap lock that does not make us wait for that lock. A thread of our own
 * reads: it is left if the read takes too long, and ends with it or with us, since the kernel lets
 * go whoever waits to read such a file once it is killed. (A process could not be started for that:
 * the kernel lets no process fork while it waits for such a lock to place or remove a probe.)
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/buffer.h"

/*
 * Reads up to max bytes of a file in /proc/PID, in one go or (whole) until its end; out may be
 * NULL. 0; -ETIMEDOUT: it takes more than wait_ms, and busy_ms more as long as it waits for nothing
 * but a processor, we are asked to end (util/interrupt.h), or too many such threads are left;
 * -errno. *slept_ns is what it has waited for something else than a processor: little, although it
 * takes too long, if the machine is busy.
 */
int lock_read(pid_t pid, const char *name, size_t max, int whole, unsigned int wait_ms,
	      unsigned int busy_ms, struct buffer *out, uint64_t *slept_ns);

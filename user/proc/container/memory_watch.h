/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How near a process is to the limits of memory that have it killed: those of its cgroup and all
 * above it that are visible, v1 or v2, and the machine's memory. A look costs a few system calls
 * while all of them are far away.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct memory_watch;

struct memory_state {
	double share;    /* used of the nearest limit, 0 to 1 */
	uint64_t used;   /* bytes of it that the kernel cannot reclaim before it kills */
	uint64_t limit;  /* bytes, of the nearest one */
	uint64_t kills;  /* processes killed for memory since it was opened */
	char where[160]; /* "the cgroup /a/b", cut at the front; "the machine" */
};

/* 0; -ESRCH; -ENOMEM. A cgroup that cannot be read is no limit. */
int memory_watch_open(struct memory_watch **out, pid_t pid);
void memory_watch_close(struct memory_watch *watch); /* NULL is legal */
/* Of the limits of its cgroups; machine: the machine's memory is one of them. */
void memory_watch_read(struct memory_watch *watch, bool machine, struct memory_state *out);
/*
 * The share of the last ten seconds in which a task waited for memory (PSI, "some avg10"), 0 to 1:
 * of the cgroup, or of the machine if that is asked for and is more. watch NULL: of the machine
 * alone. 0: the kernel does not tell.
 */
double memory_watch_pressure(const struct memory_watch *watch, bool machine);
/* The share of the machine's memory that is used. */
double memory_watch_machine(void);
/* For poll(), POLLPRI: the kernel counts a kill or an attempt at a limit. Borrowed; -1: none. */
int memory_watch_fd(const struct memory_watch *watch);
/* The cgroup's path as in /proc/PID/cgroup; "": none is visible. Borrowed. */
const char *memory_watch_cgroup(const struct memory_watch *watch);
/* The cgroup's directory; NULL: none is visible. Borrowed. */
const char *memory_watch_directory(const struct memory_watch *watch);

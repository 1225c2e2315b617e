/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much more memory processes may use before the kernel has to reclaim memory: the unused part
 * of the limits of their cgroups (memory.max and memory.high of v2, memory.limit_in_bytes of v1, of
 * the cgroup and all its ancestors that the mounted file systems show) and of the machine. It is
 * read once; planned allocations are then subtracted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct memory_headroom;

/* A limit that would be exceeded. */
struct memory_short {
	char where[128]; /* "the cgroup /a/b", truncated at the front; "the machine" */
	int swings;      /* 1: enough is left now, but was not when most was used */
	uint64_t left;   /* bytes: then, or now */
	/* bytes: what was charged plus half of it, for what the processes allocate meanwhile */
	uint64_t wanted;
};

/* One limit of a cgroup, in bytes. Pure. */
struct memory_level {
	uint64_t limit; /* UINT64_MAX: none */
	uint64_t used;
	/*
	 * The most that was used so far: what a program has used once it may use again. Above the
	 * limit it is of a time when that was higher, and does not count; UINT64_MAX: not known.
	 */
	uint64_t peak;
	/* part of used that can be reclaimed: inactive file pages, and half of the active ones */
	uint64_t reclaimable;
	/*
	 * what is reclaimed before a limit kills: all file pages, and slab that v2 calls
	 * reclaimable; all of the kernel's memory in v1, which tells no parts of it
	 */
	uint64_t reclaimable_last;
};
struct memory_left {
	uint64_t now, at_peak;
	uint64_t last; /* before a limit kills */
};
struct memory_left memory_level_left(const struct memory_level *level);

/* What is left of the limits of a cgroup's directory, v1 or v2. 1 and *left; 0: it has no limit. */
int memory_directory_left(const char *directory, struct memory_left *left);

/* 0, -ENOMEM. A cgroup is read when a process in it is first charged. */
int memory_headroom_new(struct memory_headroom **out);
void memory_headroom_free(struct memory_headroom *headroom); /* NULL is legal */
/*
 * Charges bytes to the process (less than 0: gives them back). 0; -ESRCH; -ENOMEM. A limit that
 * cannot be read is ignored.
 */
int memory_headroom_take(struct memory_headroom *headroom, pid_t pid, int64_t bytes);
/*
 * The least that is left of a cgroup's limit before it kills, of the charged ones. 1; 0: none has a
 * limit.
 */
int memory_headroom_left(const struct memory_headroom *headroom, uint64_t *left);
/*
 * Is a limit that was charged too small at the peak of its use? Returns 1 and the first such limit,
 * or 0.
 */
bool memory_headroom_is_short(const struct memory_headroom *headroom, struct memory_short *out);

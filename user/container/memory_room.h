/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much more memory processes may be given before the kernel would have to take it from
 * somebody: what is left of the limits of their cgroups (memory.max and memory.high of v2,
 * memory.limit_in_bytes of v1, and those of all cgroups above, as far as the mounted file systems
 * show them), and of the machine. A reading of one moment, from which what is about to be given is
 * taken.
 */
#ifndef TRACER_CONTAINER_MEMORY_ROOM_H
#define TRACER_CONTAINER_MEMORY_ROOM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct memory_room;

/* Where there is too little. */
struct memory_short {
	char where[128]; /* "the cgroup /a/b", cut at its beginning; "the machine" */
	uint64_t left,
		/*
		 * bytes; wanted: what was taken, and as much again by half for what the processes
		 * do meanwhile
		 */
		wanted;
};

/* Of one cgroup's files: the bytes that are left of its limits. Pure. */
struct memory_level {
	uint64_t limit; /* UINT64_MAX: none */
	uint64_t used;
	/* of that, files that nobody needs: inactive ones, and half of the active */
	uint64_t reclaimable;
};
uint64_t memory_level_left(const struct memory_level *level);
/* The value of "name 123" among the lines of a memory.stat; 0: it is not there. Pure. */
uint64_t memory_stat_value(const char *text, const char *name);

/*
 * What the files of a cgroup's directory say is left, of either version: 1 and *left; 0: it has no
 * limit.
 */
int memory_directory_left(const char *directory, uint64_t *left);

/* 0, -ENOMEM. Each cgroup is read when a process in it is first taken from. */
int memory_room_new(struct memory_room **out);
void memory_room_free(struct memory_room *room); /* NULL is legal */
/*
 * So many bytes are going to be the process's (less than 0: not after all). 0; -ESRCH; -ENOMEM. A
 * limit that cannot be read is none.
 */
int memory_room_take(struct memory_room *room, pid_t pid, int64_t bytes);
/* Is there too little of any that was taken from? 1: the first such, 0. */
int memory_room_is_short(const struct memory_room *room, struct memory_short *out);

#endif

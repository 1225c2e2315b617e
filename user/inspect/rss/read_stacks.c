/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel does not say which maps are stacks of threads. A sleeping thread's stack pointer is in
 * its "syscall" file. glibc puts struct pthread, the thread's descriptor, at the upper end of the
 * stack: it begins with a pointer to itself, has another one two words later, and somewhere behind
 * them the stack's address and size. Stacks of threads that run are recognised by a descriptor
 * near the end of a map.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inspect/rss/reading.h"
#include "runtime/malloc/reader.h"
#include "util/cleanup.h"

#define DESCRIPTOR_ALIGNMENT 64u
#define DESCRIPTOR_BYTES     4096u       /* in which the stack's address and size are */
#define SEARCH_MAX           (64u << 20) /* above a stack pointer */
#define TAIL_BYTES           16384u      /* at the end of a map */
#define STACK_MIN            16384u      /* PTHREAD_STACK_MIN */
#define GUARD_MAX            (16u << 20) /* below the stack, counted with it */

struct stacks_read {
	struct memory_reading *reading;
	struct malloc_reader *reader;
	int err;
};

/* Transient errors of reading leave the stack unknown. */
static int is_fatal(int err)
{
	return err && err != -EFAULT && err != -ENODATA;
}

/* The first descriptor in [start, end); 0: none. */
static uint64_t descriptor_find(struct stacks_read *stacks, uint64_t start, uint64_t end)
{
	uint8_t page[MEMORY_PAGE];

	for (uint64_t at = start / MEMORY_PAGE * MEMORY_PAGE; at < end; at += MEMORY_PAGE) {
		int err = reader_read(stacks->reader, at, page, sizeof(page), 0);

		if (is_fatal(err))
			stacks->err = err;
		for (uint64_t i = 0; !err && i < MEMORY_PAGE; i += DESCRIPTOR_ALIGNMENT) {
			uint64_t words[3];

			memcpy(words, page + i, sizeof(words));
			if (words[0] == at + i && words[2] == at + i)
				return at + i;
		}
		if (stacks->err)
			break;
	}
	return 0;
}

/* Takes the stack that a descriptor in this map names. Returns whether there is one. */
static int descriptor_take(struct stacks_read *stacks, const struct memory_map *map,
			   uint64_t descriptor)
{
	uint64_t words[DESCRIPTOR_BYTES / 8];
	size_t bytes = 0;
	struct memory_region region;

	/* Behind the stack may be the guard of another one, in the same map. */
	while (bytes < sizeof(words)) {
		size_t page = MEMORY_PAGE - (descriptor + bytes) % MEMORY_PAGE;
		size_t piece = page < sizeof(words) - bytes ? page : sizeof(words) - bytes;

		if (reader_read(stacks->reader, descriptor + bytes, (uint8_t *)words + bytes, piece,
				0))
			break;
		bytes += piece;
	}
	for (size_t i = 0; i + 1 < bytes / 8; i++) {
		uint64_t start = words[i], size = words[i + 1];

		if (start % MEMORY_PAGE || size % MEMORY_PAGE || size < STACK_MIN ||
		    start + GUARD_MAX < map->start || start >= descriptor ||
		    size > map->end - start || start + size <= descriptor)
			continue;
		if (start < map->start)
			start = map->start; /* the guard is a map of its own */
		size = words[i] + size - start;
		if (memory_region_open(&stacks->reading->account, start, start + size, &region))
			return 1;
		memory_region_take(&region, start + size, MEMORY_STACKS, 1);
		return 1;
	}
	return 0;
}

/* A stack without a descriptor that we know: the rest of its map. */
static void map_take(struct stacks_read *stacks, const struct memory_map *map)
{
	struct memory_region region;

	if (!memory_region_open(&stacks->reading->account, map->start, map->end, &region))
		memory_region_take(&region, map->end, MEMORY_STACKS, 1);
}

static void pointer_look(struct stacks_read *stacks, uint64_t pointer)
{
	const struct memory_map *map = memory_map_at(&stacks->reading->account, pointer);

	if (!map || map->source != MEMORY_ANONYMOUS)
		return;
	uint64_t end = map->end - pointer < SEARCH_MAX ? map->end : pointer + SEARCH_MAX;
	uint64_t descriptor = descriptor_find(stacks, pointer, end);
	if (!descriptor || !descriptor_take(stacks, map, descriptor))
		map_take(stacks, map);
}

/* "NUMBER ARGUMENTS… STACK-POINTER INSTRUCTION", or "running". */
static uint64_t pointer_read(int tasks, const char *tid)
{
	char path[300], text[256], *last;

	snprintf(path, sizeof(path), "%s/syscall", tid);
	int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t got = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[got > 0 ? got : 0] = '\0';
	last = strrchr(text, ' ');
	if (!last)
		return 0;
	*last = '\0';
	last = strrchr(text, ' ');
	return last ? strtoull(last + 1, NULL, 16) : 0;
}

static void sleeping_look(struct stacks_read *stacks)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/task", (int)stacks->reading->info.pid);
	_cleanup_(closedirp) DIR *tasks = opendir(path);
	for (struct dirent *entry; tasks && !stacks->err && (entry = readdir(tasks));) {
		if (entry->d_name[0] == '.' || atoi(entry->d_name) == stacks->reading->info.pid)
			continue;
		uint64_t pointer = pointer_read(dirfd(tasks), entry->d_name);
		if (pointer)
			pointer_look(stacks, pointer);
	}
}

static void tails_look(struct stacks_read *stacks)
{
	struct memory_account *account = &stacks->reading->account;

	for (size_t i = 0; i < account->map_count && !stacks->err; i++) {
		const struct memory_map *map = &account->maps[i];

		if (map->source != MEMORY_ANONYMOUS || !map->rss || !map->writable)
			continue;
		uint64_t start =
			map->end - map->start > TAIL_BYTES ? map->end - TAIL_BYTES : map->start;
		uint64_t descriptor = descriptor_find(stacks, start, map->end);
		if (descriptor)
			descriptor_take(stacks, map, descriptor);
	}
}

int memory_stacks_read(struct memory_reading *reading)
{
	struct stacks_read stacks = {.reading = reading};

	if (reading->info.threads < 2)
		return 0;
	int err = reader_new(&stacks.reader, reading->space);
	if (err)
		return err;
	sleeping_look(&stacks);
	if (!stacks.err)
		tails_look(&stacks);
	reader_free(stacks.reader);
	return stacks.err;
}

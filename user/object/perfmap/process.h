/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perf maps of processes, from the records of bpf/perfmap.bpf.c. Pure: hooks read from
 * processes and files.
 *
 * The state of a process follows CPython's C API manual. PyUnstable_PerfMapState_Init() opens its
 * map file and _Fini() closes it. A forked child has its parent's memory, and so its parent's
 * entries, whatever the file of its own says. What a parent wrote before the fork into a jitdump,
 * but was read later, is added to the child as well. exec clears the map. A process that has ended
 * keeps its last map.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "object/perfmap/jitdump.h"
#include "object/perfmap/perfmap_table.h"
#include "util/account.h"
#include "util/buffer.h"

#define PERFMAP_IMAGES_MAX    65536u /* registered at once in one process */
#define PERFMAP_PROCESSES_MAX 16384u

struct perfmap_image {
	uint64_t entry; /* address of its struct jit_code_entry */
	uint32_t origin;
};

struct perfmap_process {
	uint32_t tgid;
	struct perfmap_process *parent; /* the traced process that forked it; NULL: none */
	uint64_t forked_ns;             /* when; CLOCK_MONOTONIC */
	struct perfmap_table *table;
	enum { PERFMAP_FILE_UNKNOWN, PERFMAP_FILE_OPEN, PERFMAP_FILE_CLOSED } file;
	int persist;     /* 0, 1; -1: not set since tracing began */
	int init_result; /* of the last PyUnstable_PerfMapState_Init() */
	uint64_t inits, init_failures, finis, writes, copies, compiles, persists; /* calls */
	/* invalid entries (no bytes, beyond the address space, no name), or too many */
	uint64_t refused;
	uint64_t dropped; /* entries dropped for lack of memory (perfmaps_budget()) */
	int evicted;      /* it has ended, and its map was freed for others */
	uint64_t cut;     /* names cut at PERFMAP_NAME_MAX */
	uint64_t missed;  /* entries whose name could not be read */
	uint64_t expired; /* entries whose memory was unmapped */
	uint64_t images_registered, images_unreadable;
	uint64_t files_failed; /* map files that it copied but that could not be read */
	struct perfmap_image *images;
	size_t image_count, image_capacity;
	uint32_t next_origin;
	int execs, exited;
	void *user; /* for the caller */
	struct perfmaps *maps;
	struct account account;
};

struct perfmaps;

struct perfmaps_hooks {
	/* The string at an address, appended without its NUL. 0, -errno. */
	int (*name_read)(void *context, struct perfmap_process *process, uint64_t address,
			 struct buffer *name);
	/* Appends the bytes of an image. 0, -errno. */
	int (*image_read)(void *context, struct perfmap_process *process, uint64_t address,
			  uint64_t bytes, struct buffer *image);
	/* The process copies a map file into its own; the name needs no NUL. 0, -errno. */
	int (*file_copy)(void *context, struct perfmap_process *process, const char *name,
			 size_t bytes);
	/* It has forked or executed a program, which is applied next: reads what it has written. */
	void (*process_changes)(void *context, struct perfmap_process *process);
	/*
	 * The process has an entry that it did not have. That of a forked child's parent as of the
	 * fork are not told again. code and its name: until it returns. NULL: not wanted.
	 */
	void (*code_added)(void *context, struct perfmap_process *process,
			   const struct jitdump_code *code);
	/*
	 * The process was added by a fork, has executed a program, or has ended; type: EVENT_FORK,
	 * EVENT_EXEC, EVENT_EXIT.
	 */
	void (*process_changed)(void *context, struct perfmap_process *process, uint32_t type);
	void *context;
};

/* hooks are copied. 0, -ENOMEM. */
int perfmaps_new(struct perfmaps **out, const struct perfmaps_hooks *hooks);
void perfmaps_free(struct perfmaps *maps);
/*
 * Limits the memory of all maps, in bytes; 0: unlimited. One map has at most four times what the
 * others leave. When memory runs out, maps of traced children that have ended are freed, the oldest
 * first; an entry that still does not fit is dropped and counted.
 */
void perfmaps_budget(struct perfmaps *maps, uint64_t bytes);
/*
 * Adds a process, or returns the one of that id that has not ended. Borrowed until perfmaps_free().
 * 0, -ENOSPC, -ENOMEM.
 */
int perfmaps_add(struct perfmaps *maps, uint32_t tgid, struct perfmap_process **out);
/* The newest process of that id; NULL: none. */
struct perfmap_process *perfmaps_find(const struct perfmaps *maps, uint32_t tgid);

/* Processes a record; records of unknown processes are ignored. 0; -EPROTO: malformed; -ENOMEM. */
int perfmaps_feed(struct perfmaps *maps, const void *record, size_t size);

/* Adds a registered image. 0, also when it is unreadable, which is counted; -ENOMEM. */
int perfmap_image_add(struct perfmaps *maps, struct perfmap_process *process, uint64_t entry,
		      uint64_t image, uint64_t bytes, uint64_t time_ns);
/* Adds one entry; a refused or dropped entry is counted. 0, -ENOMEM. */
int perfmap_process_add(struct perfmap_process *process, uint64_t start, uint64_t bytes,
			const char *name, size_t name_bytes, const struct perfmap_entry *entry);
/* Copies all entries of another process's map. 0, -ENOSPC, -ENOMEM. */
int perfmap_process_copy(struct perfmap_process *process, const struct perfmap_process *from);
/*
 * Applies a jitdump record: new or moved code; new code also to the children that were forked after
 * it. A record is ignored if something newer is known of its address: each forked child of a
 * CPython writes what its parent had buffered once more. 0, -ENOMEM.
 */
int perfmap_process_jitdump(struct perfmap_process *process, const struct jitdump_code *code);

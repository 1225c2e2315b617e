/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perf maps of processes, from the records of bpf/perfmap.bpf.c. Pure: what has to be read from
 * a process or a file is asked of hooks.
 *
 * The state of each process is as the manual of CPython's C API describes it: its map file is
 * opened by PyUnstable_PerfMapState_Init() and closed by _Fini(); a fork gives the child its
 * parent's entries if trampolines were made to persist, and else an empty map (a child that copies
 * the map itself gets it in any case); exec empties it. Images of GDB's JIT interface lie in memory
 * and are inherited. A process that ended keeps its last map.
 */
#ifndef TRACER_PERFMAP_PROCESS_H
#define TRACER_PERFMAP_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "base/account.h"
#include "base/buffer.h"
#include "perfmap/jitdump.h"
#include "perfmap/table.h"

#define PERFMAP_IMAGES_MAX    65536u /* registered at once in one process */
#define PERFMAP_PROCESSES_MAX 16384u

struct perfmap_image {
	uint64_t entry; /* address of its struct jit_code_entry */
	uint32_t origin;
};

struct perfmap_process {
	uint32_t tgid;
	uint32_t parent_tgid; /* of the process that it was forked by under our eyes; 0: none */
	struct perfmap_table *table;
	enum { PERFMAP_FILE_UNKNOWN, PERFMAP_FILE_OPEN, PERFMAP_FILE_CLOSED } file;
	int persist;     /* 0, 1; -1: it was not set since the trace began */
	int init_result; /* of the last PyUnstable_PerfMapState_Init() */
	uint64_t inits, init_failures, finis, writes, copies, compiles, persists; /* calls */
	/* entries of no bytes, beyond the address space, without a name, or too many */
	uint64_t refused;
	uint64_t dropped; /* entries that there was no memory for (perfmaps_budget()) */
	int let_go;       /* it has ended, and its map has made room for others */
	uint64_t cut;     /* names cut at PERFMAP_NAME_MAX */
	uint64_t missed;  /* entries whose name could not be read */
	uint64_t expired; /* entries whose memory was unmapped */
	uint64_t images_registered, images_unreadable;
	uint64_t files_failed; /* map files that it copied and that could not be read */
	struct perfmap_image *images;
	size_t image_count, image_room;
	uint32_t next_origin;
	int execs, exited;
	void *user; /* the caller's */
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
	/*
	 * It has come under trace by a fork, ended, or changed its program (in this order of
	 * `type`s: EVENT_*).
	 */
	void (*process_changed)(void *context, struct perfmap_process *process, uint32_t type);
	void *context;
};

int perfmaps_new(struct perfmaps **out,
		 const struct perfmaps_hooks *hooks); /* 0, -ENOMEM; hooks are copied */
void perfmaps_free(struct perfmaps *maps);
/*
 * How much memory all maps may have, 0: as much as it takes; one has at most four times what the
 * others leave. The maps of processes that were forked under our eyes and have ended make room, the
 * oldest first; an entry that finds none is dropped and counted.
 */
void perfmaps_budget(struct perfmaps *maps, uint64_t bytes);
/*
 * A process comes under trace; borrowed until perfmaps_free(). One that is there and has not ended
 * is found. 0, -ENOMEM.
 */
int perfmaps_add(struct perfmaps *maps, uint32_t tgid, struct perfmap_process **out);
/* The newest of that id; NULL. */
struct perfmap_process *perfmaps_find(const struct perfmaps *maps, uint32_t tgid);

/* A record. 0; -EPROTO a malformed one; -ENOMEM. Of processes that are not known it is ignored. */
int perfmaps_feed(struct perfmaps *maps, const void *record, size_t size);

/*
 * An image that is registered, at an address. 0 (also when it is unreadable, which is counted),
 * -ENOMEM.
 */
int perfmap_image_add(struct perfmaps *maps, struct perfmap_process *process, uint64_t entry,
		      uint64_t image, uint64_t bytes, uint64_t time_ns);
/* Adds one entry, and counts it where that is not possible. 0, -ENOMEM. */
int perfmap_process_add(struct perfmap_process *process, uint64_t start, uint64_t bytes,
			const char *name, size_t name_bytes, const struct perfmap_entry *entry);
/* All entries of another process's map, or only those of its images. 0, -ENOSPC, -ENOMEM. */
int perfmap_process_copy(struct perfmap_process *process, const struct perfmap_process *from,
			 int only_with_origin);
/* What a jitdump says: code that is new or has moved. 0, -ENOMEM. */
int perfmap_process_jitdump(struct perfmap_process *process, const struct jitdump_code *code,
			    uint64_t time_ns);

#endif

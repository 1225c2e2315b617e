/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a live view (user/cmd/tui/) is told of a session: sums by stack at every refresh, and each
 * stack once. Both are written to a memfd that the client has passed: nothing else could be written
 * without waiting for anyone. The structures are those of this build on both sides; SUMS_MAGIC
 * changes with them. Each is followed by its parts without padding; all sizes are multiples of 8.
 *
 *   sums:    sums_header, then for each running process sums_process, its sums_entry and its
 *            sums_thread
 *   stacks:  stacks_header, then for each stack stacks_entry and its stacks_frame; then for each
 *            string its number of bytes (uint64_t), and these padded with NULs to a multiple of 8
 */
#pragma once

#include <stdint.h>

#include "session/ctl/request.h"
#include "session/target/collections.h"
#include "trace/trace.h"

#define SUMS_MAGIC      0x37736d7573637274ull /* "trcsums7" */
#define STACKS_AT_ONCE  4096u                 /* at most, in one answer */
#define STRINGS_AT_ONCE 65536u
#define SUMS_NAME_BYTES 72

struct sums_header {
	uint64_t magic;
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint64_t cpu_ns;  /* CPU time that this answer took */
	uint64_t processes, ended;
	uint64_t records, lost_events; /* of the session, since its begin */
	uint64_t tracer_bytes;
	double cost;                                      /* as session_cost() */
	double machine_took, machine_limit, machine_part; /* as session_machine() */
	uint64_t number;                                  /* for struct request.since */
};

/* sums_process.flags */
#define SUMS_WINDOWS   1u /* estimates */
#define SUMS_SAMPLED   2u
#define SUMS_WALKED    4u   /* the heap was walked, walk_ns ago; dead blocks count until a walk */
#define SUMS_LAYER     8u   /* the layer that was asked for is traced here */
#define SUMS_ALLOCATED 16u  /* entries say what was allocated */
#define SUMS_THREADS   32u  /* entries are by stack and thread */
#define SUMS_TASKS     64u  /* entries are by stack and task */
#define SUMS_TELLS     128u /* tasks are told, if they are asked for */
/* entries are only of stacks that have changed since struct request.since, also to nothing */
#define SUMS_CHANGES 256u
#define SUMS_AGES    512u  /* entries are by stack and age */
#define SUMS_VALUES  1024u /* with SUMS_TELLS: what is told is values of a variable, not tasks */

struct sums_process {
	uint32_t pid, mode; /* enum event_mode */
	uint32_t layer;     /* enum event_layer, of the entries */
	uint32_t flags;
	uint32_t stacks;  /* stacks known by now; indices of entries are below it */
	uint32_t entries; /* stacks that hold something or have allocated something, or changed */
	uint32_t python_version, layers;
	uint32_t threads;  /* whose names are known; 0 without SUMS_THREADS */
	uint32_t strings;  /* known by now, of stacks and tasks */
	uint64_t start_ns; /* with pid: the same process as in an earlier answer */
	uint64_t rss_bytes, walk_ns;
	uint64_t new_blocks, seen_blocks; /* as in struct snapshot_coverage */
	uint64_t peak_bytes;
	struct trace_rate rate; /* with SUMS_WINDOWS, or of malloc's; of entries' layer */
	struct collections collections;
	char name[SUMS_NAME_BYTES], container[SUMS_NAME_BYTES]; /* with NUL */
};

/* With SUMS_THREADS there may be several of one stack and thread, or task: they add up. */
struct sums_entry {
	/*
	 * owner: the thread's number, 0: not known; the task (trace_thread_sum.task); the age
	 * (trace_age_sum.age); 0 without SUMS_THREADS, SUMS_TASKS or SUMS_AGES
	 */
	uint32_t stack, owner;
	double size, count; /* finite, not negative */
	double allocated;   /* bytes since the trace began, alive or not */
};

struct sums_thread {
	uint32_t tid, reserved;
	char name[EVENT_THREAD_NAME]; /* with NUL */
};

struct stacks_header {
	uint64_t magic;
	uint64_t cpu_ns;
	uint64_t start_ns;
	uint32_t pid, first, count;
	uint32_t string_first, string_count; /* string_count: in this answer */
	uint32_t strings;                    /* all strings of the process */
};

struct stacks_entry {
	uint32_t nframe; /* 1 to EVENT_MAX_FRAMES */
	uint32_t total;
};

struct stacks_frame {
	uint32_t filename, function; /* numbers of strings */
	uint32_t line, reserved;
};

struct sums_facts {
	double cost;
	double machine_took, machine_limit, machine_part;
	uint64_t records;
	uint64_t cpu_ns; /* CPU time that it took to learn this */
	/* What the collectors of a process have done; NULL, or it returns NULL: it is not known. */
	const struct collections *(*collections)(const void *context, size_t process, uint32_t pid);
	const void *context;
};

/* 0; -EINVAL: fd is no memfd (error_set); -ENOMEM, -errno. */
int sums_write(int fd, struct trace *trace, const struct request *request,
	       const struct sums_facts *facts);
/* The stacks of a process from first on, and its strings from strings on. Errors as above. */
int stacks_write(int fd, struct trace *trace, size_t process, uint32_t first, uint32_t strings);

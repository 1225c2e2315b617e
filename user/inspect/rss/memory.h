/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what the resident memory of a process consists of. The process is not stopped. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "inspect/rss/smaps.h"
#include "inspect/rss/tree.h"
#include "proc/process.h"
#include "runtime/cpython/heap.h"
#include "runtime/cpython/runtime.h"
#include "runtime/heap/heap_types.h"
#include "runtime/malloc/allocator.h"
#include "runtime/malloc/glibc.h"
#include "runtime/malloc/walk.h"

#define MEMORY_REASON         256
#define MEMORY_ALLOCATOR_NAME 128

/* What is in an arena of malloc, resident or not. */
struct memory_arena {
	uint64_t address;
	uint64_t system; /* bytes that it has from the system */
	uint64_t bytes[GLIBC_KINDS];
};

/* What is in arenas of pymalloc that are at most a quarter full. */
struct memory_pins {
	uint64_t arenas, bytes;
	struct heap_types types; /* of the blocks in them */
};

/* An allocator's heap, resident or not. */
struct memory_allocator {
	const struct allocator_type *type;
	char version[ALLOCATOR_VERSION];
	struct allocator_totals totals;
};

struct memory_report {
	struct process_info info;
	struct memory_node root;
	struct smaps_totals totals;
	uint64_t elapsed_ns, frozen_ns;
	uint64_t bytes_swapped; /* of Python's heap, that were left out */

	/* Python; version 0: none */
	uint32_t python_version;
	struct heap_walk heap;
	/* arenas of pymalloc that are at most a quarter full, and what keeps them */
	struct memory_pins pins;
	uint64_t large_blocks; /* allocated blocks of malloc that were taken for Python's */
	char python_reason[MEMORY_REASON]; /* why its heap could not be read; "" */

	/* malloc; glibc 2.minor, 0: none */
	unsigned int glibc_minor;
	struct memory_arena *arenas;
	size_t arena_count;
	struct glibc_totals chunks;
	struct glibc_mmaps mmaps;            /* as malloc counts them */
	uint64_t mapped_count, mapped_bytes; /* as they were found */
	uint64_t trimmable;
	char malloc_reason[MEMORY_REASON];

	/* what replaces malloc, or is there beside it */
	struct memory_allocator *allocators;
	size_t allocator_count;
	char allocators_reason[MEMORY_REASON]; /* why one could not be read; "" */
	/* a library that replaces malloc, and could not be read; "": none */
	char unread_allocator[MEMORY_ALLOCATOR_NAME];
};

struct memory_reading;

/*
 * Finds what is to be read, and opens all files: needs the privileges of the attach. swap_in:
 * memory that is swapped out is read, too. 0; -ENOTSUP a
 * kernel thread; -EINVAL pid is not the thread group leader; -ESRCH; -EPERM; -ENOMEM.
 */
int memory_open(struct memory_reading **out, pid_t pid, int swap_in);
void memory_close(struct memory_reading *reading); /* NULL is legal */
/*
 * Reads it all, as often as it is called. freeze: the process is stopped meanwhile. 0; -ESRCH: it
 * has ended; -EBUSY and -ETIMEDOUT: it could not be stopped; -ENOMEM. *out is to be freed with
 * memory_report_free().
 */
int memory_read_report(struct memory_reading *reading, int freeze, struct memory_report *out);
void memory_report_free(struct memory_report *report);

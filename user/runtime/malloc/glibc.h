/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heaps of glibc's malloc in another process, read from outside: no probe, nothing is written,
 * and the process runs on. What is read is hostile and may change meanwhile: every list and size is
 * bounded, and what is inconsistent is read again, then given up and counted.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/process.h"
#include "runtime/malloc/glibc_layout.h"

#define GLIBC_ARENAS_MAX 4096u
#define GLIBC_HEAPS_MAX  65536u

struct malloc_reader;
struct space;

/* Contiguous memory with chunks of one arena. */
struct glibc_heap {
	uint64_t start, end; /* what the heap takes, with its own structures */
	uint64_t first;      /* address of its first chunk */
	uint32_t arena;      /* index */
};

struct glibc_arena {
	uint64_t address;
	uint64_t top, top_bytes;
	uint64_t system_bytes; /* as the arena counts them */
};

/* Counts that malloc keeps about blocks with a mapping of their own. */
struct glibc_mmaps {
	uint64_t count, bytes;
	int known; /* 0: struct malloc_par was not found */
};

struct glibc {
	struct space *space; /* shared */
	unsigned int minor;  /* glibc 2.minor */
	const struct glibc_layout *layout;
	uint64_t main_arena,
		parameters; /* parameters: struct malloc_par, its sbrk_base; 0: unknown */
	struct malloc_reader *reader;
	struct glibc_arena *arenas; /* the first is the main arena */
	size_t arena_count;
	struct glibc_heap *heaps; /* by address */
	size_t heap_count;
	struct glibc_mmaps mmaps;
	/* the main arena has memory that is not in the program's break, and cannot be found */
	int main_is_elsewhere;
};

/*
 * Finds malloc in the libc.so.6 of a process: its version by the file, main_arena by its structure
 * (the bins are lists that lead back to themselves), the layout by what must hold in the process.
 * It opens the file. 0; -ENOENT: the process has no glibc; -ENODATA: it has one whose malloc is not
 * in use; -ENOTSUP: a version that is not supported, or structures that could not be proven
 * (error_set); -ESRCH; -EPERM; -ENOMEM. The caller frees it with glibc_close().
 */
int glibc_open(struct glibc **out, struct space *space, const struct process_maps *maps);
/* The same for a main arena at a known address; parameters may be 0. For tests. */
int glibc_open_at(struct glibc **out, struct space *space, unsigned int minor, uint64_t main_arena,
		  uint64_t parameters, const struct process_maps *maps);
void glibc_close(struct glibc *glibc); /* NULL is legal */
/*
 * Reads the lists of arenas and heaps again. 0; -ENOTSUP: they contradict the layout (error_set);
 * -ESRCH; -ENOMEM.
 */
int glibc_look(struct glibc *glibc, const struct process_maps *maps);

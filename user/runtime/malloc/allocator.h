/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heaps of allocators (glibc's malloc, and those that replace it: jemalloc, tcmalloc, mimalloc,
 * musl's), read from outside by their own structures. An allocator is a struct allocator_type; the
 * list of them is in allocator.c. What is read is hostile and may change meanwhile: every list and
 * size is bounded, and what is inconsistent is counted, not guessed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/process.h"

struct space;

#define ALLOCATORS_MAX     5u /* in one process */
#define ALLOCATOR_VERSION  32u
#define ALLOCATOR_REASON   256u
#define ALLOCATOR_CLASSES  512u       /* limit of size classes */
#define ALLOCATOR_RUNS_MAX (1u << 26) /* limit of runs in a walk */

enum allocator_kind {
	ALLOCATOR_USED,     /* blocks that the program has */
	ALLOCATOR_CACHED,   /* free blocks in caches of threads or processors */
	ALLOCATOR_FREE,     /* free blocks, or tails, of pages that also have blocks in use */
	ALLOCATOR_DIRTY,    /* free pages: a purge returns what is resident of them */
	ALLOCATOR_MUZZY,    /* free pages that the kernel may take at any time (MADV_FREE) */
	ALLOCATOR_RETAINED, /* addresses that were returned to the kernel, and are kept */
	ALLOCATOR_METADATA, /* its own structures */
	ALLOCATOR_UNKNOWN,  /* could not be read */
	ALLOCATOR_KINDS
};

/* Adjacent blocks of one kind; what is no block is one of all its bytes. */
struct allocator_run {
	uint64_t address, block_bytes;
	uint64_t count;
	enum allocator_kind kind;
};

/* Returns non-zero to stop. */
typedef int (*allocator_run_fn)(const struct allocator_run *run, void *context);

/* Blocks of one size, in pages of their own. */
struct allocator_class {
	uint64_t block_bytes;
	uint64_t used, cached, free; /* blocks */
	uint64_t slabs, slab_bytes; /* groups of pages that hold such blocks, and all their bytes */
};

/* Of a walk, resident or not. */
struct allocator_totals {
	uint64_t bytes[ALLOCATOR_KINDS], counts[ALLOCATOR_KINDS];
	uint64_t unused;  /* of ALLOCATOR_METADATA, what no structure was ever put in */
	uint64_t caches;  /* of threads or processors, that were found */
	uint64_t swapped; /* reads that would have swapped in a page */
	uint64_t cut;     /* lists that did not end as they must: their blocks may count as used */
	struct allocator_class
		classes[ALLOCATOR_CLASSES]; /* by size; those without slabs left out */
	size_t class_count;
};

struct allocator_type {
	const char *name;  /* "jemalloc" */
	const char *purge; /* the call that returns free pages; NULL: it has none */
	/*
	 * Its blocks have the sizes of classes, and bytes are all of them; else a block has what
	 * was asked for, up to 8 bytes in front of a multiple of 16.
	 */
	bool has_classes;
	/*
	 * What malloc() returned may be within a block, if it was aligned by request, and nothing
	 * tells where.
	 */
	bool is_inner;
	/*
	 * Finds the allocator in a process, and proves the layout of its structures there. It may
	 * open files. version: as text, "" if it is not known. 0; -ENOENT: the process does not
	 * have it, which must be told at little cost; -ENODATA: it has it, and never used it;
	 * -ENOTSUP: a version that is not supported, or structures that could not be proven
	 * (error_set); -ESRCH; -EPERM; -ENOMEM. *state is freed with close().
	 */
	int (*open)(void **state, struct space *space, const struct process_maps *maps,
		    char version[ALLOCATOR_VERSION]);
	void (*close)(void *state);
	/*
	 * Visits all that the allocator has, in order of address; runs do not overlap. maps: as
	 * they are now. Adds to totals what visit() is not told: classes, caches, swapped, cut.
	 * It is called as often as is wanted, and each time reads anew. 0; what visit() returned;
	 * -ESRCH; -EPERM; -ENOMEM; -ENOTSUP: what is there contradicts the layout (error_set).
	 */
	int (*walk)(void *state, const struct process_maps *maps, allocator_run_fn visit,
		    void *context, struct allocator_totals *totals);
	/* Is a variable of it in this range? Then it is the allocator of the file that has it. */
	bool (*has_variable)(const void *state, uint64_t start, uint64_t end);
	/*
	 * NULL, or what malloc() returned of a block in use that begins at an address: a walk does
	 * not look at each block for it. The address itself if it cannot be read.
	 */
	uint64_t (*returned)(void *state, uint64_t address, uint64_t bytes);
};

/* One that a process has. */
struct allocator {
	const struct allocator_type *type;
	void *state;
	char version[ALLOCATOR_VERSION];
};

struct allocators {
	struct allocator items[ALLOCATORS_MAX];
	size_t count;
	pid_t pid;
	bool has_unused; /* the process has one that it has not used yet */
	/* why one that the process has cannot be read: "NAME: reason"; "" */
	char reason[ALLOCATOR_REASON];
};

/*
 * Finds those of a process that replace glibc's malloc. 0, also if it has none; -ESRCH; -EPERM;
 * -ENOMEM. The caller frees it with allocators_close().
 */
int allocators_open(struct allocators *out, struct space *space, const struct process_maps *maps);
/* The same with glibc's. */
int allocators_open_all(struct allocators *out, struct space *space,
			const struct process_maps *maps);
void allocators_close(struct allocators *allocators);
/* Is one of them the allocator of the file of a map? maps: all of the process's. */
bool allocators_have(const struct allocators *allocators, const struct process_maps *maps,
		     const struct process_map *file);
/* walk() of the type, whose runs are added up in *out and passed on; visit: NULL: nobody. */
int allocator_walk(const struct allocator *allocator, const struct process_maps *maps,
		   allocator_run_fn visit, void *context, struct allocator_totals *out);

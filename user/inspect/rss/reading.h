/* SPDX-License-Identifier: Apache-2.0 */
/* Private to rss/: the parts of memory_read_report(). */
#pragma once

#include "inspect/rss/account.h"
#include "inspect/rss/large.h"
#include "inspect/rss/memory.h"

struct memory_reading {
	struct process_info info;
	struct python_runtime runtime;
	int has_python;
	struct space *space; /* the runtime's, if there is one */
	struct glibc *glibc; /* NULL: none */
	/* why one of them cannot be read; "": it has none */
	char python_reason[MEMORY_REASON], malloc_reason[MEMORY_REASON];
	struct smaps_files files;
	struct memory_account account;
	struct memory_large large; /* large blocks of malloc */
	struct memory_report *report;
	struct memory_sparse *sparse; /* arenas of pymalloc with few live blocks, by address */
	size_t sparse_count, sparse_capacity;
};

/* An arena of pymalloc. */
struct memory_sparse {
	uint64_t address, live; /* live: bytes of its blocks in use */
};

/* Takes the arenas of pymalloc; marks the large blocks that live blocks refer to. 0, -errno. */
int memory_python_read(struct memory_reading *reading);
/* Reads the types of the objects in sparse arenas, after memory_python_read(). 0, -errno. */
int memory_pins_read(struct memory_reading *reading);
/* Lists the large blocks of malloc. 0, -errno. */
int memory_malloc_list(struct memory_reading *reading, const struct process_maps *maps);
/* Takes the heaps of malloc, and its mapped blocks. 0, -errno. */
int memory_malloc_read(struct memory_reading *reading);
/* Takes the .bss of mapped files. 0, -errno. */
int memory_bss_read(struct memory_reading *reading);
/* Takes the stacks of threads. 0, -errno. */
int memory_stacks_read(struct memory_reading *reading);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: files whose unwind tables are compiled one after the other, and the process that does it.
 * The inside of loader.c.
 */
#ifndef TRACER_UNWIND_LOAD_LANE_H
#define TRACER_UNWIND_LOAD_LANE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/unwind.h"
#include "symbols/worker.h"
#include "unwind/table.h"

struct wanted {
	struct abi_unwind_key key;
	pid_t pid;
	uint64_t start, end; /* of its mapping */
	char *path;          /* of its mapping; NULL: not open yet, or no memory */
	int fd;              /* -1: not open yet */
	int debug_fd;        /* -1: none, or not looked for */
	int is_urgent;       /* it is waited for, whatever lane it is in */
};

struct lane {
	struct worker *worker; /* NULL: none was needed yet */
	struct wanted *queue;  /* the first one is being compiled */
	size_t count, capacity;
	int table_fd;                 /* what the worker writes to; -1: it was not asked yet */
	int is_again;                 /* it is asked again, with the first file's debug file */
	struct unwind_table *without; /* what it answered before; NULL: nothing */
};

/* Closes the descriptors, frees the path. */
void wanted_close(const struct wanted *wanted);
void lane_free(struct lane *lane);
/* Takes the descriptors and the path, also on failure. 0, -ENOMEM; -EMFILE: count is max. */
int lane_add(struct lane *lane, const struct wanted *wanted, size_t max);
void lane_remove_first(struct lane *lane);
/* The file that waits for its turn; NULL: it does not. Valid until the queue changes. */
struct wanted *lane_find(struct lane *lane, const struct abi_unwind_key *key);
/* It is urgent from now on, and next after the file that is being compiled. */
void lane_hurry(struct lane *lane, struct wanted *wanted);
int lane_has_urgent(const struct lane *lane);
/*
 * Compiles the table of the first file, which is open, and once more with its debug file if that
 * may describe what it does not itself. 0: the caller frees *table; -EAGAIN: not yet; -errno.
 */
int lane_compile(struct lane *lane, uint64_t until_ns, struct unwind_table **table);

#endif

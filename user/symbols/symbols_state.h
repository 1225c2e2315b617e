/* SPDX-License-Identifier: Apache-2.0 */
/* What symbols.c and modules.c share; nobody else's business. */
#ifndef TRACER_SYMBOLS_SYMBOLS_STATE_H
#define TRACER_SYMBOLS_SYMBOLS_STATE_H

#include "base/strings.h"
#include "symbols/files.h"
#include "symbols/jit_map.h"
#include "symbols/memo.h"
#include "symbols/worker.h"

/* The place that the worker has been asked about and has not told of yet. */
struct asked {
	struct file *file; /* in use by this; NULL: none */
	uint64_t offset, vaddr;
	char *path; /* of its module */
	char symbol[WORKER_NAME_MAX];
	struct symbols_share *share; /* in use by this, may be NULL */
	uint64_t before_ns;          /* worker_spent_ns() at the time */
};

struct symbols_share {
	uint32_t users;
	uint64_t spent_ns, max_ns;
};

struct symbols {
	struct files *files;
	struct jit_map *jit_maps;
	struct worker *worker;
	uint32_t handed; /* files that the worker of this generation has */
	uint64_t generation;
	struct strings *strings;
	struct account *account;
	struct memo memo;
	struct asked asked;
	struct symbols_stats stats;
};

#endif

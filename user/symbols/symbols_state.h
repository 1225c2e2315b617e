/* SPDX-License-Identifier: Apache-2.0 */
/* What symbols.c and modules.c share; nobody else's business. */
#ifndef TRACER_SYMBOLS_SYMBOLS_STATE_H
#define TRACER_SYMBOLS_SYMBOLS_STATE_H

#include "base/account.h"
#include "base/strings.h"
#include "symbols/files.h"
#include "symbols/jit_map.h"
#include "symbols/memo.h"
#include "symbols/worker.h"

/* A worker, and which of the files it has. */
struct helper {
	struct worker *worker;
	uint32_t handed; /* files that the worker of this generation has */
	uint64_t generation;
	uint64_t looked_ns; /* when its memory was looked at last, or it was met */
};

/* The place that the workers have been asked about and have not told of yet. */
struct asked {
	struct file *file; /* in use by this; NULL: none */
	int has_symbol;    /* the one for tables has told of its symbol */
	uint64_t offset, vaddr;
	char *path; /* of its module */
	char symbol[WORKER_NAME_MAX];
	struct symbols_share *share; /* in use by this, may be NULL */
	uint64_t before_ns;          /* symbols_worker_ns() at the time */
};

struct symbols_share {
	uint32_t users;
	uint64_t spent_ns, max_ns;
};

struct symbols {
	struct files *files;
	struct jit_map *jit_maps;
	struct helper dwarf, tables;
	uint64_t tables_max; /* bytes that the symbol tables may take together */
	uint64_t dwarf_max;  /* bytes that what was read of DWARF may take, for more than LOOK_NS */
	int plain_gave_up;   /* one that could not wait has waited once */
	struct strings *strings;
	struct account *account; /* of the session; NULL: no limit */
	struct account names;    /* below it: what is remembered of files */
	struct memo memo;
	struct asked asked;
	struct symbols_stats stats;
};

#endif

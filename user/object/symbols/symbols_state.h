/* SPDX-License-Identifier: Apache-2.0 */
/* Private to symbols.c and modules.c. */
#pragma once

#include "object/symbols/cache.h"
#include "object/symbols/files.h"
#include "object/symbols/jit_map.h"
#include "object/symbols/worker.h"
#include "util/account.h"
#include "util/strings.h"

/* A worker and the number of files it has. */
struct helper {
	struct worker *worker;
	uint32_t handed; /* files sent to the worker of this generation */
	uint64_t generation;
	uint64_t looked_ns; /* when its memory was last checked, or it was started */
};

/* The pending question to the workers. */
struct asked {
	struct file *file; /* a user of the file; NULL: no question */
	int has_symbol;    /* the worker for tables has answered */
	uint64_t offset, vaddr;
	char *path; /* path of the module */
	char symbol[WORKER_NAME_MAX];
	struct symbols_share *share; /* a user of the share; may be NULL */
	uint64_t before_ns;          /* symbols_worker_ns() when it was asked */
};

struct symbols_share {
	uint32_t users;
	uint64_t spent_ns, max_ns;
};

struct symbols {
	struct files *files;
	struct jit_map *jit_maps;
	struct fetch *fetch; /* NULL: nothing is fetched */
	uint32_t fetches;    /* questions that have no answer yet */
	bool fetch_told;     /* that servers cannot be reached */
	struct helper dwarf, tables;
	uint64_t tables_max; /* limit for all symbol tables together, bytes */
	uint64_t dwarf_max;  /* limit for what was read of DWARF, bytes, checked every LOOK_NS */
	int plain_gave_up;   /* symbols_resolve_plain() has waited in vain */
	struct strings *strings;
	struct account *account; /* the session's; NULL: no limit */
	struct account names;    /* child of account: cached results for files */
	struct cache cache;
	struct asked asked;
	struct symbols_stats stats;
};

/* SPDX-License-Identifier: Apache-2.0 */
/* What symbols.c and modules.c share; nobody else's business. */
#ifndef TRACER_SYMBOLS_SYMBOLS_STATE_H
#define TRACER_SYMBOLS_SYMBOLS_STATE_H

#include "base/strings.h"
#include "symbols/files.h"
#include "symbols/jit_map.h"
#include "symbols/memo.h"
#include "symbols/worker.h"

struct symbols {
	struct files *files;
	struct jit_map *jit_maps;
	struct worker *worker;
	uint32_t handed; /* files that the worker of this generation has */
	uint64_t generation;
	struct strings *strings;
	struct account *account;
	struct memo memo;
	struct symbols_stats stats;
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The options of "tracer perfmap". */
#ifndef TRACER_OPTIONS_PERFMAP_OPTIONS_H
#define TRACER_OPTIONS_PERFMAP_OPTIONS_H

#include "options/options.h"
#include "perfmap_session/perfmap_session.h"
#include "select/target_set.h"

struct perfmap_options {
	struct target_set targets;      /* pids and containers; empty with a command */
	struct cli_arguments command;   /* none with targets */
	struct perfmap_symbol *symbols; /* owned */
	size_t symbol_count, symbol_capacity;
	const char *output; /* borrowed; NULL: none */
	enum outfile_replace replace;
	int install, follow, status;
	uint64_t duration_ns; /* 0: none */
	struct perfmap_session_opts session;
};

/* 0; otherwise as cli_parse(). perfmap_options_free() in any case. */
int perfmap_options_parse(int argc, char **argv, struct perfmap_options *out);
/* Is the map of a single process written? */
int perfmap_options_single(const struct perfmap_options *options);
void perfmap_options_free(struct perfmap_options *options);

#endif

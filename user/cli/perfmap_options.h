/* SPDX-License-Identifier: Apache-2.0 */
/* The options of "tracer perfmap". */
#ifndef TRACER_CLI_PERFMAP_OPTIONS_H
#define TRACER_CLI_PERFMAP_OPTIONS_H

#include "cli/cli.h"
#include "probe/perfmap_session.h"

struct perfmap_options {
	pid_t *pids; /* owned; NULL with a command */
	size_t pid_count;
	struct cli_arguments command;   /* none with pids */
	struct perfmap_symbol *symbols; /* owned */
	size_t symbol_count, symbol_room;
	const char *output; /* borrowed; NULL: none */
	int install, follow, status;
	uint64_t duration_ns; /* 0: none */
	struct perfmap_session_opts session;
};

/* 0; otherwise as cli_parse(). perfmap_options_free() in any case. */
int perfmap_options_parse(int argc, char **argv, struct perfmap_options *out);
void perfmap_options_free(struct perfmap_options *options);

#endif

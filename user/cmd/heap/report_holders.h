/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer report --by-holder: beneath each line of a snapshot, what keeps those blocks alive that
 * are on the heap now, or were when a dump of it was written.
 */
#pragma once

#include "cmd/options/options.h"

/* The input of holder_argp; zero-initialise. */
struct holder_choice {
	int asked;         /* --by-holder */
	const char *heap;  /* --heap; NULL: the process itself is read */
	const char *trace; /* --trace; NULL: the session that traces the process is asked */
	uint64_t session;  /* --session; 0: any */
};
/* --by-holder, --heap, --trace and --session */
extern const struct argp holder_argp;

/*
 * As cli_report_print(), with the holders. Reads one process and drops the privileges for more.
 * EXIT_DONE; EXIT_FAILED or EXIT_USAGE after a message.
 */
int report_holders_print(const struct snapshot *snapshot, const struct report_choice *report,
			 const struct holder_choice *choice);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of `tracer agent`: sections of "key = value" lines, comments after # at the
 * beginning of a line. docs/agent.md describes each key; what is not set has its default, so an
 * empty file is one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cmd/evidence/trigger.h"
#include "proc/targets/target_set.h"

#define CONFIG_KEYS     34u
#define CONFIG_BYTES    65536u /* of a file; a larger one is refused */
#define CONFIG_MISTAKES 20u

struct config {
	/* [targets] */
	struct target_set targets;
	/* [trace] */
	bool trace;
	char overhead[16];         /* percent, as --overhead takes it */
	char machine_overhead[16]; /* the same of --machine-overhead */
	char after_cpu[16];        /* seconds, as --after-cpu takes them; "0": at once */
	char budget[16];           /* bytes, as --budget takes them */
	/* [evidence] */
	bool evidence, on_oom;
	char *folder;
	struct triggers triggers; /* on-memory */
	uint64_t pause_ns;        /* between two bundles of a name */
	uint64_t keep, space;     /* bundles, and bytes of all of them */
	char *hook;               /* a program; "": none */
	/* [http] */
	bool http;
	char *address;
	uint16_t port;
	char *token_file, *certificate, *key; /* "": none */
	uint64_t top;
	/* [push] */
	char *otlp, *pyroscope;     /* URLs; "": none */
	bool ingest;                /* Pyroscope's /ingest */
	uint64_t interval, timeout; /* seconds */
	char *spool;
	uint64_t spool_space;    /* bytes */
	char *headers_file, *ca; /* "": none */

	/* of each key as it was written, and the same as the parsers have cut it into words */
	char *values[CONFIG_KEYS], *words[CONFIG_KEYS];
};

/*
 * Reads the file (NULL: all defaults). 0; -EINVAL: it has mistakes; -errno. Each mistake is
 * reported in a line, "PATH: line 3, column 8: …", with what is allowed, and so is another error;
 * after CONFIG_MISTAKES of them no more are looked for. *out is the caller's to config_free(),
 * zeroed on failure.
 */
int config_read(struct config *out, const char *path);
void config_free(struct config *config);
/* Is evidence kept of anything? */
bool config_keeps(const struct config *config);
/*
 * Prints a line: what would be watched, kept, served and sent. "every Python at 1%, evidence in
 * /var/lib/tracer, figures at 127.0.0.1:9464, nothing is sent".
 */
void config_print(const struct config *config, FILE *out);
/* A bit for each section. */
enum config_section {
	CONFIG_TARGETS = 1 << 0,
	CONFIG_TRACE = 1 << 1,
	CONFIG_EVIDENCE = 1 << 2,
	CONFIG_HTTP = 1 << 3,
	CONFIG_PUSH = 1 << 4
};
/* Logs each key that differs, with both values. The sections that they are of. */
unsigned int config_compare(const struct config *old, const struct config *now);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The web server of `tracer serve`: docs/serve.md has its addresses. It is one process with one
 * thread, which answers from what it has read before: it can open no file, and holds no capability.
 * Each answer about a heap is the JSON that the same question of `tracer heap` prints.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cmd/heap/heap_choice.h"
#include "cmd/serve/serve_time.h"
#include "util/buffer.h"

#define SERVE_SOURCES 16u
#define SERVE_TOP     100u /* rows of an answer, unless more are asked for */

/*
 * What is shown: a heap, or a page that is complete; of a recording, it over time besides. All is
 * owned but the name.
 */
struct serve_source {
	const char *name; /* as the command line has it; borrowed */
	bool is_heap;
	struct heap_graph heap; /* with HEAP_RETAINED and HEAP_PATHS */
	struct buffer page;
	struct snapshot *snapshot; /* that the page is of; NULL: of none */
	const char *policy;        /* of the page */
	struct serve_recording recording;
};

struct serve_opts {
	const struct serve_source *sources;
	size_t count;
	bool values; /* contents of texts are shown */
	int opener;  /* takes the first link, of serve_open.h; -1: none */
};

struct serve_web;

/*
 * Starts to listen. listener: taken. 0, -errno (error_set). The caller frees with serve_web_free().
 */
int serve_web_new(struct serve_web **out, int listener);
/*
 * Gives up all privileges, prints the link, and serves until a signal asks for the end (SIGINT,
 * SIGTERM, SIGHUP). The sources are borrowed. 0, -errno (error_set).
 */
int serve_web_run(struct serve_web *web, const struct serve_opts *opts);
void serve_web_free(struct serve_web *web); /* NULL is legal */
/*
 * The answer to one question of the page about the first source: path: "/api/…", what: what it is
 * about; NULL: nothing. The caller frees *text, also after a failure. 0, -errno (error_set).
 */
int serve_answer(const struct serve_opts *opts, const char *path, const char *what, char **text,
		 size_t *bytes);

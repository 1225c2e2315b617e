/* SPDX-License-Identifier: Apache-2.0 */
/* tracer serve: what is shown is read at once; then the server has no rights left (serve_web.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/cli.h"
#include "cmd/evidence/bundle.h"
#include "cmd/evidence/suspect.h"
#include "cmd/options/options.h"
#include "cmd/options/targets.h"
#include "cmd/serve/serve_compare.h"
#include "cmd/serve/serve_open.h"
#include "cmd/serve/serve_web.h"
#include "inspect/dump/dump_file.h"
#include "report/export/exporter.h"
#include "snapshot/snapshot.h"
#include "util/archive.h"
#include "util/cleanup.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/http_server.h"

enum { KEY_PORT = 0x400, KEY_OPEN, KEY_VALUES };

struct serve {
	uint64_t port; /* 0: any that is free */
	int opens, values;
	struct target_set targets;
	struct cli_arguments files;
	struct serve_source *sources;
	size_t count;
};

static const struct argp_option options[] = {
	{"pid", 'p', "PID", 0, "the heap of this process, as it is now", 1},
	{"port", KEY_PORT, "N", 0, "listen on this port of 127.0.0.1 (default: a free one)", 2},
	{"open", KEY_OPEN, NULL, 0, "also open the link in a browser (xdg-open)", 2},
	{"values", KEY_VALUES, NULL, 0, "also show the contents of texts", 2},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct serve *serve = state->input;

	switch (key) {
	case 'p':
		if (cli_parse_pids(arg, &serve->targets.pids, &serve->targets.pid_count)) {
			error_print(-EINVAL, "tracer list shows what can be read", "--pid");
			return CLI_REPORTED;
		}
		return 0;
	case KEY_PORT:
		if (cli_parse_number(arg, 1, 65535, &serve->port))
			return cli_reject("--port", arg, "a number from 1 to 65535");
		return 0;
	case KEY_OPEN:
		serve->opens = 1;
		return 0;
	case KEY_VALUES:
		serve->values = 1;
		return 0;
	}
	return cli_parse_arguments(key, state, &serve->files);
}

static int usage_error(const char *reason)
{
	error_print(error_set(-EINVAL, "%s", reason), "tracer serve FILE, or tracer serve -p PID",
		    "serve");
	return EXIT_USAGE;
}

/* --- what is shown ---------------------------------------------------------------------------- */

/* A snapshot, or the last one of a recording, and its page. 0, -errno after a message. */
static int snapshot_read(const char *path, struct serve_source *source)
{
	const struct pid_choice choice = {.ages = {.ages = AGES_ALL}};
	int err = cli_snapshot_pick(path, &choice, &source->snapshot);

	if (err)
		return err;
	err = serve_page(source->snapshot, path, NULL, NULL, &source->page);
	return err ? error_print(err, NULL, "%s", path) : 0;
}

/* 0, -errno after a message. */
static int bundle_read(const char *path, struct serve_source *source)
{
	_cleanup_close_ int fd = memfd_create("tracer-page", MFD_CLOEXEC);
	struct outfile *file = NULL;
	int err = fd < 0 ? error_errno() : outfile_on(&file, fd, path);

	err = err ?: outfile_end(file, bundle_html(path, file))
			     ?: serve_page_take(fd, &source->page);
	return err ? error_print(err, NULL, "%s", path) : 0;
}

/* The page of a bundle or of a snapshot. 0, -errno after a message. */
static int page_read(const char *path, bool is_bundle, struct serve_source *source)
{
	*source = (struct serve_source){
		.name = path, .policy = is_bundle ? HTTP_SERVER_POLICY : export_html_policy};
	return (is_bundle ? bundle_read : snapshot_read)(path, source);
}

/* path: of a dump; NULL: of the process. 0, -errno after a message. */
static int heap_take(const char *path, pid_t pid, struct serve_source *source)
{
	const struct heap_choice choice = {.by = BY_TYPE, .retained = 1, .pid = pid};

	*source = (struct serve_source){.name = path ? path : "process", .is_heap = true};
	return heap_graph_open(&choice, path, HEAP_RETAINED | HEAP_PATHS | HEAP_HOLDERS,
			       &source->heap);
}

/*
 * The lines that a file of tracer ctl PID blocks tells are those of the heap that is named before
 * it. 0, -errno after a message.
 */
static int lines_read(struct serve *serve, const char *path)
{
	struct serve_source *source = serve->count ? &serve->sources[serve->count - 1] : NULL;
	struct heap_choice choice = {.trace = path};

	if (!source || !source->is_heap)
		return error_print(error_set(-EINVAL, "no heap is named before it"),
				   "tracer serve heap.dump now.blocks", "%s", path);
	choice.pid = (pid_t)source->heap.capture.image.pid;
	block_lines_free(&source->heap.lines);
	return heap_lines_open(&choice, &source->heap.lines);
}

/* The process, and the lines of its objects if a session traces it. 0, -errno after a message. */
static int process_take(pid_t pid, struct serve_source *source)
{
	struct block_lines lines = {0};
	int unknown = heap_lines_ask(pid, 0, &lines);

	/* Which of several sessions is meant, or growth mode; else there is none. */
	if (unknown == -EEXIST || unknown == -ENOTSUP)
		log_info("serve: the lines of its objects are not known: %s",
			 error_reason(unknown));
	if (unknown)
		block_lines_free(&lines);
	int err = heap_take(NULL, pid, source);
	if (err)
		block_lines_free(&lines);
	else
		source->heap.lines = lines;
	return err;
}

/* A bundle without a copy of the heap has its page alone. */
static bool bundle_has_heap(const char *path)
{
	struct infile file;

	if (archive_infile(&file, path, DUMP_MEMBER))
		return false;
	infile_close(&file);
	return true;
}

/* A recording has its last snapshot's page besides. 0, -errno after a message. */
static int recording_take(const char *path, struct serve_source *source)
{
	int err = serve_recording_read(path, &source->recording);

	return err ? error_print(err, NULL, "%s", path) : 0;
}

/* 0, -errno after a message. */
static int file_read(struct serve *serve, const char *path)
{
	bool is_bundle = bundle_is(path),
	     is_heap = is_bundle ? bundle_has_heap(path) : dump_is(path);
	int err = 0;

	if (block_lines_are(path))
		return lines_read(serve, path);
	if (serve->count + 2 > SERVE_SOURCES)
		return error_print(error_set(-E2BIG, "more than are served at a time"),
				   "a second tracer serve shows others", "%s", path);
	if (is_heap)
		err = heap_take(path, 0, &serve->sources[serve->count++]);
	if (!err && (is_bundle || !is_heap))
		err = page_read(path, is_bundle, &serve->sources[serve->count++])
			      ?: recording_take(path, &serve->sources[serve->count - 1]);
	return err;
}

/* The process is read last: after that, less can be opened. 0, -errno after a message. */
static int sources_read(struct serve *serve)
{
	int err = 0;

	for (size_t i = 0; i < serve->files.count && !err; i++)
		err = file_read(serve, serve->files.items[i]);
	if (!err && serve->targets.pid_count)
		err = process_take(serve->targets.pids[0], &serve->sources[serve->count++]);
	return err;
}

static void sources_free(struct serve *serve)
{
	for (size_t i = 0; i < serve->count; i++) {
		if (serve->sources[i].is_heap)
			heap_graph_close(&serve->sources[i].heap);
		buffer_free(&serve->sources[i].page);
		serve_recording_free(&serve->sources[i].recording);
		snapshot_free(serve->sources[i].snapshot);
	}
	free(serve->sources);
}

/* --- the command ------------------------------------------------------------------------------ */

/* 0, -errno after a message. */
static int serve_run(struct serve *serve)
{
	struct serve_web *web = NULL;
	_cleanup_close_ int opener = -1;
	/* What reads a process opens no socket and starts no program any more. */
	int listener = http_server_listen("127.0.0.1", (uint16_t)serve->port);
	int err = listener < 0 ? listener : serve_web_new(&web, listener);

	if (err)
		return error_print(err, "--port chooses another one", "serve");
	if (serve->opens) {
		opener = serve_open_begin();
		if (opener < 0)
			error_print(opener, "open the link that is printed", "--open");
	}
	suspect_yield_memory();
	err = sources_read(serve);
	if (!err) {
		const struct serve_opts opts = {.sources = serve->sources,
						.count = serve->count,
						.values = serve->values != 0,
						.opener = opener};

		err = serve_web_run(web, &opts);
		if (err)
			error_print(err, NULL, "serve");
	}
	serve_web_free(web);
	return err;
}

int cli_serve(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "FILE...\n[FILE...] -p PID",
		.doc = "Shows heaps and snapshots in a browser of this machine. FILE is a dump of "
		       "a heap (tracer heap -o), a bundle of evidence, a snapshot, a recording or, "
		       "behind a dump, what tracer ctl PID blocks has written then. "
		       "All is read first; then the link is printed, and the server can open no "
		       "file. Ctrl-C ends it.",
	};
	struct serve serve = {0};
	int status = cli_parse(&argp, argc, argv, 0, &serve);

	if (status) {
		status = status < 0 ? EXIT_DONE : status;
	} else if (!serve.files.count && !serve.targets.pid_count) {
		status = usage_error("nothing is named that could be shown");
	} else if (serve.targets.pid_count > 1) {
		status = usage_error("one process is shown at a time");
	} else {
		serve.sources = calloc(SERVE_SOURCES, sizeof(*serve.sources));
		if (!serve.sources)
			error_print(-ENOMEM, NULL, "serve");
		status = serve.sources && !serve_run(&serve) ? EXIT_DONE : EXIT_FAILED;
	}
	sources_free(&serve);
	target_set_free(&serve.targets);
	return status;
}

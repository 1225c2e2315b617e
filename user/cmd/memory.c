/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cli.h"
#include "cmd/options/options.h"
#include "cmd/options/targets.h"
#include "inspect/rss/memory.h"
#include "proc/container/memory_usage.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "report/report.h"
#include "runtime/cpython/version.h"
#include "util/error.h"
#include "util/json.h"
#include "util/one_line.h"
#include "util/size.h"
#include "util/stream.h"
#include "util/terminal.h"
#include "util/text.h"

/* --- memory print ----------------------------------------------------------------------------- */

/* Prints what `tracer memory` has read, on stdout. */

#define DEPTH_MAX 4 /* of the tree; the root is 0 */
/* On a page of a terminal: levels, and children of a node. */
#define DEPTH_BRIEF 2
#define TOP_BRIEF   3u

/* How much of the tree is printed, and as rows of a table. */
struct shape {
	size_t top; /* children of a node; 0: all */
	int depth, tables;
};

static void size_print(int64_t size)
{
	printf("%s%s", size < 0 ? "-" : "", SIZE_TEXT((uint64_t)(size < 0 ? -size : size)));
}

static void node_text(const struct memory_node *node, int64_t whole, int depth,
		      const struct shape *shape);
static void node_row(const struct memory_node *node, int64_t whole, int depth,
		     const struct shape *shape);

static void children_text(const struct memory_node *node, int64_t whole, int depth,
			  const struct shape *shape)
{
	size_t top = shape->top;
	int64_t rest = 0;

	if (depth == shape->depth)
		return;
	for (size_t i = 0; i < node->child_count; i++)
		if (top && i >= top && depth)
			rest += node->children[i].size;
		else if (shape->tables)
			node_row(&node->children[i], whole, depth + 1, shape);
		else
			node_text(&node->children[i], whole, depth + 1, shape);
	if (!top || !depth || node->child_count <= top)
		return;
	if (shape->tables) {
		size_print(rest);
		printf("\t\t\t\t%*s%zu other\n", depth * 2 + 2, "", node->child_count - top);
		return;
	}
	printf("%*s%zu other: ", depth * 2 + 2, "", node->child_count - top);
	size_print(rest);
	putchar('\n');
}

/* A row of a table (util/terminal.h). */
static void node_row(const struct memory_node *node, int64_t whole, int depth,
		     const struct shape *shape)
{
	size_print(node->size);
	if (whole > 0 && depth)
		printf("\t%.1f %%", 100.0 * (double)node->size / (double)whole);
	else
		putchar('\t');
	printf("\t%s", node->count ? COUNT_TEXT(node->count) : "");
	printf("\t%s\t%*s",
	       node->virtual && (int64_t)node->virtual != node->size ? SIZE_TEXT(node->virtual)
								     : "",
	       depth * 2, "");
	text_print(stdout, node->name);
	if (!strcmp(node->name, "malloc") && depth == 1)
		printf(" (a trim returns %s)", SIZE_TEXT(node->trimmable));
	putchar('\n');
	children_text(node, whole, depth, shape);
}

static void node_text(const struct memory_node *node, int64_t whole, int depth,
		      const struct shape *shape)
{
	printf("%*s", depth * 2, "");
	text_print(stdout, node->name);
	fputs(": ", stdout);
	size_print(node->size);
	if (whole > 0 && depth)
		printf(" (%.1f %%)", 100.0 * (double)node->size / (double)whole);
	if (node->count)
		printf(", count=%s", COUNT_TEXT(node->count));
	if (node->virtual && (int64_t)node->virtual != node->size)
		printf(", virtual=%s", SIZE_TEXT(node->virtual));
	if (!strcmp(node->name, "malloc") && depth == 1)
		printf("; malloc_trim(0) would return %s", SIZE_TEXT(node->trimmable));
	putchar('\n');
	children_text(node, whole, depth, shape);
}

static void extra_text(const struct memory_report *report, const struct memory_usage *usage)
{
	const struct smaps_totals *totals = &report->totals;

	printf("Not in RSS:\n  page tables: %s\n", SIZE_TEXT(totals->page_tables));
	printf("  swapped out: %s\n", SIZE_TEXT(totals->swap));
	printf("  huge pages (hugetlbfs): %s\n", SIZE_TEXT(totals->hugetlb));
	if (totals->anonymous_huge)
		printf("Of RSS in transparent huge pages: %s\n", SIZE_TEXT(totals->anonymous_huge));
	if (!usage)
		return;
	printf("Its cgroup, ");
	text_print(stdout, usage->path);
	printf(", all processes together: %s", SIZE_TEXT(usage->used));
	if (usage->limit != UINT64_MAX)
		printf(" of at most %s", SIZE_TEXT(usage->limit));
	printf("\n  anonymous: %s\n", SIZE_TEXT(usage->anonymous));
	printf("  files: %s\n", SIZE_TEXT(usage->file));
	printf("  kernel: %s\n", SIZE_TEXT(usage->kernel));
}

static void arenas_text(const struct memory_report *report, size_t top)
{
	if (report->arena_count < 2)
		return;
	printf("malloc's arenas, resident or not:\n");
	for (size_t i = 0; i < report->arena_count && (!top || i < top); i++) {
		const struct memory_arena *arena = &report->arenas[i];

		printf("  %s: %s, used=%s, tcache and fastbins=%s, bins=%s, top=%s\n",
		       i ? "a thread's" : "main", SIZE_TEXT(arena->system),
		       SIZE_TEXT(arena->bytes[GLIBC_USED]),
		       SIZE_TEXT(arena->bytes[GLIBC_TCACHE] + arena->bytes[GLIBC_FAST]),
		       SIZE_TEXT(arena->bytes[GLIBC_BIN]), SIZE_TEXT(arena->bytes[GLIBC_TOP]));
	}
	if (top && report->arena_count > top)
		printf("  %zu others\n", report->arena_count - top);
}

static void pins_text(const struct memory_report *report, size_t top)
{
	const struct memory_pins *pins = &report->pins;
	const struct heap_types *types = &pins->types;

	if (!pins->arenas)
		return;
	printf("Python's arenas that are at most a quarter full: %" PRIu64 " (%s), kept by "
	       "these objects:\n",
	       pins->arenas, SIZE_TEXT(pins->bytes));
	for (size_t i = 0; i < types->count && (!top || i < top); i++) {
		fputs("  ", stdout);
		text_print(stdout, heap_type_name(&types->types[i]));
		printf(": size=%s, count=%s\n", SIZE_TEXT(types->types[i].sum.bytes),
		       COUNT_TEXT(types->types[i].sum.blocks));
	}
	if (top && types->count > top)
		printf("  %zu other types\n", types->count - top);
	printf("  no object (keys of dicts, items of lists, buffers): size=%s, count=%s\n",
	       SIZE_TEXT(types->others.bytes), COUNT_TEXT(types->others.blocks));
}

static void not_seen_text(const struct memory_report *report)
{
	printf("Not seen:\n  pools of Python that could not be read: %" PRIu64 "\n",
	       report->heap.pools_unreadable);
	printf("  malloc's memory that could not be read: %s\n",
	       SIZE_TEXT(report->chunks.bytes[GLIBC_UNKNOWN]));
	if (report->mmaps.known && (report->mmaps.count != report->mapped_count ||
				    report->mmaps.bytes != report->mapped_bytes))
		printf("  malloc counts %" PRIu64 " mapped blocks of %s, found were %" PRIu64
		       " of %s\n",
		       report->mmaps.count, SIZE_TEXT(report->mmaps.bytes), report->mapped_count,
		       SIZE_TEXT(report->mapped_bytes));
	if (report->chunks.cut)
		printf("  malloc's free lists that could not be read: %" PRIu64 "\n",
		       report->chunks.cut);
	if (report->chunks.swapped)
		printf("  reads left out that would have swapped pages in: %" PRIu64 "\n",
		       report->chunks.swapped);
	if (report->bytes_swapped)
		printf("  Python's heap on swap, which was not read: %s\n",
		       SIZE_TEXT(report->bytes_swapped));
	if (report->totals.pages_unknown)
		printf("  maps that are too large to look at page by page: %s\n",
		       SIZE_TEXT(report->totals.pages_unknown));
	if (report->python_reason[0]) {
		printf("  Python's heap: ");
		text_print(stdout, report->python_reason);
		putchar('\n');
	}
	if (report->malloc_reason[0]) {
		printf("  malloc's heaps: ");
		text_print(stdout, report->malloc_reason);
		putchar('\n');
	}
}

/* Of malloc's blocks, those of Python's objects. */
static int64_t objects_size(const struct memory_node *node, int depth)
{
	int64_t size = 0;

	if (!strcmp(node->name, "large blocks of Python objects"))
		return node->size;
	for (size_t i = 0; i < node->child_count && depth < DEPTH_MAX; i++)
		size += objects_size(&node->children[i], depth + 1);
	return size;
}

/* What the largest part of RSS is asked for with. */
static void next_text(const struct memory_report *report)
{
	const struct memory_node *largest = NULL;

	for (size_t i = 0; i < report->root.child_count; i++)
		if (!largest || report->root.children[i].size > largest->size)
			largest = &report->root.children[i];
	if (largest && !strcmp(largest->name, "malloc") &&
	    objects_size(largest, 1) < largest->size / 2)
		printf("next: tracer --layer native -p %d\n", (int)report->info.pid);
	else if (report->python_version)
		printf("next: tracer heap -p %d\n", (int)report->info.pid);
}

static void foot_brief(const struct memory_report *report, const struct memory_usage *usage,
		       const struct report_opts *opts)
{
	const struct heap_walk *heap = &report->heap;
	struct one_line line = {0};

	if (usage && usage->limit != UINT64_MAX)
		printf("Its cgroup, all processes together: %s of at most %s\n",
		       SIZE_TEXT(usage->used), SIZE_TEXT(usage->limit));
	if (report->python_reason[0])
		one_line_add(&line, "Python's heap not read");
	if (report->malloc_reason[0])
		one_line_add(&line, "malloc's heaps not read");
	if (heap->pools_unreadable)
		one_line_add(&line, "%" PRIu64 " pools of Python could not be read",
			     heap->pools_unreadable);
	if (report->chunks.bytes[GLIBC_UNKNOWN])
		one_line_add(&line, "%s of malloc could not be read",
			     SIZE_TEXT(report->chunks.bytes[GLIBC_UNKNOWN]));
	if (report->bytes_swapped)
		one_line_add(&line, "%s on swap not read", SIZE_TEXT(report->bytes_swapped));
	if (!line.count)
		one_line_add(&line, "complete: the parts add up to RSS");
	if (report->totals.swap)
		one_line_add(&line, "%s swapped out beside it", SIZE_TEXT(report->totals.swap));
	one_line_print(stdout, "Figures", &line, opts->brief, opts->color);
	next_text(report);
}

/* usage: of its cgroup; NULL: none is visible. opts: top (children of a node), tables, brief. */
static void memory_print_text(const struct memory_report *report, const struct memory_usage *usage,
			      const struct report_opts *opts)
{
	size_t top = opts->top;
	struct shape shape = {top, DEPTH_MAX, opts->tables};
	char version[VERSION_TEXT];
	struct terminal terminal;

	if (opts->brief && !opts->top_asked)
		shape = (struct shape){TOP_BRIEF, DEPTH_BRIEF, 1};
	terminal_begin(&terminal, &stdout);
	fputs("tracer: ", stdout);
	text_print(stdout, report->info.name);
	printf(" (PID %d)", (int)report->info.pid);
	if (report->python_version)
		printf(", CPython %s", version_text(version, report->python_version));
	if (report->glibc_minor)
		printf(", glibc 2.%u", report->glibc_minor);
	printf(", read in %.1f ms", (double)report->elapsed_ns / 1e6);
	if (report->frozen_ns)
		printf(", stopped for %.1f ms", (double)report->frozen_ns / 1e6);
	putchar('\n');
	if (opts->tables)
		puts("SIZE\tSHARE\t?COUNT\t?VIRTUAL\tPART");
	(opts->tables ? node_row : node_text)(&report->root, report->root.size, 0, &shape);
	if (opts->brief) {
		foot_brief(report, usage, opts);
		terminal_end(&terminal);
		return;
	}
	pins_text(report, top);
	arenas_text(report, top);
	extra_text(report, usage);
	not_seen_text(report);
	terminal_end(&terminal);
}

static void node_json(struct json *json, const struct memory_node *node, int depth)
{
	json_text(json, "name", node->name);
	json_signed(json, "size", node->size);
	if (node->virtual)
		json_unsigned(json, "virtual", node->virtual);
	if (node->count)
		json_unsigned(json, "count", node->count);
	if (!strcmp(node->name, "malloc") && depth == 1)
		json_unsigned(json, "trimmable", node->trimmable);
	json_open(json, "children", '[');
	for (size_t i = 0; i < node->child_count && depth < DEPTH_MAX; i++) {
		json_open(json, NULL, '{');
		node_json(json, &node->children[i], depth + 1);
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void malloc_json(struct json *json, const struct memory_report *report)
{
	char version[16];

	snprintf(version, sizeof(version), "2.%u", report->glibc_minor);
	json_text(json, "glibc", version);
	json_open(json, "arenas", '[');
	for (size_t i = 0; i < report->arena_count; i++) {
		const struct memory_arena *arena = &report->arenas[i];
		const uint64_t *bytes = arena->bytes;

		json_open(json, NULL, '{');
		json_numbers(json, {"address", arena->address}, {"system", arena->system},
			     {"used", bytes[GLIBC_USED]}, {"tcache", bytes[GLIBC_TCACHE]},
			     {"fastbins", bytes[GLIBC_FAST]}, {"bins", bytes[GLIBC_BIN]},
			     {"top", bytes[GLIBC_TOP]}, {"unread", bytes[GLIBC_UNKNOWN]});
		json_close(json, '}');
	}
	json_close(json, ']');
	json_numbers(json, {"mapped_blocks", report->mapped_count},
		     {"mapped_bytes", report->mapped_bytes});
	if (report->mmaps.known)
		json_numbers(json, {"mapped_blocks_counted", report->mmaps.count},
			     {"mapped_bytes_counted", report->mmaps.bytes});
	json_numbers(json, {"lists_cut", report->chunks.cut},
		     {"reads_swapped", report->chunks.swapped},
		     {"bytes_swapped", report->bytes_swapped});
}

static void pins_json(struct json *json, const struct memory_pins *pins)
{
	const struct heap_types *types = &pins->types;

	json_open(json, "sparse", '{');
	json_numbers(json, {"arenas", pins->arenas}, {"size", pins->bytes});
	json_open(json, "no_object", '{');
	json_numbers(json, {"size", types->others.bytes}, {"count", types->others.blocks});
	json_close(json, '}');
	json_open(json, "types", '[');
	for (size_t i = 0; i < types->count; i++) {
		json_open(json, NULL, '{');
		json_text(json, "type", types->types[i].name);
		json_text(json, "type_name", heap_type_name(&types->types[i]));
		json_numbers(json, {"size", types->types[i].sum.bytes},
			     {"count", types->types[i].sum.blocks});
		json_close(json, '}');
	}
	json_close(json, ']');
	json_close(json, '}');
}

static void usage_json(struct json *json, const struct memory_usage *usage)
{
	json_open(json, "cgroup", '{');
	json_text(json, "path", usage->path);
	json_unsigned(json, "used", usage->used);
	if (usage->limit != UINT64_MAX)
		json_unsigned(json, "limit", usage->limit);
	json_numbers(json, {"anonymous", usage->anonymous}, {"file", usage->file},
		     {"kernel", usage->kernel});
	json_close(json, '}');
}

static void python_json(struct json *json, const struct memory_report *report)
{
	char version[VERSION_TEXT];

	json_text(json, "python_version", version_text(version, report->python_version));
	json_unsigned(json, "large_blocks", report->large_blocks);
	if (report->heap.is_mimalloc)
		json_none(json, "raw_blocks");
	else
		json_unsigned(json, "raw_blocks", report->heap.raw_blocks);
	json_unsigned(json, "pools_unreadable", report->heap.pools_unreadable);
}

/* One object on one line: the root of the tree, with further members. */
static void memory_print_json(const struct memory_report *report, const struct memory_usage *usage)
{
	const struct smaps_totals *totals = &report->totals;
	struct json json = {.out = stdout};

	json_open(&json, NULL, '{');
	node_json(&json, &report->root, 0);
	json_signed(&json, "pid", report->info.pid);
	json_text(&json, "process", report->info.name);
	json_numbers(&json, {"page_tables", totals->page_tables}, {"swap", totals->swap},
		     {"hugetlb", totals->hugetlb}, {"anonymous_huge", totals->anonymous_huge},
		     {"pages_unknown", totals->pages_unknown});
	if (report->python_version)
		python_json(&json, report);
	if (report->pins.arenas)
		pins_json(&json, &report->pins);
	if (report->glibc_minor)
		malloc_json(&json, report);
	if (report->python_reason[0])
		json_text(&json, "python_refused", report->python_reason);
	if (report->malloc_reason[0])
		json_text(&json, "malloc_refused", report->malloc_reason);
	if (usage)
		usage_json(&json, usage);
	json_numbers(&json, {"frozen_ns", report->frozen_ns}, {"elapsed_ns", report->elapsed_ns});
	json_end(&json);
}

/* By RFC 4180: quoted, quotes doubled. */
static void path_csv(const struct memory_node *const path[], int depth)
{
	putchar('"');
	for (int i = 0; i <= depth; i++) {
		fputs(i ? " / " : "", stdout);
		for (const char *at = path[i]->name; *at; at++) {
			if (*at == '"')
				putchar('"');
			putchar(*at);
		}
	}
	putchar('"');
}

static void node_csv(const struct memory_node *path[DEPTH_MAX + 1], int depth)
{
	const struct memory_node *node = path[depth];

	path_csv(path, depth);
	printf(",%" PRId64 ",%" PRIu64 ",%" PRIu64 "\n", node->size, node->virtual, node->count);
	for (size_t i = 0; i < node->child_count && depth < DEPTH_MAX; i++) {
		path[depth + 1] = &node->children[i];
		node_csv(path, depth + 1);
	}
}

/* A line per node: its path, with the names joined by " / ", and its figures. */
static void memory_print_csv(const struct memory_report *report)
{
	const struct memory_node *path[DEPTH_MAX + 1] = {&report->root};

	puts("path,size,virtual,count");
	node_csv(path, 0);
}

/* --- memory ----------------------------------------------------------------------------------- */

struct memory_choice {
	struct report_choice output;
	pid_t *pids;
	size_t pid_count;
	int freeze, swap_in;
	struct cli_arguments rest;
};

enum { KEY_FREEZE = 0x300, KEY_SWAP_IN, KEY_NO_SWAP_IN };

static const struct argp_option options[] = {
	{"pid", 'p', "PID", 0, "the process", 1},
	{"freeze", KEY_FREEZE, NULL, 0, "stop the process while its memory is read", 2},
	{"swap-in", KEY_SWAP_IN, NULL, 0,
	 "also read memory that is swapped out, which brings it back", 2},
	{"no-swap-in", KEY_NO_SWAP_IN, NULL, OPTION_HIDDEN, NULL, 2}, /* as it is without */
	CLI_OPTION_VERBOSE(10),
	{0},
};

static const struct argp_child children[] = {{&cli_output_argp, 0, NULL, 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct memory_choice *choice = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &choice->output;
		return 0;
	case 'p':
		if (!cli_parse_pids(arg, &choice->pids, &choice->pid_count))
			return 0;
		error_print(-EINVAL, "tracer list shows what can be read", "--pid");
		return CLI_REPORTED;
	case 'v':
		report_choice_verbose(&choice->output);
		return 0;
	case KEY_FREEZE:
		choice->freeze = 1;
		return 0;
	case KEY_SWAP_IN:
	case KEY_NO_SWAP_IN:
		choice->swap_in = key == KEY_SWAP_IN;
		return 0;
	}
	return cli_parse_arguments(key, state, &choice->rest);
}

static int report_print(const struct memory_report *report, const struct memory_choice *choice)
{
	struct memory_usage found;
	const struct memory_usage *usage =
		memory_usage_read(report->info.pid, &found) ? NULL : &found;

	if (choice->output.format == FORMAT_JSON)
		memory_print_json(report, usage);
	else if (choice->output.format == FORMAT_CSV)
		memory_print_csv(report);
	else
		memory_print_text(report, usage, &choice->output.opts);
	return stream_flush(stdout);
}

static int memory_print(pid_t pid, const struct memory_choice *choice)
{
	struct memory_reading *reading;
	struct memory_report report;
	int err = memory_open(&reading, pid, choice->swap_in);

	if (err)
		return err;
	/* The files are open; reading them and the heaps needs fewer rights. */
	err = privileges_drop(0, 0) ?: calls_limit(choice->freeze ? CALLS_FREEZE : 0);
	err = err ?: memory_read_report(reading, choice->freeze, &report);
	if (!err) {
		err = report_print(&report, choice);
		memory_report_free(&report);
	}
	memory_close(reading);
	return err;
}

int cli_memory(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "Prints what the resident memory (RSS) of a process consists of, as a tree "
		       "that adds up: Python's heap, malloc's, stacks, files. It is read from "
		       "outside: no probe is placed.",
		.children = children,
	};
	struct memory_choice choice = {0};
	int err;

	report_choice_default(&choice.output);
	int status = cli_parse(&argp, argc, argv, 0, &choice);
	if (status) {
		status = status < 0 ? EXIT_DONE : status;
	} else if (choice.pid_count != 1 || choice.rest.count) {
		error_print(error_set(-EINVAL, "it reads one process, which -p names"),
			    "tracer memory -p PID", "memory");
		status = EXIT_USAGE;
	} else {
		targets_workers_print(choice.pids, 1, NULL, "part of this", 0);
		err = memory_print(choice.pids[0], &choice);
		if (err)
			pid_error_print(choice.pids[0], err);
		status = err ? EXIT_FAILED : EXIT_DONE;
	}
	free(choice.pids);
	return status;
}

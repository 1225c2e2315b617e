/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cli.h"
#include "cmd/evidence/bundle.h"
#include "cmd/memory.h"
#include "cmd/options/options.h"
#include "cmd/options/targets.h"
#include "inspect/rss/memory.h"
#include "proc/container/memory_usage.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "report/report.h"
#include "report/report_parts.h"
#include "runtime/cpython/version.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/json.h"
#include "util/one_line.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/stream.h"
#include "util/terminal.h"
#include "util/text.h"

/* --- memory print ----------------------------------------------------------------------------- */

/* Prints what `tracer memory` has read, on stdout. */

#define DEPTH_MAX 4 /* of the tree; the root is 0 */
/* On a page of a terminal: levels, and children of a node. */
#define DEPTH_BRIEF 2
#define TOP_BRIEF   3u
#define SAVED_TOP   5u /* of memory_save() */

/* How much of the tree is printed, and as rows of a table. */
struct shape {
	size_t top; /* children of a node; 0: all */
	int depth, tables;
	bool shares; /* more than files: a table has a column for what is private */
};

static void size_print(int64_t size)
{
	printf("%s%s", size < 0 ? "-" : "", SIZE_TEXT((uint64_t)(size < 0 ? -size : size)));
}

/* Does the process share memory that is no file's, as after a fork? */
static bool shares_memory(const struct memory_node *root)
{
	for (size_t i = 0; i < root->child_count; i++) {
		const struct memory_node *node = &root->children[i];

		if ((!strcmp(node->name, "python") || !strcmp(node->name, "malloc")) &&
		    node->own < node->size - node->size / 10)
			return 1;
	}
	return 0;
}

/* Whether it is worth a word: the names of a file's parts tell. */
static bool is_shared(const struct memory_node *node)
{
	return node->own != node->size && (node->own || strncmp(node->name, "shared, ", 8) != 0);
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
		printf("\t\t\t\t\t%*s%zu other\n", depth * 2 + 2, "", node->child_count - top);
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
	putchar('\t');
	if (shape->shares && is_shared(node))
		size_print(node->own);
	printf("\t%s", node->count ? COUNT_TEXT(node->count) : "");
	printf("\t%s\t%*s",
	       node->virtual && (int64_t)node->virtual != node->size ? SIZE_TEXT(node->virtual)
								     : "",
	       depth * 2, "");
	text_print(stdout, node->name);
	if (node->purge)
		printf(" (a %s returns %s)", strcmp(node->name, "malloc") ? "purge" : "trim",
		       SIZE_TEXT(node->trimmable));
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
	if (is_shared(node)) {
		fputs(", private=", stdout);
		size_print(node->own);
	}
	if (node->count)
		printf(", count=%s", COUNT_TEXT(node->count));
	if (node->virtual && (int64_t)node->virtual != node->size)
		printf(", virtual=%s", SIZE_TEXT(node->virtual));
	if (node->purge)
		printf("; %s would return %s", node->purge, SIZE_TEXT(node->trimmable));
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

/* Bytes of the size class that no block has, though its pages are kept. */
static uint64_t class_free(const struct allocator_class *class)
{
	return (class->free + class->cached) * class->block_bytes;
}

static int class_compare(const void *a, const void *b)
{
	const struct allocator_class *x = a, *y = b;

	return CMP(class_free(y), class_free(x)) ?: CMP(x->block_bytes, y->block_bytes);
}

/* What keeps pages that are partly free: the sizes of the blocks in them. */
static void allocator_text(const struct memory_allocator *allocator, size_t top)
{
	const struct allocator_totals *totals = &allocator->totals;
	struct allocator_class classes[ALLOCATOR_CLASSES];
	size_t count = totals->class_count;

	printf("%s %s, resident or not: in use=%s, in caches=%s, free in pages in use=%s, "
	       "free pages=%s, returned=%s, its structures=%s\n",
	       allocator->type->name, allocator->version, SIZE_TEXT(totals->bytes[ALLOCATOR_USED]),
	       SIZE_TEXT(totals->bytes[ALLOCATOR_CACHED]), SIZE_TEXT(totals->bytes[ALLOCATOR_FREE]),
	       SIZE_TEXT(totals->bytes[ALLOCATOR_DIRTY] + totals->bytes[ALLOCATOR_MUZZY]),
	       SIZE_TEXT(totals->bytes[ALLOCATOR_RETAINED]),
	       SIZE_TEXT(totals->bytes[ALLOCATOR_METADATA] - totals->unused));
	memcpy(classes, totals->classes, count * sizeof(*classes));
	qsort(classes, count, sizeof(*classes), class_compare);
	for (size_t i = 0; i < count && (!top || i < top) && class_free(&classes[i]); i++)
		printf("  blocks of %s: %s in use keep %s, of which %s is free\n",
		       SIZE_TEXT(classes[i].block_bytes), COUNT_TEXT(classes[i].used),
		       SIZE_TEXT(classes[i].slab_bytes), SIZE_TEXT(class_free(&classes[i])));
	if (totals->cut)
		printf("  lists that could not be read: %" PRIu64 "\n", totals->cut);
	if (totals->swapped)
		printf("  reads left out that would have swapped pages in: %" PRIu64 "\n",
		       totals->swapped);
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
	if (report->allocators_reason[0]) {
		printf("  ");
		text_print(stdout, report->allocators_reason);
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
	if (report->allocators_reason[0])
		one_line_add(&line, "%s", report->allocators_reason);
	for (size_t i = 0; i < report->allocator_count; i++)
		if (report->allocators[i].totals.bytes[ALLOCATOR_UNKNOWN])
			one_line_add(
				&line, "%s of %s could not be read",
				SIZE_TEXT(report->allocators[i].totals.bytes[ALLOCATOR_UNKNOWN]),
				report->allocators[i].type->name);
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
	struct shape shape = {top, DEPTH_MAX, opts->tables, shares_memory(&report->root)};
	char version[VERSION_TEXT];
	struct terminal terminal;

	if (opts->brief && !opts->top_asked)
		shape = (struct shape){TOP_BRIEF, DEPTH_BRIEF, 1, shape.shares};
	terminal_begin(&terminal, &stdout);
	fputs("tracer: ", stdout);
	text_print(stdout, report->info.name);
	printf(" (PID %d)", (int)report->info.pid);
	if (report->python_version)
		printf(", CPython %s", version_text(version, report->python_version));
	if (report->glibc_minor)
		printf(", glibc 2.%u", report->glibc_minor);
	for (size_t i = 0; i < report->allocator_count; i++)
		printf(", %s %s", report->allocators[i].type->name, report->allocators[i].version);
	printf(", read in %.1f ms", (double)report->elapsed_ns / 1e6);
	if (report->frozen_ns)
		printf(", stopped for %.1f ms", (double)report->frozen_ns / 1e6);
	putchar('\n');
	if (opts->tables)
		puts("SIZE\tSHARE\t?PRIVATE\t?COUNT\t?VIRTUAL\tPART");
	(opts->tables ? node_row : node_text)(&report->root, report->root.size, 0, &shape);
	if (opts->brief) {
		foot_brief(report, usage, opts);
		terminal_end(&terminal);
		return;
	}
	pins_text(report, top);
	arenas_text(report, top);
	for (size_t i = 0; i < report->allocator_count; i++)
		allocator_text(&report->allocators[i], top);
	extra_text(report, usage);
	not_seen_text(report);
	terminal_end(&terminal);
}

static void node_json(struct json *json, const struct memory_node *node, int depth)
{
	json_text(json, "name", node->name);
	json_signed(json, "size", node->size);
	json_signed(json, "private", node->own);
	if (node->virtual)
		json_unsigned(json, "virtual", node->virtual);
	if (node->count)
		json_unsigned(json, "count", node->count);
	if (node->purge)
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

static void allocator_json(struct json *json, const struct memory_allocator *allocator)
{
	const struct allocator_totals *totals = &allocator->totals;
	const uint64_t *bytes = totals->bytes;

	json_open(json, NULL, '{');
	json_text(json, "name", allocator->type->name);
	json_text(json, "version", allocator->version);
	json_numbers(json, {"used", bytes[ALLOCATOR_USED]},
		     {"used_count", totals->counts[ALLOCATOR_USED]},
		     {"cached", bytes[ALLOCATOR_CACHED]}, {"free", bytes[ALLOCATOR_FREE]},
		     {"dirty", bytes[ALLOCATOR_DIRTY]}, {"muzzy", bytes[ALLOCATOR_MUZZY]},
		     {"retained", bytes[ALLOCATOR_RETAINED]},
		     {"metadata", bytes[ALLOCATOR_METADATA]}, {"metadata_unused", totals->unused},
		     {"unread", bytes[ALLOCATOR_UNKNOWN]}, {"caches", totals->caches},
		     {"lists_cut", totals->cut}, {"reads_swapped", totals->swapped});
	json_open(json, "sizes", '[');
	for (size_t i = 0; i < totals->class_count; i++) {
		const struct allocator_class *class = &totals->classes[i];

		json_open(json, NULL, '{');
		json_numbers(json, {"size", class->block_bytes}, {"used", class->used},
			     {"cached", class->cached}, {"free", class->free},
			     {"slabs", class->slabs}, {"slab_bytes", class->slab_bytes});
		json_close(json, '}');
	}
	json_close(json, ']');
	json_close(json, '}');
}

static void allocators_json(struct json *json, const struct memory_report *report)
{
	if (report->allocator_count) {
		json_open(json, "allocators", '[');
		for (size_t i = 0; i < report->allocator_count; i++)
			allocator_json(json, &report->allocators[i]);
		json_close(json, ']');
	}
	if (report->allocators_reason[0])
		json_text(json, "allocators_refused", report->allocators_reason);
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
	json_numbers(&json, {"pss", totals->pss}, {"page_tables", totals->page_tables},
		     {"swap", totals->swap}, {"hugetlb", totals->hugetlb},
		     {"anonymous_huge", totals->anonymous_huge},
		     {"pages_unknown", totals->pages_unknown});
	if (report->python_version)
		python_json(&json, report);
	if (report->pins.arenas)
		pins_json(&json, &report->pins);
	if (report->glibc_minor)
		malloc_json(&json, report);
	allocators_json(&json, report);
	if (report->python_reason[0])
		json_text(&json, "python_refused", report->python_reason);
	if (report->malloc_reason[0])
		json_text(&json, "malloc_refused", report->malloc_reason);
	if (usage)
		usage_json(&json, usage);
	json_numbers(&json, {"frozen_ns", report->frozen_ns}, {"elapsed_ns", report->elapsed_ns});
	json_end(&json);
}

static int path_csv(const struct memory_node *const path[], int depth)
{
	_cleanup_free_ char *text = NULL;
	size_t bytes;
	FILE *joined = open_memstream(&text, &bytes);

	if (!joined)
		return -ENOMEM;
	for (int i = 0; i <= depth; i++)
		fprintf(joined, "%s%s", i ? " / " : "", path[i]->name);
	if (fclose(joined))
		return -ENOMEM;
	report_csv_quoted(stdout, text);
	return 0;
}

static int node_csv(const struct memory_node *path[DEPTH_MAX + 1], int depth)
{
	const struct memory_node *node = path[depth];
	int err = path_csv(path, depth);

	if (err)
		return err;
	printf(",%" PRId64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64 "\n", node->size, node->virtual,
	       node->count, node->own);
	for (size_t i = 0; i < node->child_count && depth < DEPTH_MAX && !err; i++) {
		path[depth + 1] = &node->children[i];
		err = node_csv(path, depth + 1);
	}
	return err;
}

/* A line per node: its path, with the names joined by " / ", and its figures. 0, -ENOMEM. */
static int memory_print_csv(const struct memory_report *report)
{
	const struct memory_node *path[DEPTH_MAX + 1] = {&report->root};

	puts("path,size,virtual,count,private");
	return node_csv(path, 0);
}

/* --- memory ----------------------------------------------------------------------------------- */

struct memory_choice {
	struct report_choice output;
	struct target_set targets;
	int freeze, swap_in, unshared;
	struct cli_arguments rest;
};

enum { KEY_FREEZE = 0x300, KEY_SWAP_IN, KEY_NO_SWAP_IN, KEY_COMM, KEY_CGROUP, KEY_UNSHARED };

static const struct argp_option options[] = {
	{"pid", 'p', "PID[,PID...]", 0,
	 "the process; with -c, by its id in the container; of several, what each has, and all "
	 "together",
	 1},
	{"container", 'c', "CONTAINER", 0,
	 "the processes of a container, by its name or ID (repeatable)", 1},
	{"cgroup", KEY_CGROUP, "PATH", 0,
	 "the processes of a cgroup and its descendants (repeatable)", 1},
	{"comm", KEY_COMM, "NAME", 0,
	 "the processes with this name; it may contain *, ? and [...] (repeatable; narrows -c and "
	 "--cgroup)",
	 1},
	{"unshared", KEY_UNSHARED, NULL, 0,
	 "of a worker: why it has pages of its own that it shared when it was forked", 2},
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
		if (!cli_parse_pids(arg, &choice->targets.pids, &choice->targets.pid_count))
			return 0;
		error_print(-EINVAL, "tracer list shows what can be read", "--pid");
		return CLI_REPORTED;
	case 'c':
		return -target_set_container(&choice->targets, arg);
	case KEY_CGROUP:
		return -target_set_cgroup(&choice->targets, arg);
	case KEY_COMM:
		return -target_set_name(&choice->targets, arg);
	case 'v':
		report_choice_verbose(&choice->output);
		return 0;
	case KEY_UNSHARED:
		choice->unshared = 1;
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
	int err = 0;

	if (choice->output.format == FORMAT_JSON)
		memory_print_json(report, usage);
	else if (choice->output.format == FORMAT_CSV)
		err = memory_print_csv(report);
	else
		memory_print_text(report, usage, &choice->output.opts);
	return err ?: stream_flush(stdout);
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

/* Prints into a file instead of stdout. */
static int report_save(const struct memory_report *report, const struct memory_choice *choice,
		       int fd)
{
	int err = stream_flush(stdout);

	if (dup2(fd, STDOUT_FILENO) < 0)
		return error_errno();
	return err ?: report_print(report, choice);
}

int memory_save(struct memory_reading *reading, int text, int json)
{
	struct memory_choice choice = {0};
	struct memory_report report;
	int err = memory_read_report(reading, 0, &report);

	if (err)
		return err;
	report_choice_default(&choice.output);
	/* Files are no page for a terminal, which standard output may be now. */
	choice.output.opts.top = SAVED_TOP;
	choice.output.opts.tables = choice.output.opts.color = 0;
	choice.output.opts.brief = 0;
	err = report_save(&report, &choice, text);
	choice.output.format = FORMAT_JSON;
	err = err ?: report_save(&report, &choice, json);
	memory_report_free(&report);
	return err;
}

/* A process's tree, or the table of several. The exit status. */
static int processes_print(struct memory_choice *choice)
{
	pid_t *pids = NULL;
	size_t count = 0;
	int err =
		targets_list(&choice->targets, "tracer list shows what can be read", &pids, &count);

	if (err)
		return EXIT_FAILED;
	if (!count)
		err = targets_none_print(&choice->targets, 0);
	else if (count > 1 && (choice->freeze || choice->swap_in || choice->unshared))
		err = error_print(error_set(-EINVAL, "--freeze, --swap-in and --unshared are of "
						     "one process"),
				  "tracer memory -p PID", "memory");
	else if (count > 1)
		err = memory_service_print(pids, count, target_set_is_pids(&choice->targets),
					   &choice->output);
	else if (choice->unshared) {
		err = memory_unshared_print(pids[0], &choice->output);
		if (err)
			pid_error_print(pids[0], err);
	} else {
		targets_workers_print(pids, 1, NULL, "part of this", 1);
		err = memory_print(pids[0], choice);
		if (err)
			pid_error_print(pids[0], err);
	}
	free(pids);
	return err ? EXIT_FAILED : EXIT_DONE;
}

int cli_memory(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "-p PID[,PID...]\n-c CONTAINER\n--comm NAME\n--cgroup PATH\nBUNDLE",
		.doc = "Prints what the resident memory (RSS) of a process consists of, as a tree "
		       "that adds up: Python's heap, malloc's, stacks, files. It is read from "
		       "outside: no probe is placed. Of several processes, what each has alone and "
		       "in common with others, and all of them together. Of a bundle of evidence "
		       "(--on-oom), what it was then.",
		.children = children,
	};
	struct memory_choice choice = {0};
	int err;

	report_choice_default(&choice.output);
	int status = cli_parse(&argp, argc, argv, 0, &choice);
	if (status) {
		status = status < 0 ? EXIT_DONE : status;
	} else if (target_set_is_empty(&choice.targets) && choice.rest.count == 1) {
		const char *file = choice.rest.items[0];

		bool is_json = choice.output.format == FORMAT_JSON;

		if (!is_json)
			bundle_memory_time_print(file, stdout);
		err = bundle_print(file, is_json ? "memory.json" : "memory.txt", 0, stdout);
		if (err)
			error_print(err, "name a bundle of --on-oom, or -p PID", "%s", file);
		status = err ? EXIT_FAILED : EXIT_DONE;
	} else if (target_set_is_empty(&choice.targets) || choice.rest.count) {
		error_print(error_set(-EINVAL, "it reads processes, or a bundle"),
			    "tracer memory -p PID", "memory");
		status = EXIT_USAGE;
	} else {
		status = processes_print(&choice);
	}
	target_set_free(&choice.targets);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* tracer memory --unshared: why a worker has pages of its own that it shared when it was forked. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/heap/heap_choice.h"
#include "cmd/memory.h"
#include "inspect/rss/unshared.h"
#include "proc/pagemap.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "runtime/cpython/version.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/json.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/stream.h"
#include "util/terminal.h"
#include "util/text.h"

/* Objects of one line. */
struct unshared_line {
	uint64_t bytes, objects;
	uint32_t line; /* number of the line in block_lines */
};

/*
 * The lines that allocated the objects of unshared.types, of a session that traces the worker or
 * its parent: addresses are the same in both.
 */
struct unshared_lines {
	struct block_lines known;     /* empty: they are not known, */
	int err;                      /* since asking failed with that, */
	char why[128];                /* and its reason */
	struct unshared_line *lines;  /* known.name_count of them; then the most bytes first */
	struct unshared_line unknown; /* objects in no block that the session has seen */
	size_t count;                 /* that have something */
};

struct unshared_answer {
	const struct process_info *info;
	const struct graph *graph;
	struct unshared unshared;
	struct unshared_lines lines;
	uint64_t elapsed_ns;
};

static const struct {
	const char *key, *text;
} classes[UNSHARED_CLASSES] = {
	[UNSHARED_SAME] = {"same", "nothing: written, and as before (counts, collections)"},
	[UNSHARED_HEADS] = {"heads", "the collector's heads of objects"},
	[UNSHARED_COUNTS] = {"counts", "reference counts"},
	[UNSHARED_FREED] = {"freed", "free blocks: objects came and went"},
	[UNSHARED_CONTENT] = {"content", "contents of objects, and other memory"},
	[UNSHARED_ANEW] = {"anew", "most of it: filled anew, or never shared"},
};

static uint64_t bytes_of(uint64_t pages)
{
	return pages * PAGEMAP_PAGE;
}

static uint64_t pages_of(const struct unshared *unshared)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < UNSHARED_CLASSES; i++)
		sum += unshared->pages[i];
	return sum;
}

static void classes_text(const struct unshared *unshared, int tables)
{
	uint64_t all = pages_of(unshared);

	if (tables)
		puts("SIZE\tSHARE\tWHAT DIFFERS");
	for (size_t i = 0; i < UNSHARED_CLASSES; i++) {
		double share = all ? 100.0 * (double)unshared->pages[i] / (double)all : 0;
		const char *size = SIZE_TEXT(bytes_of(unshared->pages[i]));

		if (!unshared->pages[i])
			continue;
		if (tables)
			printf("%s\t%.1f %%\t%s\n", size, share, classes[i].text);
		else
			printf("  %s: %s (%.1f %%)\n", classes[i].text, size, share);
	}
}

static void types_text(const struct unshared_answer *answer, const struct report_opts *opts)
{
	const struct unshared *unshared = &answer->unshared;
	size_t shown = report_rows(opts, unshared->type_count);

	if (!unshared->type_count)
		return;
	puts("Objects in pages that were written without a change of contents, by type:");
	for (size_t i = 0; i < shown; i++) {
		const struct unshared_type *type = &unshared->types[i];
		char name[TYPES_FULL_NAME];

		types_full_name(&answer->graph->types, &answer->graph->types.entries[type->type],
				name);
		fputs("  ", stdout);
		text_print(stdout, name);
		printf(": own size=%s, count=%s\n", SIZE_TEXT(type->bytes),
		       COUNT_TEXT(type->objects));
	}
	if (shown < unshared->type_count)
		printf("  %zu other types\n", unshared->type_count - shown);
}

static int object_visit(void *context, uint32_t object, uint64_t bytes)
{
	struct unshared_answer *answer = context;
	struct unshared_lines *lines = &answer->lines;
	uint32_t line = block_lines_find(&lines->known, answer->graph->addresses[object]);
	struct unshared_line *of = line == BLOCK_LINES_NONE ? &lines->unknown : &lines->lines[line];

	of->bytes += bytes;
	of->objects++;
	return 0;
}

static int line_compare(const void *a, const void *b)
{
	const struct unshared_line *x = a, *y = b;

	return CMP(y->bytes, x->bytes) ?: CMP(x->line, y->line);
}

/* Keeps the lines that have something. */
static void lines_sort(struct unshared_lines *lines)
{
	for (size_t i = 0; i < lines->known.name_count; i++) {
		lines->lines[i].line = (uint32_t)i;
		if (lines->lines[i].objects)
			lines->lines[lines->count++] = lines->lines[i];
	}
	if (lines->count)
		qsort(lines->lines, lines->count, sizeof(*lines->lines), line_compare);
}

/* What a session knows of the worker, or else of its parent; that there is none is no error. */
static int lines_open(struct unshared_lines *out, const struct process_info *info)
{
	int err = heap_lines_ask(info->pid, 0, &out->known);

	if (err == -ESRCH)
		err = heap_lines_ask(info->ppid, 0, &out->known);
	out->err = err;
	snprintf(out->why, sizeof(out->why), "%s", err ? error_reason(err) : "");
	error_clear();
	out->lines = calloc(out->known.name_count + 1, sizeof(*out->lines));
	return out->lines ? 0 : -ENOMEM;
}

static void lines_close(struct unshared_lines *lines)
{
	block_lines_free(&lines->known);
	free(lines->lines);
}

static void lines_text(const struct unshared_answer *answer, const struct report_opts *opts)
{
	const struct unshared_lines *lines = &answer->lines;
	size_t shown = report_rows(opts, lines->count);

	if (!answer->unshared.type_count)
		return;
	if (lines->err == -ESRCH) {
		printf("The lines that allocated them are not known, as no session traces it: "
		       "tracer -p %d tells those of what comes after that\n",
		       (int)answer->info->ppid);
		return;
	}
	if (lines->err) {
		fputs("The lines that allocated them are not known: ", stdout);
		text_print(stdout, lines->why);
		putchar('\n');
		return;
	}
	printf("The lines that allocated them, as the session that traces PID %u knows them:\n",
	       lines->known.pid);
	for (size_t i = 0; i < shown; i++) {
		fputs("  ", stdout);
		text_print(stdout, lines->known.names[lines->lines[i].line]);
		printf(": own size=%s, count=%s\n", SIZE_TEXT(lines->lines[i].bytes),
		       COUNT_TEXT(lines->lines[i].objects));
	}
	if (shown < lines->count)
		printf("  %zu other lines\n", lines->count - shown);
	printf("  not known, %s: own size=%s, count=%s\n",
	       lines->known.whole ? "from before the trace"
				  : "from before the trace or not among the blocks that it shows",
	       SIZE_TEXT(lines->unknown.bytes), COUNT_TEXT(lines->unknown.objects));
}

static void lines_json(struct json *json, const struct unshared_lines *lines)
{
	if (lines->err) {
		json_none(json, "lines");
		return;
	}
	json_open(json, "lines", '[');
	for (size_t i = 0; i < lines->count; i++) {
		json_open(json, NULL, '{');
		json_text(json, "line", lines->known.names[lines->lines[i].line]);
		json_numbers(json, {"size", lines->lines[i].bytes},
			     {"count", lines->lines[i].objects});
		json_close(json, '}');
	}
	json_close(json, ']');
	json_open(json, "lines_unknown", '{');
	json_numbers(json, {"size", lines->unknown.bytes}, {"count", lines->unknown.objects});
	json_close(json, '}');
	json_unsigned(json, "lines_of", lines->known.pid);
	json_bool(json, "lines_whole", lines->known.whole);
}

static void answer_text(const struct unshared_answer *answer, const struct report_opts *opts)
{
	const struct unshared *unshared = &answer->unshared;
	char version[VERSION_TEXT];
	struct terminal terminal;

	terminal_begin(&terminal, &stdout);
	fputs("tracer: ", stdout);
	text_print(stdout, answer->info->name);
	printf(" (PID %d), CPython %s, forked by PID %d, compared in %.1f ms\n",
	       (int)answer->info->pid, version_text(version, answer->graph->image->version_hex),
	       (int)answer->info->ppid, (double)answer->elapsed_ns / 1e6);
	printf("Unshared since the fork: %s\n", SIZE_TEXT(bytes_of(pages_of(unshared))));
	classes_text(unshared, opts->tables);
	types_text(answer, opts);
	lines_text(answer, opts);
	if (unshared->collected)
		printf("gc.freeze() before the fork would have kept up to %s of it shared: a "
		       "collection has come since\n",
		       SIZE_TEXT(bytes_of(unshared->tracked)));
	else
		puts("gc.freeze() before the fork would have kept nothing: no collection has come "
		     "since");
	if (unshared->unread)
		printf("Not seen: %s in pages that could not be read in both\n",
		       SIZE_TEXT(bytes_of(unshared->unread)));
	terminal_end(&terminal);
}

static void answer_json(const struct unshared_answer *answer)
{
	const struct unshared *unshared = &answer->unshared;
	struct json json = {.out = stdout};
	char version[VERSION_TEXT], name[TYPES_FULL_NAME];

	json_open(&json, NULL, '{');
	json_signed(&json, "pid", answer->info->pid);
	json_text(&json, "process", answer->info->name);
	json_signed(&json, "parent", answer->info->ppid);
	json_text(&json, "python_version",
		  version_text(version, answer->graph->image->version_hex));
	json_unsigned(&json, "unshared", bytes_of(pages_of(unshared)));
	json_open(&json, "differs", '{');
	for (size_t i = 0; i < UNSHARED_CLASSES; i++)
		json_unsigned(&json, classes[i].key, bytes_of(unshared->pages[i]));
	json_close(&json, '}');
	json_bool(&json, "collected", unshared->collected);
	json_numbers(&json, {"freeze_keeps", unshared->collected ? bytes_of(unshared->tracked) : 0},
		     {"unread", bytes_of(unshared->unread)});
	json_open(&json, "types", '[');
	for (size_t i = 0; i < unshared->type_count; i++) {
		const struct unshared_type *type = &unshared->types[i];
		const struct type *of = &answer->graph->types.entries[type->type];

		types_full_name(&answer->graph->types, of, name);
		json_open(&json, NULL, '{');
		json_text(&json, "type", of->name);
		json_text(&json, "type_name", name);
		json_numbers(&json, {"size", type->bytes}, {"count", type->objects});
		json_close(&json, '}');
	}
	json_close(&json, ']');
	lines_json(&json, &answer->lines);
	json_unsigned(&json, "elapsed_ns", answer->elapsed_ns);
	json_end(&json);
}

static int graph_compare(struct unshared_answer *answer, struct space *parent,
			 const struct heap_graph *heap, const struct report_choice *choice)
{
	uint64_t began = clock_ns(CLOCK_MONOTONIC);
	int err;

	answer->graph = heap->graph;
	err = unshared_read(&answer->unshared, heap->graph, parent,
			    answer->lines.err ? NULL : object_visit, answer);
	if (err)
		return err;
	lines_sort(&answer->lines);
	answer->elapsed_ns =
		heap->capture.elapsed_ns + heap->elapsed_ns + (clock_ns(CLOCK_MONOTONIC) - began);
	if (choice->format == FORMAT_JSON)
		answer_json(answer);
	else
		answer_text(answer, &choice->opts);
	unshared_free(&answer->unshared);
	return stream_flush(stdout);
}

int memory_unshared_print(pid_t pid, const struct report_choice *choice)
{
	struct heap_source source;
	struct heap_graph heap;
	struct space *parent = NULL;
	struct unshared_answer answer = {0};
	int err = heap_source_open(&source, pid, 0);

	answer.info = &source.info;
	if (!err && (!source.info.forked || source.info.ppid <= 1))
		err = error_set(-ENOTSUP, "it shares the memory of no process that runs: the one "
					  "that forked it has ended, or it has exec'd since");
	err = err
		      ?: space_open(&parent, source.info.ppid)
		      ?: lines_open(&answer.lines, &source.info);
	err = err ?: privileges_drop(0, 0) ?: calls_limit(0);
	if (!err) {
		err = heap_source_read(&source, 0, &heap);
		if (!err) {
			err = graph_compare(&answer, parent, &heap, choice);
			heap_graph_close(&heap);
		}
	}
	lines_close(&answer.lines);
	space_close(parent);
	heap_source_close(&source);
	return err;
}

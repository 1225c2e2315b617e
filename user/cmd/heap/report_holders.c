/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/heap/report_holders.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/heap/heap_choice.h"
#include "cmd/heap/heap_view.h"
#include "inspect/graph/owners.h"
#include "util/array.h"
#include "util/error.h"
#include "util/id_map.h"
#include "util/json.h"
#include "util/sorted.h"

/* --- line holders ----------------------------------------------------------------------------- */

/*
 * What keeps the blocks of each line of a trace alive: the module's variable, the module or the
 * root that the shortest path to the object leads through whose block it is. Pure.
 */

struct line_holder {
	uint32_t line;   /* number of the line in the graph's block_lines */
	uint32_t holder; /* an object; GRAPH_NONE: no object owns these blocks */
	uint64_t bytes, count;
	uint64_t only_bytes; /* of the blocks that would be freed with the holder */
};

struct line_holders {
	struct line_holder *entries; /* by line, then most bytes first */
	size_t count, capacity;
};

static void line_holders_free(struct line_holders *holders);

struct line_summing {
	const struct heap_graph *heap;
	struct owners owners;
	struct id_map found; /* by line and holder, in `out` */
	uint32_t *holder;    /* by object; GRAPH_NONE: not known yet */
	/* what an object dominates has the numbers from its own on, retained->counts of them */
	uint32_t *number;
	uint32_t *root; /* by object: the outermost one that dominates it */
	struct line_holders *out;
};

/* Numbers the objects in the order of a walk down the tree of dominators. */
static int tree_number(struct line_summing *summing)
{
	const struct retained *retained = summing->heap->retained;
	uint32_t root = (uint32_t)retained->graph->count, next = 0;
	uint32_t *stack = malloc((retained->graph->count + 1) * sizeof(*stack));
	size_t depth = 0;

	if (!stack)
		return -ENOMEM;
	stack[depth++] = root;
	while (depth) {
		uint32_t at = stack[--depth];

		if (at != root)
			summing->number[at] = next++;
		for (uint32_t i = retained->child_start[at]; i < retained->child_start[at + 1];
		     i++) {
			uint32_t child = retained->children[i];

			summing->root[child] = at == root ? child : summing->root[at];
			stack[depth++] = child;
		}
	}
	free(stack);
	return 0;
}

/*
 * Whether nothing but the holder keeps the object alive. Roots that no name tells apart are one
 * holder: then any of them.
 */
static bool is_only(const struct line_summing *summing, uint32_t holder, uint32_t object)
{
	if (summing->number[object] == GRAPH_NONE || summing->number[holder] == GRAPH_NONE)
		return 0;
	return summing->number[object] - summing->number[holder] <
		       summing->heap->retained->counts[holder] ||
	       path_holder(summing->heap->paths, summing->holder, summing->root[object]) == holder;
}

static int block_add(struct line_summing *summing, const struct block_line *block)
{
	uint32_t object = owners_find(&summing->owners, block->address, block->bytes);
	uint32_t holder = object == GRAPH_NONE
				  ? GRAPH_NONE
				  : path_holder(summing->heap->paths, summing->holder, object);
	uint64_t key = (uint64_t)block->line << 32 | holder;
	struct line_holders *out = summing->out;
	int err;
	uint32_t at = id_map_find(&summing->found, key);

	if (at == ID_MAP_NONE) {
		at = (uint32_t)out->count;
		err = ARRAY_GROW(out->entries, out->capacity, out->count)
			      ?: id_map_put(&summing->found, key, at);
		if (err)
			return err;
		out->entries[out->count++] =
			(struct line_holder){.line = block->line, .holder = holder};
	}
	out->entries[at].bytes += block->bytes;
	out->entries[at].count++;
	if (holder != GRAPH_NONE && is_only(summing, holder, object))
		out->entries[at].only_bytes += block->bytes;
	return 0;
}

static int holder_compare(const void *a, const void *b)
{
	const struct line_holder *x = a, *y = b;

	return CMP(x->line, y->line) ?: CMP(y->bytes, x->bytes) ?: CMP(x->holder, y->holder);
}

static int blocks_sum(struct line_summing *summing)
{
	const struct block_lines *lines = &summing->heap->lines;
	int err = owners_read(&summing->owners, summing->heap->graph) ?: tree_number(summing);

	for (size_t i = 0; i < lines->count && !err; i++)
		err = block_add(summing, &lines->blocks[i]);
	owners_free(&summing->owners);
	id_map_free(&summing->found);
	return err;
}

/* heap: with lines, retained and paths. 0, -ENOMEM. The caller frees with line_holders_free(). */
static int line_holders_read(struct line_holders *out, const struct heap_graph *heap)
{
	struct line_holders holders = {0};
	struct line_summing summing = {.heap = heap, .out = &holders};
	int err = -ENOMEM;

	summing.holder = numbers_new(heap->graph->count);
	summing.number = numbers_new(heap->graph->count);
	summing.root = numbers_new(heap->graph->count);
	if (summing.holder && summing.number && summing.root)
		err = blocks_sum(&summing);
	free(summing.holder);
	free(summing.number);
	free(summing.root);
	if (err) {
		line_holders_free(&holders);
		return err;
	}
	if (holders.count)
		qsort(holders.entries, holders.count, sizeof(*holders.entries), holder_compare);
	*out = holders;
	return 0;
}

static void line_holders_free(struct line_holders *holders)
{
	free(holders->entries);
	*holders = (struct line_holders){0};
}

/* The first of a line's entries; *count of them. */
static const struct line_holder *line_holders_of(const struct line_holders *holders, uint32_t line,
						 size_t *count)
{
	size_t low = 0, high = holders->count, end;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (holders->entries[middle].line < line)
			low = middle + 1;
		else
			high = middle;
	}
	for (end = low; end < holders->count && holders->entries[end].line == line; end++)
		;
	*count = end - low;
	return holders->entries + low;
}

/* --- report holders --------------------------------------------------------------------------- */

#define MAX_TEXT 3u   /* holders of a line that are printed */
#define MAX_JSON 100u /* the same, in JSON */

enum { KEY_BY_HOLDER = 0x400, KEY_HEAP, KEY_TRACE, KEY_SESSION };

static const struct argp_option options[] = {
	{"by-holder", KEY_BY_HOLDER, NULL, 0,
	 "also print for each line what keeps its blocks alive, from the process's heap as it is "
	 "now",
	 12},
	{"heap", KEY_HEAP, "DUMP", 0,
	 "by holder: a dump that tracer heap -o has written, in place of the process; needs "
	 "--trace",
	 12},
	{"trace", KEY_TRACE, "FILE", 0,
	 "by holder: the lines of blocks that tracer ctl PID blocks has written (default: of the "
	 "session that traces the process)",
	 12},
	{"session", KEY_SESSION, "PID", 0,
	 "by holder: choose one of several sessions that trace the process: the tracer's PID", 12},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct holder_choice *choice = state->input;

	switch (key) {
	case KEY_BY_HOLDER:
		choice->asked = 1;
		return 0;
	case KEY_HEAP:
		choice->heap = arg;
		return 0;
	case KEY_TRACE:
		choice->trace = arg;
		return 0;
	case KEY_SESSION:
		return cli_parse_number(arg, 1, 1 << 22, &choice->session)
			       ? cli_reject("--session", arg, "a process id")
			       : 0;
	}
	return ARGP_ERR_UNKNOWN;
}

const struct argp holder_argp = {.options = options, .parser = parse};

struct notes {
	const struct heap_graph *heap;
	struct line_holders holders;
	uint32_t *by_name; /* numbers of the lines, by name */
	int estimated;
};

static void head_print(void *context, struct json *json)
{
	const struct notes *notes = context;

	if (json) {
		heap_graph_json(json, "heap", notes->heap);
		json_close(json, '}');
		return;
	}
	heap_graph_head(notes->heap);
	fputs("Beneath a line: through what its blocks were reachable when the heap was read",
	      stdout);
	fputs(notes->estimated ? ", of those that were sampled\n" : "\n", stdout);
}

/* The number of the line of that name; BLOCK_LINES_NONE. */
static uint32_t line_find(const struct notes *notes, const char *name)
{
	const struct block_lines *lines = &notes->heap->lines;
	size_t low = 0, high = lines->name_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(lines->names[notes->by_name[middle]], name);

		if (!order)
			return notes->by_name[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return BLOCK_LINES_NONE;
}

static void holder_text(const struct notes *notes, const struct line_holder *holder, uint64_t bytes)
{
	double whole = bytes ? (double)bytes / 100 : 1;

	printf("    %.0f %% ", (double)holder->bytes / whole);
	if (holder->holder == GRAPH_NONE) {
		puts("in no object that was found");
		return;
	}
	fputs("through ", stdout);
	holder_name(notes->heap, holder->holder, NULL, NULL);
	printf(", %.0f %% only through it\n", (double)holder->only_bytes / whole);
}

static void holders_text(const struct notes *notes, const struct line_holder *holders, size_t count,
			 uint64_t bytes)
{
	if (!count)
		puts("    none of its blocks is on the heap that was read");
	for (size_t i = 0; i < count && i < MAX_TEXT; i++)
		holder_text(notes, &holders[i], bytes);
	if (count > MAX_TEXT)
		printf("    %zu other holders\n", count - MAX_TEXT);
}

static void holders_json(struct json *json, const struct notes *notes,
			 const struct line_holder *holders, size_t count, uint64_t bytes)
{
	uint64_t blocks = 0;

	for (size_t i = 0; i < count; i++)
		blocks += holders[i].count;
	json_numbers(json, {"held_size", bytes}, {"held_count", blocks}, {"holders_total", count});
	json_open(json, "holders", '[');
	for (size_t i = 0; i < count && i < MAX_JSON; i++) {
		json_open(json, NULL, '{');
		if (holders[i].holder == GRAPH_NONE)
			json_none(json, "holder");
		else
			holder_name(notes->heap, holders[i].holder, json, "holder");
		json_numbers(json, {"size", holders[i].bytes}, {"count", holders[i].count},
			     {"only_size", holders[i].only_bytes});
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void entry_print(void *context, struct json *json, const struct statistic *entry)
{
	const struct notes *notes = context;
	const struct line_holder *holders = NULL;
	uint64_t bytes = 0;
	size_t count = 0;
	uint32_t line;
	char *name;

	if (asprintf(&name, "%s:%" PRIu32,
		     strings_get(entry->snapshot->strings, entry->frame.filename),
		     entry->frame.line) < 0)
		return;
	line = line_find(notes, name);
	free(name);
	if (line != BLOCK_LINES_NONE)
		holders = line_holders_of(&notes->holders, line, &count);
	for (size_t i = 0; i < count; i++)
		bytes += holders[i].bytes;
	if (json)
		holders_json(json, notes, holders, count, bytes);
	else
		holders_text(notes, holders, count, bytes);
}

static int name_compare(const void *a, const void *b, void *context)
{
	const struct block_lines *lines = context;

	return strcmp(lines->names[*(const uint32_t *)a], lines->names[*(const uint32_t *)b]);
}

static int notes_open(struct notes *notes, struct heap_graph *heap)
{
	struct block_lines *lines = &heap->lines;

	notes->heap = heap;
	notes->by_name = numbers_new(lines->name_count);
	if (!notes->by_name)
		return -ENOMEM;
	for (size_t i = 0; i < lines->name_count; i++)
		notes->by_name[i] = (uint32_t)i;
	if (lines->name_count)
		qsort_r(notes->by_name, lines->name_count, sizeof(*notes->by_name), name_compare,
			lines);
	return line_holders_read(&notes->holders, heap);
}

static int usage_check(const struct report_choice *report, const struct holder_choice *choice)
{
	const char *reason = NULL;

	if (report->opts.by != GROUP_LINENO || report->opts.cumulative || report->app.asked)
		reason = "it is about the lines that allocated: --group-by, --by, --cumulative, "
			 "--app and --mine are not";
	else if (report->format == FORMAT_CSV)
		reason = "csv has no holders";
	else if (choice->heap && !choice->trace)
		reason = "--heap needs the lines of that moment: --trace";
	if (!reason)
		return 0;
	error_print(error_set(-EINVAL, "%s", reason), "tracer report FILE --by-holder",
		    "--by-holder");
	return -EINVAL;
}

/* 0, or -errno after a message. */
static int heap_open(const struct snapshot *snapshot, const struct holder_choice *choice,
		     struct heap_graph *out)
{
	const struct heap_choice how = {.by = BY_LINE,
					.trace = choice->trace,
					.session = choice->session,
					.pid = (pid_t)snapshot->meta.pid};
	int err = !how.pid ? error_set(-EINVAL, "it is not of one process")
		  : snapshot->meta.layer != EVENT_LAYER_PYTHON
			  ? error_set(-EINVAL, "no Python was traced")
			  : 0;

	if (err)
		return error_print(err, "--pid PID chooses one process of several", "--by-holder");
	err = heap_graph_open(&how, choice->heap, HEAP_RETAINED | HEAP_PATHS, out);
	if (err || out->capture.image.pid == snapshot->meta.pid)
		return err;
	err = error_set(-EINVAL, "it is of PID %u", out->capture.image.pid);
	heap_graph_close(out);
	return error_print(err, NULL, "%s", choice->heap);
}

int report_holders_print(const struct snapshot *snapshot, const struct report_choice *report,
			 const struct holder_choice *choice)
{
	struct report_choice with = *report;
	struct notes notes = {.estimated = snapshot_is_estimated(&snapshot->meta)};
	const struct report_notes beneath = {
		.head = head_print, .entry = entry_print, .context = &notes};
	struct heap_graph heap;

	if (usage_check(report, choice))
		return EXIT_USAGE;
	if (heap_open(snapshot, choice, &heap))
		return EXIT_FAILED;
	int err = notes_open(&notes, &heap);
	with.opts.notes = &beneath;
	int status = err ? EXIT_FAILED : cli_report_print(snapshot, &with);
	if (status == EXIT_DONE && report->format != FORMAT_JSON)
		heap_graph_foot(&report->opts, &heap);
	if (err)
		error_print(err, NULL, "--by-holder");
	line_holders_free(&notes.holders);
	free(notes.by_name);
	heap_graph_close(&heap);
	return status;
}

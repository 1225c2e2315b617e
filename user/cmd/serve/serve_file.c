/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers are lines of two values: what is asked, as the page names it, and the JSON. They are
 * packed by gzip, in base64: no byte of them ends the element that they are in. The page's policy
 * allows no script but its own, and no request.
 */
#include "cmd/serve/serve_file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/evidence/suspect.h"
#include "cmd/serve/serve_web.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/gzip.h"
#include "util/json.h"
#include "util/sorted.h"
#include "util/text.h"

#include "page/heap.h"

#define API "/api/"
/* Room for the page itself, and for what gzip and the last line need. */
#define PACKED_BYTES ((SERVE_FILE_BYTES - sizeof(page_head) - sizeof(page_tail) - 4096) / 4 * 3)
#define TEXT_BYTES   (64u << 20) /* of the answers before they are packed: a page holds them */
/*
 * Types of which the paths, holders and objects are there: as many as the page shows, but so many
 * that no more than TYPE_WORK objects are looked at.
 */
#define TYPES_LEAST  10u
#define TYPES_MOST   SERVE_TOP
#define TYPE_WORK    100000000u
#define OBJECTS      1000000u   /* that are tried, at most */
#define NODES        2000u      /* of the tree, whose levels are there, as the page shows them */
#define HOLDER_LARGE 10000u     /* references of what holds an object, which are all looked at */
#define HOLDER_WORK  300000000u /* references of larger ones, for all objects */

#define STACKS 2000u /* of a range of a recording */

struct serve_file {
	struct serve_opts opts;
	struct buffer text;
	/* of a dump: */
	const struct heap_graph *heap; /* NULL: it is a recording */
	uint8_t *written;              /* by object */
	uint64_t work;                 /* of HOLDER_WORK that is left */
	/* of a recording: */
	size_t ranges;        /* that are there */
	size_t packed;        /* about as many bytes, packed */
	size_t stacks, least; /* most stacks of the next range; of all ranges */
};

static bool is_full(const struct serve_file *file)
{
	return file->text.size >= TEXT_BYTES;
}

/* Appends a line. JSON has no tabs, and a newline at its end. 0, -errno. */
static int line_add(struct serve_file *file, const char *path, const char *what, const char *json)
{
	_cleanup_free_ char *key = NULL, *quoted = NULL;
	size_t bytes = 0;
	FILE *out;

	if (asprintf(&key, "%s %s", path, what ? what : "") < 0)
		return key = NULL, -ENOMEM;
	out = open_memstream(&quoted, &bytes);
	if (!out)
		return -ENOMEM;
	json_quote(out, key);
	putc('\t', out);
	fputs(json, out);
	return fclose(out) ? -ENOMEM : buffer_append(&file->text, quoted, bytes);
}

/* path: without API. 0, -errno. */
static int answer_add(struct serve_file *file, const char *path, const char *what)
{
	_cleanup_free_ char *json = NULL;
	char whole[64];
	size_t bytes = 0;

	if (is_full(file))
		return 0;
	snprintf(whole, sizeof(whole), API "%s", path);
	int err = serve_answer(&file->opts, whole, what, &json, &bytes);
	return err ?: line_add(file, path, what, json);
}

/* --- what is asked ---------------------------------------------------------------------------- */

static int views_add(struct serve_file *file)
{
	static const struct {
		const char *path, *what;
	} views[] = {
		{"sources", NULL},     {"heap/by", "type"},   {"heap/by", "root"},
		{"heap/by", "module"}, {"heap/by", "path"},   {"heap/by", "container"},
		{"heap/by", "size"},   {"heap/tree", "root"}, {"heap/query", "retained > 0"},
		{"heap/waste", NULL},  {"heap/cycles", NULL},
	};
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(views) && !err; i++)
		err = answer_add(file, views[i].path, views[i].what);
	return err;
}

/* type = "shop.Session", as the page writes it. 0, -ENOMEM. */
static int type_query(const char *name, struct buffer *out)
{
	int err = buffer_printf(out, "type = \"");

	for (; *name && !err; name++)
		err = buffer_printf(out, *name == '"' || *name == '\\' ? "\\%c" : "%c", *name);
	return err ?: buffer_append(out, "\"", 2);
}

static int type_add(struct serve_file *file, const struct type *type)
{
	struct buffer query = {0};
	char name[TYPES_FULL_NAME];

	types_full_name(&file->heap->graph->types, type, name);
	int err = type_query(name, &query)
			  ?: answer_add(file, "heap/query", (const char *)query.data)
			  ?: answer_add(file, "heap/why", name)
			  ?: answer_add(file, "heap/holders", name);
	buffer_free(&query);
	return err;
}

static int type_compare(const void *a, const void *b, void *context)
{
	const struct retained *retained = context;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return CMP(retained->types[y].bytes, retained->types[x].bytes) ?: CMP(x, y);
}

static int types_add(struct serve_file *file)
{
	const struct types *types = &file->heap->graph->types;
	_cleanup_free_ uint32_t *order = array_new(types->count + 1, sizeof(*order));
	int err = order ? 0 : -ENOMEM;

	for (size_t i = 0; order && i < types->count; i++)
		order[i] = (uint32_t)i;
	if (order && types->count)
		qsort_r(order, types->count, sizeof(*order), type_compare, file->heap->retained);
	size_t most = TYPE_WORK / (file->heap->graph->count + 1);
	most = most < TYPES_LEAST ? TYPES_LEAST : lesser(most, TYPES_MOST);
	for (size_t i = 0; i < types->count && i < most && !err; i++)
		if (file->heap->retained->types[order[i]].bytes)
			err = type_add(file, &types->entries[order[i]]);
	return err;
}

/*
 * To show what holds an object, all references of its holders are looked at. Of the objects of one
 * large list that would be the square of their number.
 */
static bool is_work_left(struct serve_file *file, uint32_t object)
{
	const struct graph *graph = file->heap->graph;
	uint64_t work = 0;

	for (uint32_t i = graph->in_start[object]; i < graph->in_start[object + 1]; i++)
		work += graph->out_start[graph->in[i] + 1] - graph->out_start[graph->in[i]];
	if (work <= HOLDER_LARGE)
		return true;
	if (work > file->work)
		return false;
	file->work -= work;
	return true;
}

#define ADDRESS_TEXT 32u

static void address_text(const struct serve_file *file, uint32_t object, char out[ADDRESS_TEXT])
{
	snprintf(out, ADDRESS_TEXT, "0x%" PRIx64, file->heap->graph->addresses[object]);
}

/* What the view of an object shows. 0, -errno. */
static int object_add(struct serve_file *file, uint32_t object)
{
	char address[ADDRESS_TEXT];

	if (file->written[object] || !is_work_left(file, object))
		return 0;
	file->written[object] = 1;
	address_text(file, object, address);
	return answer_add(file, "heap/show", address) ?: answer_add(file, "heap/why", address);
}

/* Nodes of the tree that are still to be written. */
struct serve_file_nodes {
	struct heap_level_node *items;
	size_t count, capacity;
};

static int level_put(struct serve_file *file, struct serve_file_nodes *nodes, uint32_t object)
{
	_cleanup_free_ struct heap_level_node *level = NULL;
	size_t count;
	int err = heap_level_read(file->heap, object, SERVE_TOP, &level, &count);

	for (size_t i = 0; i < count && !err; i++) {
		err = ARRAY_GROW(nodes->items, nodes->capacity, nodes->count);
		if (!err)
			nodes->items[nodes->count++] = level[i];
	}
	return err;
}

/* Takes the largest one out. There are at most NODES levels of SERVE_TOP. */
static struct heap_level_node node_take(struct serve_file_nodes *nodes)
{
	size_t largest = 0;

	for (size_t i = 1; i < nodes->count; i++)
		if (nodes->items[i].retained > nodes->items[largest].retained)
			largest = i;
	struct heap_level_node node = nodes->items[largest];
	nodes->items[largest] = nodes->items[--nodes->count];
	return node;
}

/* From the root, the node that retains most first: its level, and the object that names it. */
static int tree_add(struct serve_file *file)
{
	struct serve_file_nodes nodes = {0};
	int err = level_put(file, &nodes, GRAPH_NONE);
	char address[ADDRESS_TEXT];

	for (size_t i = 0; nodes.count && i < NODES && !err && !is_full(file); i++) {
		struct heap_level_node node = node_take(&nodes);

		err = object_add(file, node.object);
		if (err || !node.opens)
			continue;
		address_text(file, node.object, address);
		err = answer_add(file, "heap/tree", address)
			      ?: level_put(file, &nodes, node.object);
	}
	free(nodes.items);
	return err;
}

static int objects_add(struct serve_file *file)
{
	size_t count;
	_cleanup_free_ uint32_t *objects =
		retained_largest(file->heap->retained, NULL, OBJECTS, &count);
	int err = objects ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < count && !is_full(file); i++)
		err = object_add(file, objects[i]);
	return err;
}

/* --- the file --------------------------------------------------------------------------------- */

/* How many lines begin so. */
static size_t lines_count(const struct buffer *text, const char *begin)
{
	const char *at = (const char *)text->data, *end = at + text->size;
	size_t count = 0;

	while (at < end) {
		const char *next = memchr(at, '\n', (size_t)(end - at));

		count += !strncmp(at, begin, strlen(begin));
		at = next ? next + 1 : end;
	}
	return count;
}

static void heap_about(struct serve_file *file, struct json *json)
{
	json_numbers(json, {"objects", lines_count(&file->text, "\"heap/show ")},
		     {"objects_total", file->heap->graph->count},
		     {"types", lines_count(&file->text, "\"heap/holders ")});
}

static void recording_about(struct serve_file *file, struct json *json)
{
	const struct serve_recording *recording = &file->opts.sources[0].recording;

	json_open(json, "stops", '[');
	for (size_t i = 0; i < recording->stop_count; i++)
		json_unsigned(json, NULL, recording->stops[i]);
	json_close(json, ']');
}

/* What is in the file and what is not. 0, -errno. */
static int about_add(struct serve_file *file)
{
	char *text = NULL;
	size_t bytes = 0;
	struct json json = {.out = open_memstream(&text, &bytes)};

	if (!json.out)
		return -ENOMEM;
	json_open(&json, NULL, '{');
	json_text(&json, "file", file->opts.sources[0].name);
	(file->heap ? heap_about : recording_about)(file, &json);
	json_end(&json);
	int err = fclose(json.out) ? -ENOMEM : line_add(file, "file", NULL, text);
	free(text);
	return err;
}

/* 0, -errno. */
static int text_pack(struct serve_file *file, struct buffer *packed)
{
	int err = about_add(file) ?: buffer_append(&file->text, "", 1);

	packed->size = 0;
	return err ?: gzip_append(file->text.data, file->text.size - 1, packed);
}

/* Packs as many lines of answers about a heap as fit. 0, -errno. */
static int heap_pack(struct serve_file *file, struct buffer *packed)
{
	for (;;) {
		size_t lines = file->text.size;
		int err = text_pack(file, packed);

		if (err || packed->size <= PACKED_BYTES)
			return err;
		/* By how much it is too large, and a little more. */
		lines = (size_t)((double)lines * 0.9 * (double)PACKED_BYTES / (double)packed->size);
		while (lines && file->text.data[lines - 1] != '\n')
			lines--;
		file->text.size = lines;
	}
}

/* By hand: the static tracer has no GnuTLS. */
static int base64_write(const struct buffer *data, struct outfile *out)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	int err = 0;

	for (size_t i = 0; i < data->size && !err; i += 3) {
		size_t left = data->size - i;
		uint32_t bits = (uint32_t)data->data[i] << 16 |
				(left > 1 ? (uint32_t)data->data[i + 1] << 8 : 0) |
				(left > 2 ? data->data[i + 2] : 0);
		char group[4] = {letters[bits >> 18], letters[bits >> 12 & 63],
				 left > 1 ? letters[bits >> 6 & 63] : '=',
				 left > 2 ? letters[bits & 63] : '='};

		err = outfile_write(out, group, sizeof(group));
	}
	return err;
}

static int page_write(const struct buffer *packed, struct outfile *out)
{
	return outfile_write(out, page_head, sizeof(page_head) - 1)
		       ?: base64_write(packed, out)
		       ?: outfile_write(out, page_tail, sizeof(page_tail) - 1);
}

static int heap_write(struct serve_file *file, struct outfile *out)
{
	struct buffer packed = {0};
	int err = views_add(file)
			  ?: types_add(file)
			  ?: tree_add(file)
			  ?: objects_add(file)
			  ?: heap_pack(file, &packed)
			  ?: page_write(&packed, out);

	buffer_free(&packed);
	return err;
}

int serve_file_write(const char *dump, struct outfile *out, const char *name, bool *told)
{
	const struct heap_choice choice = {.by = BY_TYPE, .retained = 1};
	struct serve_source source = {.name = dump, .is_heap = true};
	suspect_yield_memory();
	int err = heap_graph_open(&choice, dump, HEAP_RETAINED | HEAP_PATHS | HEAP_HOLDERS,
				  &source.heap);

	*told = err != 0;
	if (err)
		return err;
	struct serve_file file = {.opts = {.sources = &source, .count = 1, .opener = -1},
				  .heap = &source.heap,
				  .work = HOLDER_WORK,
				  .written = array_new(source.heap.graph->count + 1, 1)};
	err = file.written ? heap_write(&file, out) : -ENOMEM;
	size_t objects = err ? 0 : lines_count(&file.text, "\"heap/show ");
	if (!err && objects == source.heap.graph->count)
		log_info("%s: it has all of %zu objects; tracer serve also answers queries", name,
			 objects);
	else if (!err)
		log_info("%s: it has %zu of %zu objects, those that retain most; tracer serve "
			 "shows all, and answers queries",
			 name, objects, source.heap.graph->count);
	buffer_free(&file.text);
	free(file.written);
	heap_graph_close(&source.heap);
	return err;
}

/* 0, -errno. */
static int size_packed(const char *text, size_t bytes, size_t *size)
{
	struct buffer packed = {0};
	int err = gzip_append(text, bytes, &packed);

	*size = packed.size;
	buffer_free(&packed);
	return err;
}

/* A range with file->stacks stacks. The caller frees *text. 0, -errno. */
static int range_write(const struct serve_file *file, const struct recording_span *span,
		       char **text, size_t *bytes)
{
	struct json json = {.out = open_memstream(text, bytes)};

	if (!json.out)
		return -ENOMEM;
	int err = recording_span_json(&json, span, file->stacks);
	return fclose(json.out) && !err ? -ENOMEM : err;
}

/*
 * What a range takes of its share: an equal one of what those before it have left. Above 1 it is
 * too large.
 */
static double range_share(const struct serve_file *file, size_t bytes, size_t packed)
{
	size_t stops = file->opts.sources[0].recording.stop_count;
	double left = (double)(stops * (stops + 1) / 2 - file->ranges);

	if (file->text.size >= TEXT_BYTES || file->packed >= PACKED_BYTES)
		return INFINITY;
	double of_text = (double)bytes * left / (double)(TEXT_BYTES - file->text.size);
	double of_packed = (double)packed * left / (double)(PACKED_BYTES - file->packed);
	return of_text > of_packed ? of_text : of_packed;
}

/* With as many stacks as fit. */
static int range_add(const struct recording_span *span, void *context)
{
	struct serve_file *file = context;
	char *text = NULL, what[64];
	size_t bytes = 0, packed = 0;
	double share;
	int err;

	do {
		free(text);
		err = range_write(file, span, &text, &bytes) ?: size_packed(text, bytes, &packed);
		if (err)
			break;
		share = range_share(file, bytes, packed);
		file->least = lesser(file->least, file->stacks);
		if (share > 1 && !file->stacks)
			err = error_set(-EFBIG, "its names alone are larger than the page may be");
		else if (share > 1 || share < 0.7)
			file->stacks = lesser((size_t)((double)file->stacks * 0.9 / share), STACKS);
	} while (!err && share > 1);
	snprintf(what, sizeof(what), "%zu %zu", span->from_at.index, span->to_at.index);
	err = err ?: line_add(file, "time/range", what, text);
	free(text);
	file->packed += packed;
	file->ranges++;
	return err;
}

int serve_file_write_recording(const struct serve_recording *recording, const char *path,
			       struct outfile *out, const char *name)
{
	struct serve_source source = {.name = path, .recording = *recording};
	struct serve_file file = {.opts = {.sources = &source, .count = 1, .opener = -1},
				  .stacks = STACKS,
				  .least = STACKS};
	struct buffer packed = {0};
	int err = answer_add(&file, "sources", NULL)
			  ?: answer_add(&file, "time/series", NULL)
			  ?: size_packed((char *)file.text.data, file.text.size, &file.packed)
			  ?: serve_ranges_read(recording, range_add, &file)
			  ?: text_pack(&file, &packed)
			  ?: page_write(&packed, out);

	if (!err)
		log_info("%s: it has the ranges between %zu of %zu snapshots, with at least %zu "
			 "stacks of each, or all of them; tracer serve has the others",
			 name, recording->stop_count, recording->snapshots, file.least);
	buffer_free(&packed);
	buffer_free(&file.text);
	return err;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/heap/heap_query.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/heap/heap_chosen.h"
#include "cmd/heap/heap_view.h"
#include "inspect/holders/values.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/json.h"
#include "util/near.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/text.h"

#define QUERY_DEPTH 64u  /* of parentheses and negations */
#define RECENT      64u  /* answers of a comparison */
#define BLOCK       512u /* objects that are looked at together */

enum query_operator {
	OP_EQUAL,
	OP_UNEQUAL,
	OP_BELOW,
	OP_UPTO,
	OP_ABOVE,
	OP_FROM,
	OP_LIKE,
	OP_UNLIKE
};

/* The longer ones first. */
static const struct {
	const char *text;
	enum query_operator op;
} operators[] = {
	{"!=", OP_UNEQUAL}, {"<=", OP_UPTO}, {">=", OP_FROM}, {"!~", OP_UNLIKE},
	{"=", OP_EQUAL},    {"<", OP_BELOW}, {">", OP_ABOVE}, {"~", OP_LIKE},
};

static uint64_t field_size(const struct heap_graph *heap, uint32_t object)
{
	return graph_bytes(heap->graph, object);
}

static uint64_t field_retained(const struct heap_graph *heap, uint32_t object)
{
	return heap->retained->bytes[object];
}

static uint64_t field_objects(const struct heap_graph *heap, uint32_t object)
{
	return heap->retained->counts[object];
}

static uint64_t field_held(const struct heap_graph *heap, uint32_t object)
{
	return heap->graph->held[object];
}

static uint64_t field_depth(const struct heap_graph *heap, uint32_t object)
{
	return heap->paths->depth[object];
}

static uint64_t field_address(const struct heap_graph *heap, uint32_t object)
{
	return heap->graph->addresses[object];
}

/* Texts end with a NUL. 0, -ENOMEM. */
static int field_type(const struct heap_graph *heap, uint32_t object, struct buffer *out)
{
	char name[TYPES_FULL_NAME];

	types_full_name(&heap->graph->types, graph_type(heap->graph, object), name);
	return buffer_append(out, name, strlen(name) + 1);
}

/* As path_start(), of one object. */
static uint32_t query_start(const struct paths *paths, uint32_t object)
{
	while (paths->parent[object] != GRAPH_NONE &&
	       !graph_is_modules(paths->graph, paths->parent[object]))
		object = paths->parent[object];
	return object;
}

static int field_root(const struct heap_graph *heap, uint32_t object, struct buffer *out)
{
	uint32_t start = query_start(heap->paths, object), modules = heap->paths->parent[start];
	const char *name =
		graph_root_name(heap->graph->root[modules == GRAPH_NONE ? start : modules]);

	return buffer_append(out, name, strlen(name) + 1);
}

static int field_module(const struct heap_graph *heap, uint32_t object, struct buffer *out)
{
	const struct paths *paths = heap->paths;
	uint32_t start = query_start(paths, object), modules = paths->parent[start];
	const char *kind;
	int err = 0;

	if (modules != GRAPH_NONE)
		err = reference_name(heap->graph, modules, paths->kind[start], paths->slot[start],
				     &kind, out);
	buffer_unquote(out);
	return err ?: buffer_append(out, "", 1);
}

static int field_path(const struct heap_graph *heap, uint32_t object, struct buffer *out)
{
	return path_shape_write(heap->paths, object, out) ?: buffer_append(out, "", 1);
}

static int field_value(const struct heap_graph *heap, uint32_t object, struct buffer *out)
{
	int got = values_repr(heap->graph, heap->graph->addresses[object], out);

	buffer_unquote(out);
	return got < 0 ? got : buffer_append(out, "", 1);
}

/* What a field's text is the same for. */
enum field_of { OF_NUMBER, OF_TYPE, OF_SHAPE, OF_OBJECT };

static const struct query_field {
	const char *name;
	enum field_of of;
	uint64_t (*number)(const struct heap_graph *heap, uint32_t object);
	int (*text)(const struct heap_graph *heap, uint32_t object, struct buffer *out);
	const char *help;
} fields[] = {
	{"type", OF_TYPE, NULL, field_type, "the type's name, whole or from one of its dots on"},
	{"module", OF_SHAPE, NULL, field_module, "the module that its path leads through"},
	{"path", OF_SHAPE, NULL, field_path, "the path from a root, with [*] for keys and indexes"},
	{"root", OF_SHAPE, NULL, field_root, "where its path begins: modules, frame, native, ..."},
	{"size", OF_NUMBER, field_size, NULL, "bytes of its block and of those that it owns"},
	{"retained", OF_NUMBER, field_retained, NULL, "bytes that would be freed with it"},
	{"objects", OF_NUMBER, field_objects, NULL, "objects that would be freed with it"},
	{"held", OF_NUMBER, field_held, NULL, "references to it that count"},
	{"depth", OF_NUMBER, field_depth, NULL, "references from the root to it"},
	{"address", OF_NUMBER, field_address, NULL, "where it begins: 0x7f..."},
	{"value", OF_OBJECT, NULL, field_value, "with --values: a text's or number's contents"},
};

#define OPERATORS_NUMBER "= != < <= > >="
#define OPERATORS_TEXT   "= != ~ !~"

const char *query_field(size_t number, const char **help, const char **operators)
{
	if (number >= ARRAY_SIZE(fields))
		return NULL;
	*help = fields[number].help;
	*operators = fields[number].of == OF_NUMBER ? OPERATORS_NUMBER : OPERATORS_TEXT;
	return fields[number].name;
}

enum node_kind { NODE_TEST, NODE_NOT, NODE_AND, NODE_OR };

/* An answer that is found without a search: neighbours in memory are of a few kinds. */
struct query_recent {
	uint64_t key;
	bool is_known, is_true;
};

struct query_node {
	enum node_kind kind;
	uint32_t left, right; /* nodes */
	const struct query_field *field;
	enum query_operator op;
	uint64_t number;
	char *text;
	regex_t regex;
	int has_regex;
	/* answers that are known: by type, or by the shape of the path */
	struct id_map known;
	struct query_recent recent[RECENT]; /* some of them */
};

struct query {
	struct query_node nodes[QUERY_NODES];
	uint32_t count, root;
	/* while it is parsed */
	const char *start, *at;
	unsigned int depth;
	int values;
	/* while it runs */
	const struct heap_graph *heap;
	struct buffer buffer;
	int err;
};

/* --- parsing ---------------------------------------------------------------------------------- */

static int parse_error(const struct query *query, const char *at, const char *expected)
{
	return error_set(-EINVAL, "at %zu: expected %s", (size_t)(at - query->start) + 1, expected);
}

static void blanks_skip(struct query *query)
{
	query->at += strspn(query->at, " \t\r\n");
}

static size_t word_length(const char *at)
{
	size_t length = 0;

	while (isalnum((unsigned char)at[length]) || at[length] == '_')
		length++;
	return length;
}

/* Takes the word if it is next. */
static bool word_take(struct query *query, const char *word)
{
	blanks_skip(query);
	if (word_length(query->at) != strlen(word) || strncmp(query->at, word, strlen(word)) != 0)
		return false;
	query->at += strlen(word);
	return true;
}

static int node_new(struct query *query, enum node_kind kind, uint32_t left, uint32_t right,
		    uint32_t *out)
{
	if (query->count == QUERY_NODES)
		return error_set(-EINVAL, "at %zu: it has more than %u comparisons",
				 (size_t)(query->at - query->start) + 1, QUERY_NODES / 2);
	*out = query->count++;
	query->nodes[*out] = (struct query_node){.kind = kind, .left = left, .right = right};
	return 0;
}

static int field_take(struct query *query, struct query_node *node)
{
	blanks_skip(query);
	size_t length = word_length(query->at);
	_cleanup_free_ char *word = strndup(query->at, length);
	struct near near = {.word = word};
	char expected[256] = "one of type, module, path, root, size, retained, objects, held, "
			     "depth, address, value";

	if (!word)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (!strcmp(fields[i].name, word)) {
			if (fields[i].of == OF_OBJECT && !query->values)
				return error_set(-EINVAL, "at %zu: %s is of --values",
						 (size_t)(query->at - query->start) + 1, word);
			node->field = &fields[i];
			query->at += length;
			return 0;
		}
		near_offer(&near, fields[i].name);
	}
	if (length && near.best)
		snprintf(expected, sizeof(expected), "a field: did you mean %s?", near.best);
	return parse_error(query, query->at, expected);
}

static int operator_take(struct query *query, struct query_node *node)
{
	int is_number = node->field->of == OF_NUMBER;

	blanks_skip(query);
	for (size_t i = 0; i < ARRAY_SIZE(operators); i++) {
		size_t length = strlen(operators[i].text);

		if (strncmp(query->at, operators[i].text, length) != 0)
			continue;
		node->op = operators[i].op;
		if (node->op <= OP_UNEQUAL || is_number == (node->op < OP_LIKE)) {
			query->at += length;
			return 0;
		}
		break;
	}
	return parse_error(query, query->at,
			   is_number ? "one of " OPERATORS_NUMBER : "one of " OPERATORS_TEXT);
}

/* The text behind a quote, up to the next. */
static int quoted_take(struct query *query, struct buffer *out)
{
	const char *begin = query->at;
	char quote = *query->at++;
	int err = 0;

	for (; *query->at && *query->at != quote && !err; query->at++) {
		/* It is of regular expressions but in front of a quote and of itself. */
		if (*query->at == '\\' && (query->at[1] == quote || query->at[1] == '\\'))
			query->at++;
		err = buffer_append(out, query->at, 1);
	}
	if (!err && !*query->at)
		return parse_error(query, begin, "a second quote behind this one");
	query->at += !err;
	return err;
}

static int value_take(struct query *query, struct query_node *node)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	char reason[128];
	int err;

	blanks_skip(query);
	const char *begin = query->at;
	if (*begin == '"' || *begin == '\'') {
		err = quoted_take(query, &text);
	} else {
		size_t length = strcspn(begin, " \t\r\n()\"'");

		if (!length)
			return parse_error(query, begin, "a value");
		err = buffer_append(&text, begin, length);
		query->at += length;
	}
	err = err ?: buffer_append(&text, "", 1);
	if (err)
		return err;
	node->text = (char *)text.data;
	text = (struct buffer){0};
	if (node->field->of == OF_NUMBER) {
		char *end;

		if (!strncmp(node->text, "0x", 2)) {
			errno = 0;
			node->number = strtoull(node->text, &end, 16);
			err = errno || *end ? -EINVAL : 0;
		} else {
			err = cli_parse_bytes(node->text, &node->number);
		}
		return err ? parse_error(query, begin, "a number, such as 100, 64K, 1M or 0x7f00")
			   : 0;
	}
	if (node->op < OP_LIKE)
		return 0;
	err = regcomp(&node->regex, node->text, REG_EXTENDED | REG_NOSUB);
	if (!err) {
		node->has_regex = 1;
		return 0;
	}
	regerror(err, &node->regex, reason, sizeof(reason));
	return error_set(-EINVAL, "at %zu: %s", (size_t)(begin - query->start) + 1, reason);
}

static int or_parse(struct query *query, uint32_t *out);

static int test_parse(struct query *query, uint32_t *out)
{
	int err;

	if (word_take(query, "not")) {
		uint32_t negated;

		if (++query->depth > QUERY_DEPTH)
			return parse_error(query, query->at, "fewer parentheses and negations");
		err = test_parse(query, &negated) ?: node_new(query, NODE_NOT, negated, 0, out);
		query->depth--;
		return err;
	}
	blanks_skip(query);
	if (*query->at == '(') {
		if (++query->depth > QUERY_DEPTH)
			return parse_error(query, query->at, "fewer parentheses and negations");
		query->at++;
		err = or_parse(query, out);
		blanks_skip(query);
		if (!err && *query->at != ')')
			err = parse_error(query, query->at, "and, or, or a parenthesis");
		query->at += !err;
		query->depth--;
		return err;
	}
	err = node_new(query, NODE_TEST, 0, 0, out);
	struct query_node *node = &query->nodes[err ? 0 : *out];
	return err ?: field_take(query, node)
	       ?: operator_take(query, node)
	       ?: value_take(query, node);
}

static bool is_cheap(const struct query *query, uint32_t node)
{
	return query->nodes[node].kind == NODE_TEST && query->nodes[node].field->of == OF_NUMBER;
}

/* Operands of one kind from left to right; numbers are looked at first. */
static int list_parse(struct query *query, enum node_kind kind, const char *word,
		      int (*operand)(struct query *query, uint32_t *out), uint32_t *out)
{
	int err = operand(query, out);

	while (!err && word_take(query, word)) {
		uint32_t right;

		err = operand(query, &right);
		if (err)
			return err;
		uint32_t left = *out;
		bool swaps = is_cheap(query, right) && !is_cheap(query, left);
		err = node_new(query, kind, swaps ? right : left, swaps ? left : right, out);
	}
	return err;
}

static int and_parse(struct query *query, uint32_t *out)
{
	return list_parse(query, NODE_AND, "and", test_parse, out);
}

static int or_parse(struct query *query, uint32_t *out)
{
	return list_parse(query, NODE_OR, "or", and_parse, out);
}

int query_parse(struct query **out, const char *text, int values)
{
	struct query *query = calloc(1, sizeof(*query));

	if (!query)
		return -ENOMEM;
	query->start = query->at = text;
	query->values = values;
	int err = strlen(text) > QUERY_TEXT
			  ? error_set(-EINVAL, "it is longer than %u bytes", QUERY_TEXT)
			  : or_parse(query, &query->root);
	blanks_skip(query);
	if (!err && *query->at)
		err = parse_error(query, query->at, "and, or, or the end");
	if (err)
		query_free(query);
	else
		*out = query;
	return err;
}

void query_free(struct query *query)
{
	for (uint32_t i = 0; query && i < query->count; i++) {
		free(query->nodes[i].text);
		if (query->nodes[i].has_regex)
			regfree(&query->nodes[i].regex);
		id_map_free(&query->nodes[i].known);
	}
	if (query)
		buffer_free(&query->buffer);
	free(query);
}

/* --- running ---------------------------------------------------------------------------------- */

static bool is_number_so(const struct query_node *node, uint64_t number)
{
	switch (node->op) {
	case OP_EQUAL:
		return number == node->number;
	case OP_UNEQUAL:
		return number != node->number;
	case OP_BELOW:
		return number < node->number;
	case OP_UPTO:
		return number <= node->number;
	case OP_ABOVE:
		return number > node->number;
	default:
		return number >= node->number;
	}
}

static bool is_text_so(struct query *query, const struct query_node *node, uint32_t object)
{
	query->buffer.size = 0;
	int err = node->field->text(query->heap, object, &query->buffer);
	if (err) {
		query->err = 0;
		return false;
	}
	const char *text = (const char *)query->buffer.data;
	bool found;

	if (node->has_regex)
		found = !regexec(&node->regex, text, 0, NULL, 0);
	else if (node->field->of == OF_TYPE)
		found = chosen_type_is(query->heap->graph, graph_type(query->heap->graph, object),
				       node->text);
	else
		found = !strcmp(text, node->text);
	return found == (node->op == OP_EQUAL || node->op == OP_LIKE);
}

static bool is_test_true(struct query *query, struct query_node *node, uint32_t object)
{
	const struct heap_graph *heap = query->heap;

	if (node->field->of == OF_NUMBER)
		return is_number_so(node, node->field->number(heap, object));
	if (node->field->of == OF_OBJECT)
		return is_text_so(query, node, object);
	uint64_t key = node->field->of == OF_TYPE ? heap->graph->type_of[object]
						  : heap->paths->shape[object];
	struct query_recent *recent = &node->recent[key % RECENT];
	if (recent->is_known && recent->key == key)
		return recent->is_true;
	uint32_t known = id_map_find(&node->known, key);
	if (known == ID_MAP_NONE) {
		known = is_text_so(query, node, object);
		query->err = query->err ?: id_map_put(&node->known, key, known);
	}
	*recent = (struct query_recent){key, true, known};
	return known;
}

/*
 * Of a block of objects from `first` on, keeps the marks of those for which the node is true. What
 * is not marked is not looked at: the right operand is asked where the left one leaves it open.
 */
static void marks_keep(struct query *query, uint32_t number, uint32_t first, size_t count,
		       uint8_t *marks)
{
	struct query_node *node = &query->nodes[number];
	uint8_t other[BLOCK];

	switch (node->kind) {
	case NODE_NOT:
		memcpy(other, marks, count);
		marks_keep(query, node->left, first, count, other);
		for (size_t i = 0; i < count; i++)
			marks[i] &= !other[i];
		break;
	case NODE_AND:
		marks_keep(query, node->left, first, count, marks);
		marks_keep(query, node->right, first, count, marks);
		break;
	case NODE_OR:
		memcpy(other, marks, count);
		marks_keep(query, node->left, first, count, marks);
		for (size_t i = 0; i < count; i++)
			other[i] &= !marks[i];
		marks_keep(query, node->right, first, count, other);
		for (size_t i = 0; i < count; i++)
			marks[i] |= other[i];
		break;
	default:
		for (size_t i = 0; i < count; i++)
			marks[i] = marks[i] && is_test_true(query, node, first + (uint32_t)i);
	}
}

int query_run(struct query *query, const struct heap_graph *heap, struct query_found *out)
{
	const struct graph *graph = heap->graph;

	*out = (struct query_found){.matched = calloc(graph->count + 1, 1)};
	if (!out->matched)
		return -ENOMEM;
	query->heap = heap;
	query->err = 0;
	for (size_t first = 0; first < graph->count && !query->err; first += BLOCK) {
		size_t count = lesser(graph->count - first, BLOCK);

		memset(out->matched + first, 1, count);
		marks_keep(query, query->root, (uint32_t)first, count, out->matched + first);
		for (size_t i = first; i < first + count; i++) {
			out->count += out->matched[i];
			out->bytes += out->matched[i] ? graph_bytes(graph, (uint32_t)i) : 0;
		}
	}
	for (uint32_t i = 0; i < query->count; i++)
		id_map_free(&query->nodes[i].known);
	return query->err ?: retained_together(heap->retained, out->matched, &out->retained);
}

void query_found_free(struct query_found *found)
{
	free(found->matched);
	*found = (struct query_found){0};
}

/* --- the answer ------------------------------------------------------------------------------- */

static void object_print(const struct heap_choice *choice, const struct heap_graph *heap,
			 uint32_t object)
{
	const struct graph *graph = heap->graph;
	struct json *json = choice->json;
	char retained[SIZE_TEXT_MAX], size[SIZE_TEXT_MAX], objects[32];

	if (json) {
		json_open(json, NULL, '{');
		type_json(json, graph, graph_type(graph, object));
		json_numbers(json, {"address", graph->addresses[object]},
			     {"size", graph_bytes(graph, object)},
			     {"retained_size", heap->retained->bytes[object]},
			     {"retained_count", heap->retained->counts[object]});
		path_name(heap, object, json, "path");
		json_close(json, '}');
		return;
	}
	size_text(retained, heap->retained->bytes[object]);
	size_text(size, graph_bytes(graph, object));
	text_count(objects, heap->retained->counts[object]);
	if (choice->output.opts.tables)
		printf("%s\t%s\t%s\t", retained, objects, size);
	else
		fputs("  ", stdout);
	type_text(graph, graph_type(graph, object));
	printf(" at 0x%" PRIx64, graph->addresses[object]);
	if (!choice->output.opts.tables)
		printf(": retained=%s, retained count=%" PRIu32 ", size=%s", retained,
		       heap->retained->counts[object], size);
	fputs("\n    ", stdout);
	path_name(heap, object, NULL, NULL);
	putchar('\n');
}

static void total_print(const struct heap_choice *choice, const struct heap_graph *heap,
			const struct query_found *found)
{
	struct json *json = choice->json;

	if (json) {
		json_text(json, "query", choice->what);
		json_open(json, "total", '{');
		json_numbers(json, {"count", found->count}, {"size", found->bytes},
			     {"retained_size", found->retained.bytes},
			     {"retained_count", found->retained.count});
		json_close(json, '}');
		return;
	}
	printf("%zu of %zu objects: size=%s; %s in %" PRIu64 " would be freed with them\n",
	       found->count, heap->graph->count, SIZE_TEXT(found->bytes),
	       SIZE_TEXT(found->retained.bytes), found->retained.count);
}

static int found_print(const struct heap_choice *choice, const struct heap_graph *heap,
		       const struct query_found *found)
{
	size_t shown = report_rows(&choice->output.opts, found->count);
	_cleanup_free_ uint32_t *objects =
		retained_largest(heap->retained, found->matched, shown, &shown);

	if (!objects)
		return -ENOMEM;
	heap_answer_begin(choice, heap);
	total_print(choice, heap, found);
	if (choice->json)
		json_open(choice->json, "objects", '[');
	else if (choice->output.opts.tables && shown)
		puts("RETAINED\t?OBJECTS\tSIZE\tWHAT");
	for (size_t i = 0; i < shown; i++)
		object_print(choice, heap, objects[i]);
	if (choice->json)
		json_close(choice->json, ']');
	else if (shown < found->count)
		printf("%zu others: --top N shows more\n", found->count - shown);
	return heap_answer_end(choice, heap);
}

int heap_query_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	struct query_found found = {0};
	struct query *query = NULL;
	int err = query_parse(&query, choice->what, choice->values);

	err = err ?: query_run(query, heap, &found);
	if (!err)
		err = found_print(choice, heap, &found);
	query_found_free(&found);
	query_free(query);
	return err;
}

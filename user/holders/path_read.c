/* SPDX-License-Identifier: Apache-2.0 */
/* How paths are written: as steps, and as an expression of Python. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "holders/paths.h"
#include "holders/values.h"

/* What is written as .NAME: 1: it was appended; 0: it is no identifier; -ENOMEM. */
static int attribute_write(struct buffer *expression, const char *name)
{
	size_t length = strlen(name);

	if (!length || strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "_0123456789") != length)
		return 0;
	return buffer_printf(expression, ".%s", name) ?: 1;
}

static int local_write(const struct graph *graph, uint32_t source, struct buffer *expression,
		       const char *name)
{
	const char *type = graph_type(graph, source)->name;
	const char *frame = !strcmp(type, "frame")             ? ""
			    : !strcmp(type, "generator")       ? ".gi_frame"
			    : !strcmp(type, "coroutine")       ? ".cr_frame"
			    : !strcmp(type, "async_generator") ? ".ag_frame"
							       : NULL;

	if (!frame || !name[0])
		return 0;
	return buffer_printf(expression, "%s.f_locals['%s']", frame, name) ?: 1;
}

/* Appends the step to the expression. 1; 0: Python has no expression for it; -ENOMEM. */
static int expression_step(const struct graph *graph, uint32_t source, enum reference_kind kind,
			   uint64_t slot, const char *step_kind, const char *name,
			   struct buffer *expression)
{
	int got;

	switch (kind) {
	case REFERENCE_ITEM:
		return buffer_printf(expression, "[%" PRIu64 "]", slot) ?: 1;
	case REFERENCE_VALUE:
		if (buffer_append(expression, "[", 1))
			return -ENOMEM;
		got = values_repr(graph, dict_key(graph, source, slot), expression);
		return got > 0 ? buffer_append(expression, "]", 1) ?: 1 : got;
	case REFERENCE_LOCAL:
		return local_write(graph, source, expression, name);
	case REFERENCE_TYPE:
	case REFERENCE_WORD:
	case REFERENCE_FIELD:
	case REFERENCE_ATTRIBUTE:
	case REFERENCE_DICT:
		return strcmp(step_kind, "word") ? attribute_write(expression, name) : 0;
	default:
		return 0;
	}
}

static int step_add(struct path *path, const char *kind, uint32_t object, struct buffer *name)
{
	int err = array_reserve(&path->steps, &path->capacity, path->count, 1, sizeof(struct step));

	if (!err)
		err = buffer_append(name, "", 1);
	if (err)
		return err;
	path->steps[path->count++] =
		(struct step){.kind = kind, .object = object, .name = (uint32_t)path->names.size};
	return buffer_append(&path->names, name->data, strlen((const char *)name->data) + 1);
}

static int frame_root_name(const struct graph *graph, const struct graph_root_word *word,
			   struct buffer *name)
{
	const struct abi_offsets *abi = &graph->image->offsets.abi;
	uint64_t code = image_u64(graph->image, word->address + abi->frame_code);
	size_t before = name->size;
	int got;

	if (abi->frame_owner == ABI_NONE || word->kind != REFERENCE_LOCAL)
		return 0;
	code = abi->frame_code_tagged ? code & ~7ull : code;
	got = values_identifier(graph, variable_name(graph, code, word->slot), name);
	if (got > 0)
		got = buffer_append(name, " of ", 4);
	if (got < 0)
		return got;
	got = values_identifier(graph, image_u64(graph->image, code + abi->code_qualname), name);
	if (!got && name->size > before)
		name->size -= 4;
	return got < 0 ? got : 0;
}

static int root_name(const struct graph *graph, uint32_t object, struct buffer *name)
{
	size_t count;
	const struct graph_root_word *word = graph_words(graph, object, &count);
	const struct image_segment *segment;
	uint64_t missing;

	while (count > 1 && word->root != graph->root[object]) {
		word++;
		count--;
	}
	switch (graph->root[object]) {
	case ROOT_MODULES:
		return buffer_append(name, "sys.modules", 11);
	case ROOT_FRAME:
		return word ? frame_root_name(graph, word, name) : 0;
	case ROOT_STATIC:
		segment = image_segment(graph->image, graph->addresses[object]);
		break;
	case ROOT_VARIABLE:
		segment = word ? image_segment(graph->image, word->address) : NULL;
		break;
	case ROOT_NATIVE:
	case ROOT_LOST:
		missing = graph_refcount(graph, graph->addresses[object]) - graph->held[object];
		return buffer_printf(name, "%" PRIu64 " reference%s", missing,
				     missing == 1 ? "" : "s");
	default:
		return 0;
	}
	if (!segment || !segment->file[0])
		return 0;
	return buffer_append(
		name, strrchr(segment->file, '/') ? strrchr(segment->file, '/') + 1 : segment->file,
		strlen(strrchr(segment->file, '/') ? strrchr(segment->file, '/') + 1
						   : segment->file));
}

struct writer {
	const struct paths *paths;
	struct path *path;
	struct buffer name;
	size_t before_dict; /* length of the expression without .__dict__ */
	int expressible;
	int proxy; /* the expression ends with a type's __dict__, which is not the dictionary */
};

/* The step that the module, class or instance of a dictionary makes together with it. */
static int namespace_step(struct writer *writer, uint32_t dict, uint32_t object)
{
	const struct graph *graph = writer->paths->graph;
	uint32_t owner = writer->paths->parent[dict];
	uint64_t key = dict_key(graph, dict, writer->paths->slot[object]);
	int got = values_identifier(graph, key, &writer->name);

	if (got <= 0)
		return got;
	got = buffer_append(&writer->name, "", 1);
	if (got)
		return got;
	if (writer->expressible && owner != GRAPH_NONE &&
	    graph_type(graph, owner)->layout != LAYOUT_TYPE) {
		writer->path->expression.size = writer->before_dict;
		got = attribute_write(&writer->path->expression, (char *)writer->name.data);
	} else if (writer->expressible) {
		got = buffer_printf(&writer->path->expression, "['%s']", (char *)writer->name.data)
			      ?: 1;
	}
	if (got < 0)
		return got;
	writer->proxy = 0;
	/* The dictionary is no step of its own. */
	writer->path->count--;
	writer->name.size--;
	return step_add(writer->path, "attribute", object, &writer->name) ?: 1;
}

static int is_dict_step(const struct path *path)
{
	const struct step *step = path->count ? &path->steps[path->count - 1] : NULL;

	return step && !strcmp(step->kind, "attribute") &&
	       !strcmp((const char *)path->names.data + step->name, "__dict__");
}

static int is_type_dict(const struct graph *graph, uint32_t source, enum reference_kind kind,
			uint32_t slot)
{
	return graph_type(graph, source)->layout == LAYOUT_TYPE && kind == REFERENCE_FIELD &&
	       slot == graph->image->offsets.objects.type_dict;
}

/* 'shop' becomes shop. */
static void text_unquote(struct buffer *name)
{
	if (name->size < 2 || name->data[0] != '\'' || name->data[name->size - 1] != '\'')
		return;
	name->size -= 2;
	memmove(name->data, name->data + 1, name->size);
}

static int object_step(struct writer *writer, uint32_t object)
{
	const struct paths *paths = writer->paths;
	const struct graph *graph = paths->graph;
	struct path *path = writer->path;
	uint32_t source = paths->parent[object];
	enum reference_kind kind = paths->kind[object];
	const char *kind_name;
	int got = 0;

	writer->name.size = 0;
	if (kind == REFERENCE_VALUE && is_dict_step(path)) {
		got = namespace_step(writer, source, object);
		if (got)
			return got < 0 ? got : 0;
		writer->name.size = 0;
	}
	got = reference_name(graph, source, kind, paths->slot[object], &kind_name, &writer->name);
	if (!got)
		got = buffer_append(&writer->name, "", 1);
	if (got)
		return got;
	writer->before_dict = path->expression.size;
	if (writer->proxy && kind != REFERENCE_VALUE)
		writer->expressible = 0;
	writer->proxy = is_type_dict(graph, source, kind, paths->slot[object]);
	if (writer->expressible) {
		got = expression_step(graph, source, kind, paths->slot[object], kind_name,
				      (char *)writer->name.data, &path->expression);
		writer->expressible = got > 0;
		if (got < 0)
			return got;
	}
	writer->name.size--;
	if (graph->addresses[source] == graph->modules && path->count == 1) {
		path->count = 0;
		kind_name = "module";
		text_unquote(&writer->name);
	}
	return step_add(path, kind_name, object, &writer->name);
}

/* The objects from the root to `object`, at most PATHS_MAX_STEPS of those next to it. */
static uint32_t *chain_make(const struct paths *paths, uint32_t object, size_t *count, int *cut)
{
	uint32_t *chain = malloc(PATHS_MAX_STEPS * sizeof(*chain));

	*count = 0;
	for (uint32_t at = object; chain && at != GRAPH_NONE; at = paths->parent[at]) {
		if (*count == PATHS_MAX_STEPS) {
			*cut = 1;
			break;
		}
		chain[(*count)++] = at;
	}
	return chain;
}

int path_read(const struct paths *paths, uint32_t object, struct path *out)
{
	struct writer writer = {.paths = paths, .path = out};
	size_t count;
	uint32_t *chain, first;
	int err;

	*out = (struct path){0};
	chain = chain_make(paths, object, &count, &out->cut);
	if (!chain)
		return -ENOMEM;
	first = chain[count - 1];
	writer.expressible = paths->graph->addresses[first] == paths->graph->modules;
	err = root_name(paths->graph, first, &writer.name);
	if (!err && writer.expressible)
		err = buffer_append(&out->expression, "sys.modules", 11);
	if (!err)
		err = step_add(out,
			       graph_root_name(out->cut ? ROOT_NONE : paths->graph->root[first]),
			       first, &writer.name);
	for (size_t i = count - 1; i-- > 0 && !err;)
		err = object_step(&writer, chain[i]);
	if (!writer.expressible || writer.proxy)
		out->expression.size = 0;
	if (!err)
		err = buffer_append(&out->expression, "", 1);
	buffer_free(&writer.name);
	free(chain);
	return err;
}

void path_free(struct path *path)
{
	free(path->steps);
	buffer_free(&path->names);
	buffer_free(&path->expression);
	memset(path, 0, sizeof(*path));
}

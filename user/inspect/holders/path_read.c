/* SPDX-License-Identifier: Apache-2.0 */
/* How paths are written: as steps, and as a text, in Python as far as possible. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/holders/paths.h"
#include "inspect/holders/values.h"
#include "util/array.h"
#include "util/cleanup.h"

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
		return strcmp(step_kind, "word") && strcmp(step_kind, "field")
			       ? attribute_write(expression, name)
			       : 0;
	default:
		return 0;
	}
}

static int step_add(struct path *path, const char *kind, uint32_t object, struct buffer *name)
{
	int err = ARRAY_GROW(path->steps, path->capacity, path->count);

	err = err ?: buffer_append(name, "", 1);
	if (err)
		return err;
	path->steps[path->count++] = (struct step){.kind = kind,
						   .object = object,
						   .name = (uint32_t)path->names.size,
						   .end = (uint32_t)path->text.size,
						   .least = 1,
						   .most = 1};
	return buffer_append(&path->names, name->data, strlen((const char *)name->data) + 1);
}

struct path_read_writer {
	const struct paths *paths;
	struct path *path;
	struct buffer name;
	size_t before_dict; /* length of the text without .__dict__ */
	int is_python;
	int proxy; /* the text ends with a type's __dict__, which is not the dictionary */
	/* in front of a threading.local's table: lengths of the text and the steps, is_python */
	struct {
		size_t text, steps;
		int is_python;
	} thread;
};

/* Appends a step that Python has no expression for. */
static int plain_write(struct path_read_writer *writer, const char *kind, const char *name)
{
	writer->is_python = 0;
	return buffer_printf(&writer->path->text, ", %s%s%s", kind, name[0] ? " " : "", name);
}

/*
 * Is the class's attribute the object itself, as CLASS.NAME? Not if the object's type is a
 * descriptor, as staticmethod, or the class's own type may have a property of the name.
 */
static bool is_own_attribute(const struct graph *graph, uint32_t owner, uint32_t object,
			     const char *name)
{
	static const char *const plain[] = {
		"dict", "list",  "tuple", "set",   "frozenset", "collections.deque",
		"str",  "bytes", "int",   "float", "function",  "functools._lru_cache_wrapper"};
	const char *type = graph_type(graph, object)->name, *meta = graph_type(graph, owner)->name;

	/* A class of the program's may be called list; its name here has no module. */
	if (!strncmp(name, "__", 2) ||
	    (graph_type(graph, object)->flags & TYPE_HEAP && !strchr(type, '.')) ||
	    (strcmp(meta, "type") != 0 && strcmp(meta, "ABCMeta") != 0))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
		if (!strcmp(type, plain[i]))
			return 1;
	return 0;
}

/*
 * The step that the module, class or instance of a dictionary makes together with it; a
 * threading.local also with its table.
 */
static int namespace_step(struct path_read_writer *writer, uint32_t dict, uint32_t object)
{
	const struct graph *graph = writer->paths->graph;
	uint32_t owner = paths_namespace_owner(writer->paths, dict);
	uint64_t key = dict_key(graph, dict, writer->paths->slot[object]);
	int got = values_identifier(graph, key, &writer->name);
	int of_thread = paths_is_thread_dict(writer->paths, dict);

	if (got <= 0)
		return got;
	got = buffer_append(&writer->name, "", 1);
	if (got)
		return got;
	const char *name = (const char *)writer->name.data;
	if (of_thread) {
		writer->before_dict = writer->thread.text;
		writer->is_python = writer->thread.is_python;
	}
	if (writer->is_python && owner != GRAPH_NONE &&
	    graph_type(graph, owner)->layout == LAYOUT_TYPE &&
	    !is_own_attribute(graph, owner, object, name)) {
		got = buffer_printf(&writer->path->text, "['%s']", name);
	} else {
		writer->path->text.size = writer->before_dict;
		got = writer->is_python ? attribute_write(&writer->path->text, name)
					: plain_write(writer, "attribute", name);
	}
	if (got < 0)
		return got;
	writer->proxy = 0;
	/* The dictionary is no step of its own. */
	writer->path->count = of_thread ? writer->thread.steps : writer->path->count - 1;
	writer->name.size--;
	return step_add(writer->path, "attribute", object, &writer->name) ?: 1;
}

static bool is_dict_step(const struct path *path)
{
	const struct step *step = path->count ? &path->steps[path->count - 1] : NULL;

	return step && !strcmp(step->kind, "attribute") &&
	       !strcmp((const char *)path->names.data + step->name, "__dict__");
}

static bool is_type_dict(const struct graph *graph, uint32_t source, enum reference_kind kind,
			 uint32_t slot)
{
	return graph_type(graph, source)->layout == LAYOUT_TYPE && kind == REFERENCE_FIELD &&
	       slot == graph->image->offsets.objects.type_dict;
}

/* Appends the step to the text, in Python if that is possible. */
static int text_step(struct path_read_writer *writer, uint32_t object, const char *kind_name)
{
	const struct paths *paths = writer->paths;
	uint32_t source = paths->parent[object];
	enum reference_kind kind = paths->kind[object];
	struct buffer *text = &writer->path->text;
	const char *name = (const char *)writer->name.data;
	size_t before = text->size;

	writer->before_dict = before;
	if (writer->proxy && kind != REFERENCE_VALUE)
		writer->is_python = 0;
	writer->proxy = is_type_dict(paths->graph, source, kind, paths->slot[object]);
	int got = writer->is_python ? expression_step(paths->graph, source, kind,
						      paths->slot[object], kind_name, name, text)
				    : 0;
	if (got)
		return got < 0 ? got : 0;
	text->size = before;
	return plain_write(writer, kind_name, name);
}

static int object_step(struct path_read_writer *writer, uint32_t object)
{
	const struct paths *paths = writer->paths;
	const struct graph *graph = paths->graph;
	struct path *path = writer->path;
	uint32_t source = paths->parent[object];
	enum reference_kind kind = paths->kind[object];
	const char *kind_name;
	int got = 0;

	writer->name.size = 0;
	if (paths_is_thread_table(paths, object)) {
		writer->thread.text = path->text.size;
		writer->thread.steps = path->count;
		writer->thread.is_python = writer->is_python;
	}
	if (kind == REFERENCE_VALUE &&
	    (is_dict_step(path) || paths_is_thread_dict(paths, source))) {
		got = namespace_step(writer, source, object);
		if (got)
			return got < 0 ? got : 0;
		writer->name.size = 0;
	}
	got = reference_name(graph, source, kind, paths->slot[object], &kind_name, &writer->name);
	if (!got)
		got = buffer_append(&writer->name, "", 1) ?: text_step(writer, object, kind_name);
	if (got)
		return got;
	writer->name.size--;
	if (graph_is_modules(graph, source) && path->count == 1) {
		path->count = graph->root[source] == ROOT_SUBMODULES;
		kind_name = "module";
		buffer_unquote(&writer->name);
	}
	got = step_add(path, kind_name, object, &writer->name);
	if (!got)
		path->steps[path->count - 1].guess = graph_is_guess(
			graph, source, graph->addresses[object], kind, paths->slot[object]);
	return got;
}

/* The first step: what holds the object that the path begins with. */
static int root_step(struct path_read_writer *writer, uint32_t object)
{
	const struct graph *graph = writer->paths->graph;
	struct path *path = writer->path;
	const char *kind = graph_root_name(path->cut ? ROOT_NONE : graph->root[object]);
	int err = root_name(graph, object, 1, &writer->name) ?: buffer_append(&writer->name, "", 1);

	if (err)
		return err;
	writer->is_python = !path->cut && graph_is_modules(graph, object);
	if (writer->is_python && graph->root[object] == ROOT_SUBMODULES)
		err = buffer_printf(&path->text,
				    "interpreter %s: ", (const char *)writer->name.data);
	if (err)
		return err;
	err = writer->is_python
		      ? buffer_append(&path->text, "sys.modules", 11)
		      : buffer_printf(&path->text, "%s%s%s", kind, writer->name.size > 1 ? " " : "",
				      (const char *)writer->name.data);
	writer->name.size--;
	return err ?: step_add(path, kind, object, &writer->name);
}

int path_read(const struct paths *paths, uint32_t object, struct path *out)
{
	struct path_read_writer writer = {.paths = paths, .path = out};
	size_t count;

	*out = (struct path){0};
	_cleanup_free_ uint32_t *chain = chain_make(paths, object, &count, &out->cut);
	if (!chain)
		return -ENOMEM;
	int err = root_step(&writer, chain[0]);
	for (size_t i = 1; i < count && !err; i++)
		err = object_step(&writer, chain[i]);
	out->is_python = writer.is_python && !writer.proxy;
	err = err ?: buffer_append(&out->text, "", 1);
	buffer_free(&writer.name);
	return err;
}

int path_shape_write(const struct paths *paths, uint32_t object, struct buffer *out)
{
	struct path path;
	int err = path_read(paths, paths->folded[object], &path);

	for (size_t i = 0, begin = 0; i < path.count && !err; begin = path.steps[i++].end) {
		const char *text = (const char *)path.text.data + begin;
		const struct step *step = &path.steps[i];

		if (!i || paths_is_named(paths, step->object))
			err = buffer_append(out, text, step->end - begin);
		else if (text[0] == '[')
			err = buffer_append(out, "[*]", 3);
		else
			err = buffer_printf(out, ", %s", step->kind);
	}
	path_free(&path);
	return err;
}

static uint64_t text_hash(uint64_t hash, const struct buffer *text)
{
	for (size_t i = 0; i < text->size; i++)
		hash = hash_u64(hash ^ text->data[i]);
	return hash_u64(hash + 1);
}

int path_shape_hash(const struct paths *paths, uint32_t object, uint64_t *hash)
{
	const struct graph *graph = paths->graph;
	uint32_t at = paths->folded[object], source;
	_cleanup_(buffer_free) struct buffer name = {0};
	const char *kind_name;
	int err = 0;

	*hash = 0;
	for (size_t i = 0; i < PATHS_MAX_STEPS && paths->parent[at] != GRAPH_NONE && !err; i++) {
		enum reference_kind kind = paths->kind[at];

		source = paths->parent[at];
		name.size = 0;
		err = buffer_printf(&name, "%s %u ", graph_type(graph, source)->name, kind);
		if (!err && paths_is_named(paths, at))
			err = reference_name(graph, source, kind, paths->slot[at], &kind_name,
					     &name);
		*hash = text_hash(*hash, &name);
		at = paths->folded[source];
	}
	name.size = 0;
	err = err ?: buffer_printf(&name, "%s ", graph_root_name(graph->root[at]));
	if (!err && graph->root[at] != ROOT_GARBAGE)
		err = root_name(graph, at, 0, &name);
	*hash = text_hash(*hash, &name);
	return err;
}

void path_free(struct path *path)
{
	free(path->steps);
	buffer_free(&path->names);
	buffer_free(&path->text);
	memset(path, 0, sizeof(*path));
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpython/labels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpython/greenlets.h"
#include "runtime/cpython/heap.h"
#include "runtime/cpython/namespace.h"
#include "runtime/cpython/tasks.h"
#include "runtime/cpython/text_state.h"
#include "runtime/heap/object_types.h"
#include "util/error.h"
#include "util/sorted.h"
#include "util/word.h"

#define PIECE          65536u
#define RUNTIME_MAX    (4u << 20)       /* looked at from _PyRuntime on */
#define DATA_MAX       (16u << 20)      /* of variables of the interpreter's file */
#define PARTS_MAX      (LABEL_TEXT / 2) /* of a path */
#define NAMES_MAX      4096u            /* entries of a tuple of names */
#define COUNTS_OFFSET  16u              /* PyVarObject.ob_size, of a tuple */
#define VARIABLE_NAME  16u              /* PyContextVar.var_name, 3.8 to 3.15 with the GIL */
#define VARIABLE_HASH  56u              /* var_hash */
#define VARIABLE_BYTES 64u
#define MEMBER_TYPE    16u /* PyMemberDescrObject.d_common.d_type, 3.8 to 3.15 */
#define MEMBER_NAME    24u
#define MEMBER_PLACE   40u /* d_member */
#define MEMBER_BYTES   48u
#define PLACE_KIND     8u /* PyMemberDef.type, .offset */
#define PLACE_OFFSET   16u
#define KIND_OBJECT    16u /* Py_T_OBJECT_EX: what __slots__ makes */
#define POSITION_MAX   999999u
#define HEX_DIGITS_MAX 99u

/* A word of the path. */
struct path_part {
	const char *text; /* not terminated */
	size_t bytes;     /* without the "*" */
	uint64_t name;    /* address of the str; 0: not found */
	bool is_prefix;
	size_t found; /* of a prefix: how many texts begin so */
};

struct search {
	struct python_runtime *runtime;
	const struct label_spec *spec;
	struct label_found *out;
	__u64 variable_type, function_type; /* 0: not looked for */
	__u64 member_type;                  /* PyMemberDescr_Type */
	struct path_part parts[PARTS_MAX];
	size_t part_count;
	/* the context variable with the longest name that the path begins with, and how many */
	uint64_t variable, variable_hash;
	size_t variable_bytes, variables;
	struct path_part member; /* "_name_" */
};

/* --- what is asked for ------------------------------------------------------------------------ */

/* A step that is a position of an item; -EINVAL: it is none. */
static int position_parse(const char *text, size_t bytes)
{
	unsigned long position = 0;

	if (!bytes || strspn(text, "0123456789") < bytes)
		return -EINVAL;
	for (size_t i = 0; i < bytes; i++)
		if ((position = 10 * position + (unsigned)(text[i] - '0')) > POSITION_MAX)
			return -EINVAL;
	return (int)position;
}

static int path_check(const char *path)
{
	const char *star = strchr(path, '*');

	if (!path[0] || path[0] == '.' || path[strlen(path) - 1] == '.' || strstr(path, ".."))
		return error_set(-EINVAL, "\"%s\" is not NAME[.attribute...]", path);
	for (; star; star = strchr(star + 1, '*'))
		if (star == path || star[-1] == '.' || (star[1] && star[1] != '.'))
			return error_set(-EINVAL, "\"*\" is the end of a key in \"%s\"", path);
	return 0;
}

/*
 * Cuts ":x" or ":032x" off the text. Returns the digits; 0: there is none; -EINVAL. Of FUNCTION:x
 * it is the variable.
 */
static int form_cut(enum abi_label_source source, char *text)
{
	char *colon = strrchr(text, ':'), *end;
	unsigned long digits;

	if (!colon || !colon[1] || colon[1 + strspn(colon + 1, "0123456789")] != 'x')
		return 0;
	digits = strtoul(colon + 1, &end, 10);
	if (end[1] || (source == ABI_LABEL_LOCAL && colon == strchr(text, ':')))
		return 0;
	if (end > colon + 1 && (colon[1] != '0' || digits > HEX_DIGITS_MAX || !digits))
		return error_set(-EINVAL, "\"%s\" is not :x, nor :0Nx with up to %u digits", colon,
				 HEX_DIGITS_MAX);
	*colon = '\0';
	return digits ? (int)digits : 1;
}

int label_spec_parse(enum abi_label_source source, const char *text, struct label_spec *out)
{
	char path[LABEL_TEXT];

	*out = (struct label_spec){.source = source};
	if (strlen(text) >= LABEL_TEXT)
		return error_set(-EINVAL, "it has more than %u bytes", LABEL_TEXT - 1);
	snprintf(out->text, sizeof(out->text), "%s %s",
		 source == ABI_LABEL_CONTEXT ? "context" : "local", text);
	strcpy(path, text);
	int digits = form_cut(source, path);
	if (digits < 0)
		return digits;
	out->hex_digits = (uint16_t)digits;
	const char *colon = strrchr(path, ':');
	if (source == ABI_LABEL_LOCAL && (!colon || colon == path))
		return error_set(-EINVAL, "\"%s\" is not FUNCTION:NAME[.attribute...]", text);
	if (source == ABI_LABEL_LOCAL)
		memcpy(out->function, path, (size_t)(colon - path));
	strcpy(out->path, source == ABI_LABEL_LOCAL ? colon + 1 : path);
	return path_check(out->path);
}

static void path_divide(struct search *search)
{
	const char *at = search->spec->path;

	for (bool more = true; more && search->part_count < PARTS_MAX;) {
		struct path_part *part = &search->parts[search->part_count++];

		*part = (struct path_part){.text = at, .bytes = strcspn(at, ".")};
		at += part->bytes;
		part->is_prefix = at[-1] == '*';
		part->bytes -= part->is_prefix;
		more = *at++ == '.';
	}
	search->member = (struct path_part){.text = "_name_", .bytes = 6};
}

/* --- texts ------------------------------------------------------------------------------------ */

static const struct abi_offsets *abi_of(const struct search *search)
{
	return &search->runtime->target.offsets;
}

/* An ASCII str's text in a copy of its start. NULL: it is none that is that short. */
static const char *text_at(const struct search *search, const uint8_t *object, size_t bytes,
			   size_t *length)
{
	const struct abi_offsets *at = abi_of(search);

	if (bytes < at->unicode_ascii ||
	    u64_at(object + at->object_type) != search->runtime->target.unicode_type)
		return NULL;
	*length = u64_at(object + at->unicode_length);
	if (!text_is_ascii(at, u32_at(object + at->unicode_state)) ||
	    *length > bytes - at->unicode_ascii)
		return NULL;
	return (const char *)object + at->unicode_ascii;
}

/* The text of a str of the process; "" if it is no short ASCII one. */
static void text_read(const struct search *search, uint64_t object, char out[LABEL_TEXT])
{
	uint8_t bytes[LABEL_TEXT + 64];
	const char *text = NULL;
	size_t length = 0, size = sizeof(bytes);

	/* Behind a short text there may be nothing mapped. */
	while (size >= 64 && runtime_read(search->runtime, object, bytes, size))
		size /= 2;
	if (size >= 64)
		text = text_at(search, bytes, size, &length);
	if (!text || length >= LABEL_TEXT)
		length = 0;
	else
		memcpy(out, text, length);
	out[length] = '\0';
}

/* Is the str at the start of this copy the interned name of an attribute, or such a key? */
static void name_look(struct search *search, uint64_t address, const uint8_t *object, size_t bytes)
{
	const struct abi_offsets *at = abi_of(search);
	bool interned;
	const char *text;
	size_t length;

	text = text_at(search, object, bytes, &length);
	if (!text)
		return;
	interned = u32_at(object + at->unicode_state) & ((1u << at->unicode_kind_shift) - 1);
	if (interned && length == search->member.bytes &&
	    !memcmp(text, search->member.text, length))
		search->member.name = address;
	for (struct path_part *part = search->parts + 1; part < search->parts + search->part_count;
	     part++) {
		if (length < part->bytes || memcmp(text, part->text, part->bytes))
			continue;
		if (part->is_prefix ? length == part->bytes : !interned || length != part->bytes)
			continue;
		part->found += part->name != address;
		part->name = address;
	}
}

/* --- variables and functions ------------------------------------------------------------------ */

static void variable_look(struct search *search, uint64_t address, const uint8_t *object)
{
	char name[LABEL_TEXT];
	size_t bytes;

	text_read(search, u64_at(object + VARIABLE_NAME), name);
	bytes = strlen(name);
	if (!bytes || bytes < search->variable_bytes || strncmp(search->spec->path, name, bytes) ||
	    (search->spec->path[bytes] && search->spec->path[bytes] != '.'))
		return;
	search->variables = bytes > search->variable_bytes ? 1 : search->variables + 1;
	search->variable_bytes = bytes;
	search->variable = address;
	search->variable_hash = u64_at(object + VARIABLE_HASH);
}

/* The position of a text in a tuple of the process; -ENOENT. */
static int tuple_find(const struct search *search, uint64_t tuple, const struct path_part *wanted)
{
	const struct python_runtime *runtime = search->runtime;
	char name[LABEL_TEXT];
	uint64_t count, item;

	if (runtime_read_u64(runtime, tuple + COUNTS_OFFSET, &count) || count > NAMES_MAX)
		return -ENOENT;
	for (uint32_t i = 0; i < count; i++) {
		if (runtime_read_u64(runtime,
				     tuple + runtime->offsets->objects.tuple_items + 8ull * i,
				     &item))
			return -ENOENT;
		text_read(search, item, name);
		if (strlen(name) == wanted->bytes && !memcmp(name, wanted->text, wanted->bytes))
			return (int)i;
	}
	return -ENOENT;
}

/* Where the frames of a code object have the variable; -ENOENT: they have none. */
static int slot_find(const struct search *search, uint64_t code)
{
	const struct path_part *variable = &search->parts[0];
	const struct object_offsets *at = &search->runtime->offsets->objects;
	uint64_t names, cells, count;
	int slot;

	if (at->code_slot_names != ABI_NONE)
		return runtime_read_u64(search->runtime, code + at->code_slot_names, &names)
			       ? -ENOENT
			       : tuple_find(search, names, variable);
	/* Variables that inner functions use are in cells behind the others. */
	if (runtime_read_u64(search->runtime, code + at->code_variables, &names) ||
	    runtime_read_u64(search->runtime, code + at->code_cells, &cells) ||
	    runtime_read_u64(search->runtime, names + COUNTS_OFFSET, &count) || count > NAMES_MAX)
		return -ENOENT;
	slot = tuple_find(search, cells, variable);
	return slot >= 0 ? (int)count + slot : tuple_find(search, names, variable);
}

/* Is it the name, or the last part of a qualified one? */
static bool is_function(const char *name, const char *wanted)
{
	size_t bytes = strlen(name), end = strlen(wanted);

	return bytes >= end && !strcmp(name + bytes - end, wanted) &&
	       (bytes == end || name[bytes - end - 1] == '.');
}

/* A place that BPF looks up by the object's address. mark: address of the word that is its mark. */
static void slot_add(struct search *search, uint64_t object, uint32_t step, uint64_t mark,
		     uint64_t slot)
{
	struct label_found *out = search->out;
	struct abi_label_key key = {
		.code = object, .tgid = (uint32_t)search->runtime->pid, .step = step};
	uint64_t word;

	for (size_t i = 0; i < out->code_count; i++)
		if (!memcmp(&out->keys[i], &key, sizeof(key)))
			return;
	if (runtime_read_u64(search->runtime, mark, &word))
		return;
	if (out->code_count == LABEL_CODES) {
		out->dropped++;
		return;
	}
	out->keys[out->code_count] = key;
	out->codes[out->code_count++] = (struct abi_label_code){.mark = word, .slot = slot};
}

static void function_look(struct search *search, const uint8_t *object)
{
	const struct object_offsets *at = &search->runtime->offsets->objects;
	char name[LABEL_TEXT];
	uint64_t code = u64_at(object + at->function_code);

	text_read(search, u64_at(object + at->function_name), name);
	if (!is_function(name, search->spec->function))
		return;
	int slot = slot_find(search, code);
	if (slot >= 0)
		slot_add(search, code, 0, code + (abi_of(search)->code_mark & ~7u), (uint64_t)slot);
}

/* A type's member: a slot, if it holds an object. step: as in struct abi_label_key, of the path. */
static void member_look(struct search *search, const uint8_t *object)
{
	const struct object_offsets *at = &search->runtime->offsets->objects;
	uint64_t type = u64_at(object + MEMBER_TYPE), place = u64_at(object + MEMBER_PLACE), offset,
		 kind;
	char name[LABEL_TEXT];
	size_t bytes;

	text_read(search, u64_at(object + MEMBER_NAME), name);
	bytes = strlen(name);
	for (size_t i = 1; i < search->part_count; i++) {
		const struct path_part *part = &search->parts[i];

		if (part->is_prefix || part->bytes != bytes || memcmp(part->text, name, bytes))
			continue;
		if (!runtime_read_u64(search->runtime, place + PLACE_KIND, &kind) &&
		    (uint32_t)kind == KIND_OBJECT &&
		    !runtime_read_u64(search->runtime, place + PLACE_OFFSET, &offset) && offset)
			slot_add(search, type, (uint32_t)i, type + at->type_dict, offset);
	}
}

static int block_look(uint64_t address, uint64_t bytes, const uint8_t *content, void *context)
{
	struct search *search = context;
	uint32_t head = search->runtime->offsets->heap.gc_head_bytes;
	uint32_t hooks = object_hooks_before(content, (uint32_t)lesser(bytes, HEAP_CONTENT));
	uint64_t type;

	address += hooks;
	content += hooks;
	bytes = lesser(bytes, HEAP_CONTENT) - hooks;
	name_look(search, address, content, bytes);
	if (bytes < head + MEMBER_BYTES)
		return 0;
	const uint8_t *object = content + head;
	type = u64_at(object + abi_of(search)->object_type);
	if (type && type == search->member_type && search->part_count > 1)
		member_look(search, object);
	if (bytes < head + VARIABLE_BYTES)
		return 0;
	if (type && type == search->variable_type)
		variable_look(search, address + head, object);
	else if (type && type == search->function_type &&
		 bytes >= head + search->runtime->offsets->objects.function_name + 8u)
		function_look(search, object);
	return 0;
}

/* --- objects of the interpreter's file -------------------------------------------------------- */

/* Names that the interpreter uses itself are in its variables. */
static int range_look(struct search *search, uint64_t start, uint64_t bytes)
{
	uint8_t *piece = malloc(PIECE + LABEL_TEXT);

	if (!piece)
		return -ENOMEM;
	for (uint64_t at = 0; at < bytes; at += PIECE) {
		uint64_t left = bytes - at;
		size_t size = left < PIECE + LABEL_TEXT ? (size_t)left : PIECE + LABEL_TEXT;

		if (runtime_read(search->runtime, start + at, piece, size))
			continue;
		for (size_t i = 0; i + 64 <= size && i < PIECE; i += 8)
			name_look(search, start + at + i, piece + i, size - i);
	}
	free(piece);
	return 0;
}

static int variables_look(struct search *search)
{
	uint64_t address = 0, bytes = 0;
	int err;

	runtime_data(search->runtime, &address, &bytes);
	err = range_look(search, address, bytes < DATA_MAX ? bytes : DATA_MAX);
	return err ?: range_look(search, search->runtime->target.runtime, RUNTIME_MAX);
}

/* --- the answer ------------------------------------------------------------------------------- */

static int type_find(const struct python_runtime *runtime, const char *name, __u64 *address)
{
	uint64_t found;
	int err = namespace_type(runtime, name, &found);

	if (!err)
		*address = found;
	return err;
}

static enum abi_instance instance_of(uint32_t version)
{
	return version < 0x030b    ? ABI_INSTANCE_DICT
	       : version == 0x030b ? ABI_INSTANCE_VALUES
	       : version == 0x030c ? ABI_INSTANCE_TAGGED
				   : ABI_INSTANCE_INLINE;
}

static void layout_take(const struct python_runtime *runtime, struct abi_label *label)
{
	const struct object_offsets *at = &runtime->offsets->objects;

	label->codes_of = (uint32_t)runtime->pid;
	label->tstate_context = runtime->offsets->tstate_context;
	label->instance = instance_of(runtime->offsets->version);
	label->long_tagged = runtime->offsets->version >= 0x030c;
	label->type_flags = (uint16_t)runtime->offsets->heap.type_flags;
	label->type_dictoffset = at->type_dictoffset;
	label->type_base = at->type_base;
	label->type_dict = at->type_dict;
	label->tuple_items = at->tuple_items;
	label->list_items = at->list_items;
	label->heaptype_keys = at->heaptype_keys;
	label->dict_keys = at->dict_keys;
	label->dict_values = at->dict_values;
	label->values_first = at->values_first;
	label->keys_size = at->keys_size;
	label->keys_index_log2 = at->keys_index_log2;
	label->keys_kind = at->keys_kind;
	label->keys_count = at->keys_count;
	label->keys_indices = at->keys_indices;
	label->frame_locals = at->inner_slots != ABI_NONE ? at->inner_slots : at->frame_locals;
	label->cell_value = at->cell_value;
	label->bytes_data = runtime->target.offsets.bytes_data;
}

/* Takes the variable. *first: the part that is its first attribute. */
static int variable_take(struct search *search, size_t *first)
{
	struct abi_label *label = &search->out->label;

	if (!search->variables)
		return error_set(-EAGAIN, "it has no context variable \"%s\"", search->spec->path);
	if (search->variables > 1)
		return error_set(-EEXIST, "it has %zu context variables of the name \"%.*s\"",
				 search->variables, (int)search->variable_bytes,
				 search->spec->path);
	label->variable = search->variable;
	/* Python/hamt.c, hamt_hash() */
	label->variable_hash =
		(uint32_t)search->variable_hash ^ (uint32_t)(search->variable_hash >> 32);
	if (label->variable_hash == UINT32_MAX)
		label->variable_hash--;
	while (search->parts[*first - 1].text + search->parts[*first - 1].bytes <
	       search->spec->path + search->variable_bytes)
		++*first;
	return 0;
}

static int step_take(struct search *search, const struct path_part *part)
{
	struct abi_label *label = &search->out->label;
	int position = position_parse(part->text, part->bytes);

	if (position >= 0 && !part->is_prefix) {
		label->positions |= (uint8_t)(1u << label->steps);
		label->names[label->steps++] = (uint64_t)position;
		return 0;
	}
	if (!part->name)
		return error_set(-EAGAIN, "no object has an attribute \"%.*s%s\"", (int)part->bytes,
				 part->text, part->is_prefix ? "*" : "");
	if (part->is_prefix && part->found > 1)
		return error_set(-EEXIST, "%zu texts begin with \"%.*s\"", part->found,
				 (int)part->bytes, part->text);
	label->names[label->steps++] = part->name;
	return 0;
}

/* Types' slots were found before it was known which part of the path is the first step. */
static void slots_number(struct label_found *out, uint32_t first)
{
	size_t kept = 0;

	for (size_t i = 0; i < out->code_count; i++) {
		struct abi_label_key key = out->keys[i];

		if (key.step && key.step < first)
			continue;
		if (key.step) {
			out->label.slots |= (uint8_t)(1u << (key.step - first));
			key.step = key.step - first + 1;
		}
		out->keys[kept] = key;
		out->codes[kept++] = out->codes[i];
	}
	out->code_count = kept;
}

/* Takes the steps from a part on. */
static int steps_take(struct search *search, size_t first)
{
	struct label_found *out = search->out;
	int err = 0;

	if (search->part_count - first > ABI_LABEL_STEPS)
		return error_set(-ENOTSUP, "at most %u attributes are followed", ABI_LABEL_STEPS);
	for (size_t i = first; !err && i < search->part_count; i++)
		err = step_take(search, &search->parts[i]);
	out->label.names[ABI_LABEL_STEPS] = search->member.name;
	slots_number(out, (uint32_t)first);
	return err;
}

static int objects_look(struct search *search)
{
	struct heap_walk walk;
	int err = variables_look(search);

	err = err ?: heap_read(search->runtime, block_look, search, &walk);
	return err == -ENODATA
		       ? error_set(-ENOTSUP, "its small objects are not in pymalloc's memory")
		       : err;
}

static bool has_function(const struct label_found *found)
{
	for (size_t i = 0; i < found->code_count; i++)
		if (!found->keys[i].step)
			return true;
	return false;
}

static int label_take(struct search *search)
{
	size_t first = 1;
	int err = 0;

	if (search->spec->source == ABI_LABEL_CONTEXT)
		err = variable_take(search, &first);
	else if (!has_function(search->out))
		err = error_set(-EAGAIN, "it has no function \"%s\" with a variable of that name",
				search->spec->function);
	return err ?: steps_take(search, first);
}

static int types_find(struct search *search)
{
	const struct python_runtime *runtime = search->runtime;
	struct abi_target *target = &search->runtime->target;
	struct abi_label *label = &search->out->label;
	int err = type_find(runtime, "PyUnicode_Type", &target->unicode_type)
			  ?: type_find(runtime, "PyLong_Type", &target->long_type)
			  ?: type_find(runtime, "PyBool_Type", &label->bool_type)
			  ?: type_find(runtime, "PyCell_Type", &label->cell_type)
			  ?: type_find(runtime, "PyMemberDescr_Type", &search->member_type)
			  ?: type_find(runtime, "_Py_EllipsisObject", &label->ellipsis)
			  ?: type_find(runtime, "_Py_NoneStruct", &label->none);

	if (err)
		return err;
	if (search->spec->source == ABI_LABEL_CONTEXT)
		target->offsets.tstate_task = label->tstate_context;
	return search->spec->source == ABI_LABEL_CONTEXT
		       ? type_find(runtime, "PyContextVar_Type", &search->variable_type)
		       : type_find(runtime, "PyFunction_Type", &search->function_type);
}

bool labels_reads_heap(const struct label_spec *spec)
{
	return spec->source == ABI_LABEL_CONTEXT || spec->source == ABI_LABEL_LOCAL;
}

int labels_find(struct python_runtime *runtime, const struct label_spec *spec,
		struct label_found *out)
{
	*out = (struct label_found){0};
	if (!runtime->offsets->tstate_context)
		return error_set(-ENOTSUP, "what --by asks for is read of builds with "
					   "the GIL only");
	struct search *search = calloc(1, sizeof(*search));
	if (!search)
		return -ENOMEM;
	*search = (struct search){.runtime = runtime, .spec = spec, .out = out};
	path_divide(search);
	layout_take(runtime, &out->label);
	out->label.hex_digits = spec->hex_digits;
	int err = types_find(search);
	if (!err && spec->source == ABI_LABEL_TASK)
		err = tasks_place(runtime, &out->label);
	else if (!err && spec->source == ABI_LABEL_GREENLET)
		err = greenlets_place(runtime, out);
	else if (!err)
		err = objects_look(search) ?: label_take(search);
	free(search);
	return err;
}

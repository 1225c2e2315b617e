/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The value of a context variable, or of a local variable, with which the running thread makes a
 * block, its greenlet, or before 3.14 its asyncio task (abi/label.h). The thread holds the GIL, or
 * has what it reads referred to: a context and a frame of its own. What it reads may be anything
 * nevertheless: a read that fails ends the search.
 */
#pragma once

#include "abi/label.h"
#include "python/stack.h"
#include "python/task.h"

#define TREE_SHIFT    5            /* bits of the hash in each level of a context's tree */
#define TREE_LEVELS   8            /* the last one is a list of variables with one hash */
#define TREE_EQUALS   16           /* looked at in that list */
#define KEYS_LIMIT    256          /* looked at in a table of keys */
#define TYPE_MANAGED  (1ull << 4)  /* Py_TPFLAGS_MANAGED_DICT */
#define TYPE_INLINE   (1ull << 2)  /* Py_TPFLAGS_INLINE_VALUES */
#define TYPE_INT      (1ull << 24) /* Py_TPFLAGS_LONG_SUBCLASS, and so on */
#define TYPE_LIST     (1ull << 25)
#define TYPE_TUPLE    (1ull << 26)
#define TYPE_BYTES    (1ull << 27)
#define TYPE_STR      (1ull << 28)
#define TYPE_DICT     (1ull << 29)
#define TYPE_BASES    16 /* looked at for a slot */
#define META_BASES    4  /* looked at for an enum's metaclass */
#define GENERAL_ENTRY 24 /* {hash, key, value} */
#define TEXT_ENTRY    16 /* {key, value} */
/* In greenlet's state of a thread; the main one is at 0. */
#define GREENLET_CURRENT 8

/* PyContext, PyHamtObject and nodes of its tree: the same in 3.8 to 3.15 (Python/hamt.c). */
#define CONTEXT_VARS 24
#define TREE_ROOT    16
#define NODE_SIZE    16 /* of a bitmap's and a list's array, in words */
#define NODE_BITMAP  24
#define NODE_ITEMS   32 /* of a bitmap and of a list: {key or NULL, value or node} */
#define NODE_NODES   16 /* of an array of 32 nodes */

/* The first eight bytes of types' names: "EnumMeta" (3.10), "EnumType", "UUID" and its end. */
#define NAME_ENUM_META 0x6174654d6d756e45ull
#define NAME_ENUM_TYPE 0x657079546d756e45ull
#define NAME_UUID      0x44495555ull
#define NAME_UUID_MASK 0xffffffffffull

/* Letters 5 to 8 of "hamt_bitmap_node", "hamt_array_node", "hamt_collision_node". */
#define NODE_IS_BITMAP 0x6d746962u
#define NODE_IS_ARRAY  0x61727261u
#define NODE_IS_LIST   0x6c6c6f63u

/* Eight bytes of a type's name. */
static __always_inline __u64 type_name(const struct abi_offsets *offsets, __u64 type, __u32 from)
{
	/* tp_name follows the type's own header */
	return user_u64_called(user_u64_called(type + offsets->object_type + 16) + from);
}

static __always_inline __u32 node_kind(const struct abi_offsets *offsets, __u64 node)
{
	return type_name(offsets, user_u64_called(node + offsets->object_type), 5);
}

/*
 * What a search knows, in thread->code: the walk, which uses that, is over. A function that kept it
 * on its stack would have a private stack (tools/verifier.c).
 */
struct label_search {
	__u64 variable, node, value; /* of the tree */
	__u64 entries, name;         /* of the table of keys: the first entry's key */
	__u64 dict, values, keys;    /* of the instance */
	__u64 type, slot;            /* a type that may have a slot, and its offset */
	struct label_hold hold;      /* of the step */
	__u32 hash, entry_bytes, count, found;
	__u32 is_held; /* the step's value will be where `hold` says */
};

_Static_assert(sizeof(struct label_search) <= sizeof(((struct thread_state *)0)->code), "fits");

static __always_inline struct label_search *search_of(struct thread_state *thread)
{
	return (void *)thread->code;
}

/* Contexts of loops: they have to be on the stack. */
struct label_loop {
	struct thread_state *thread;
};

struct slot_loop {
	struct thread_state *thread;
	struct abi_label *label;
	__u32 step;
};

/* A node that is a bitmap. */
__noinline int bitmap_step(struct label_search *search, __u32 part)
{
	__u64 item, key;
	__u32 bitmap;

	if (!search)
		return 1;
	bitmap = user_u64_called(search->node + NODE_BITMAP);
	if (!(bitmap >> (part & 31) & 1))
		return 1;
	item = __builtin_popcount(bitmap & ((1u << (part & 31)) - 1));
	item = search->node + NODE_ITEMS + 16 * item;
	key = user_u64_called(item);
	item = user_u64_called(item + 8);
	if (key)
		search->value = key == search->variable ? item : 0;
	search->node = item;
	return key || !item;
}

/* A node that is a list of variables with one hash. */
__noinline int list_step(struct label_search *search)
{
	__u64 item;
	__u32 count, i;

	if (!search)
		return 1;
	item = search->node + NODE_ITEMS;
	count = user_u64_called(search->node + NODE_SIZE);
	for (i = 0; i < TREE_EQUALS && 2 * i < count; i++)
		if (user_u64_called(item + 16ull * i) == search->variable)
			search->value = user_u64_called(item + 16ull * i + 8);
	return 1;
}

/* A level of the tree. 0: search->node is the next one. */
static __noinline long tree_step(__u32 turn UNUSED, void *context)
{
	struct thread_state *thread = ((struct label_loop *)context)->thread;
	struct label_search *search = search_of(thread);
	__u32 kind = node_kind(&thread->target.offsets, search->node), part;

	part = search->hash & ((1u << TREE_SHIFT) - 1);
	search->hash >>= TREE_SHIFT;
	if (kind == NODE_IS_BITMAP)
		return bitmap_step(search, part) != 0;
	if (kind == NODE_IS_LIST)
		return list_step(search) != 0;
	if (kind != NODE_IS_ARRAY)
		return 1;
	search->node = user_u64_called(search->node + NODE_NODES + 8ull * part);
	return !search->node;
}

/*
 * The variable's value in the thread's current context; 0: it has none there. A tree never changes:
 * a variable that is set is in a new one. stays: no block was made meanwhile, so a tree at the
 * address of the one before is that one.
 */
__noinline __u64 context_value(struct thread_state *thread, struct abi_label *label, int stays)
{
	struct label_loop loop = {thread};
	struct label_search *search;
	__u64 tree;

	if (!thread || !label)
		return 0;
	thread->label_tree = stays ? thread->label_tree : UNREADABLE;
	if (!thread->block.tstate || !label->variable) {
		thread->label_tree = UNREADABLE;
		return 0;
	}
	tree = user_u64_called(thread->block.tstate + label->tstate_context);
	if (tree)
		tree = user_u64_called(tree + CONTEXT_VARS);
	if (tree == thread->label_tree)
		return thread->label_found;
	search = search_of(thread);
	search->variable = label->variable;
	search->hash = label->variable_hash;
	search->value = 0;
	search->node = tree ? user_u64_called(tree + TREE_ROOT) : 0;
	if (search->node)
		loop_run(TREE_LEVELS, tree_step, &loop);
	thread->label_tree = tree;
	thread->label_found = search->value;
	return search->value;
}

__noinline int path_stays(struct thread_state *thread, __u64 object);
__noinline int greenlet_stays(struct thread_state *thread);

/*
 * Is the label that of the thread's block before, by way of the variable in the tree that it was in
 * then? Of most blocks: so it is asked first, without the label, and inline as task_note(). No
 * other block was made since then.
 */
static __always_inline int context_stays(struct thread_state *thread)
{
	const struct abi_offsets *offsets = &thread->target.offsets;
	__u64 tree;

	if (!thread->block.tstate || !offsets->tstate_task)
		return 0;
	tree = user_u64(thread->block.tstate + offsets->tstate_task);
	return tree && user_u64(tree + CONTEXT_VARS) == thread->label_tree &&
	       (thread->task_address == thread->label_found ||
		path_stays(thread, thread->label_found));
}

/* The word of a frame where a local variable is. */
static __always_inline __u64 local_word(struct thread_state *thread, __u64 at)
{
	__u64 word = user_u64(at);

	return thread->target.offsets.frame_code_tagged ? word & ~7ull : word;
}

/* The same of a local variable. */
static __always_inline int local_stays(struct thread_state *thread)
{
	__u64 frame = thread->label_frame, words = thread->label_words, value;

	if (!thread->block.tstate || !frame || words == LABEL_FAR)
		return 0;
	value = local_word(thread, frame + 8 * (words & ~LABEL_PATH));
	if (words & LABEL_PATH)
		return path_stays(thread, value);
	return value && value == thread->task_address;
}

/* No other block was made since the thread's last one. Is it known that the label is still so? */
static __always_inline int label_stays(struct thread_state *thread)
{
	if (label_is(ABI_LABEL_CONTEXT))
		return context_stays(thread);
	if (label_is(ABI_LABEL_GREENLET))
		return greenlet_stays(thread);
	return label_is(ABI_LABEL_LOCAL) && local_stays(thread);
}

/*
 * The variable's value in the nearest frame of the function; 0: there is none. stays: the object
 * that was reported last, which is no cell, is still there.
 */
__noinline __u64 local_value(struct thread_state *thread, struct abi_label *label, int stays)
{
	struct abi_label_code *code;
	__u64 frame, at, value;

	if (!thread || !label || !thread->block.tstate || !thread->label_frame)
		return 0;
	frame = thread->label_frame;
	at = frame + 8 * (thread->label_words & ~LABEL_PATH);
	if (thread->label_words == LABEL_FAR) {
		code = label_code_find(label->codes_of, frame_code(&thread->target.offsets, frame));
		if (!code)
			return 0;
		at = frame + label->frame_locals + 8 * code->slot;
	}
	value = local_word(thread, at);
	if (label->cell_type && !(stays && value == thread->task_address) &&
	    user_u64_called(value + thread->target.offsets.object_type) == label->cell_type)
		value = user_u64_called(value + label->cell_value);
	return value;
}

static __noinline long keys_step(__u32 turn, void *context)
{
	struct label_search *search = search_of(((struct label_loop *)context)->thread);

	if (turn >= search->count)
		return 1;
	search->found = turn;
	if (user_u64(search->entries + (__u64)turn * search->entry_bytes) == search->name)
		return 1;
	search->found = KEYS_LIMIT;
	return 0;
}

/* A byte of the word at keys_size. */
static __always_inline __u32 head_byte(const struct abi_label *label, __u64 head, __u32 offset)
{
	return head >> (8 * (offset - label->keys_size) & 63) & 0xff;
}

/* Sets search->entries and what goes with it, of search->keys. */
__noinline int keys_place(struct label_search *search, struct abi_label *label)
{
	__u64 head, size;

	if (!search || !label)
		return 0;
	/* all that tells where the entries are */
	head = size = user_u64(search->keys + label->keys_size);
	search->entry_bytes = GENERAL_ENTRY;
	search->entries = search->keys + label->keys_indices + 8;
	if (label->keys_kind == ABI_NONE) {
		search->entries += size * (size <= 0xff         ? 1
					   : size <= 0xffff     ? 2
					   : size <= 0xffffffff ? 4
								: 8);
	} else {
		size = 1ull << (head & 63);
		search->entries += 1ull << (head_byte(label, head, label->keys_index_log2) & 63);
		if (head_byte(label, head, label->keys_kind)) {
			search->entry_bytes = TEXT_ENTRY;
			search->entries -= 8;
		}
	}
	/* a table is never fuller, and what is not used of it is zero */
	search->count = size < 2 * KEYS_LIMIT ? size * 2 / 3 : 2 * KEYS_LIMIT;
	return 0;
}

/* The position of search->name among the keys that are placed; KEYS_LIMIT: it is not there. */
static __always_inline __u32 key_search(struct thread_state *thread)
{
	struct label_loop loop = {thread};

	search_of(thread)->found = KEYS_LIMIT;
	loop_run(KEYS_LIMIT, keys_step, &loop);
	return search_of(thread)->found;
}

/* The position of the step's name among search->keys; KEYS_LIMIT: it is not there. */
__noinline __u32 key_find(struct thread_state *thread, struct abi_label *label, __u32 step)
{
	struct label_search *search;
	__u32 at;

	if (!thread || !label || step >= ABI_LABEL_NAMES)
		return KEYS_LIMIT;
	search = search_of(thread);
	keys_place(search, label);
	search->name = label->names[step];
	at = *(volatile __u32 *)&label->hint_at[step];
	if (*(volatile __u64 *)&label->hint_keys[step] == search->keys && at < search->count &&
	    user_u64_called(search->entries + (__u64)at * search->entry_bytes) == search->name)
		return at;
	at = key_search(thread);
	if (at < KEYS_LIMIT) {
		label->hint_keys[step] = search->keys;
		label->hint_at[step] = at;
	}
	return at;
}

/* The value of a dict's entry, as it was found; 0: there is none. */
static __always_inline __u64 entry_value(const struct label_search *search, __u32 at)
{
	return at < KEYS_LIMIT
		       ? user_u64_called(search->entries + (__u64)at * search->entry_bytes + 8)
		       : 0;
}

/*
 * Notes the versions of the dict of the thread's state and of that of the running tasks: numbers
 * that no two states of dicts have alike, in the word before dict_keys. 1: they are those of the
 * thread's last block.
 */
__noinline int loop_stays(struct thread_state *thread, struct abi_label *label, __u64 dict)
{
	__u64 seen;
	int stays;

	if (!thread || !label)
		return 0;
	seen = hash_word(hash_start(user_u64_called(dict + label->dict_keys - 8)),
			 user_u64_called(label->variable + label->dict_keys - 8));
	stays = seen == thread->loop_seen && thread->task_address != UNREADABLE;
	thread->loop_seen = seen;
	return stays;
}

/* The running loop of a thread whose state has this dict; 0: it has none. */
__noinline __u64 running_loop(struct thread_state *thread, struct abi_label *label, __u64 dict)
{
	struct label_search *search;
	__u64 loop = 0;

	if (!thread || !label)
		return 0;
	search = search_of(thread);
	search->keys = user_u64_called(dict + label->dict_keys);
	if (search->keys)
		loop = entry_value(search, key_find(thread, label, 0));
	return loop && label->loop_held ? user_u64_called(loop + label->loop_held) : loop;
}

/* A loop's task; 0: it runs none; UNREADABLE: there are more loops than are looked at. */
__noinline __u64 task_of_loop(struct thread_state *thread, struct abi_label *label, __u64 loop)
{
	struct label_search *search;
	__u32 at;

	if (!thread || !label)
		return 0;
	search = search_of(thread);
	search->keys = user_u64_called(label->variable + label->dict_keys);
	if (!search->keys)
		return 0;
	keys_place(search, label);
	search->name = loop;
	at = thread->loop_seen;
	if (label->names[0] || at >= search->count ||
	    user_u64_called(search->entries + (__u64)at * search->entry_bytes) != loop)
		at = key_search(thread);
	if (at >= KEYS_LIMIT)
		return user_u64_called(search->keys + label->keys_count) > KEYS_LIMIT ? UNREADABLE
										      : 0;
	if (!label->names[0])
		thread->loop_seen = at;
	return entry_value(search, at);
}

/* The task of the thread's running loop, before CPython 3.14; as task_of_loop(). */
__noinline __u64 loop_task(struct thread_state *thread)
{
	struct abi_label *label;
	__u64 loop;
	__u32 tgid;

	if (!thread || !thread->block.tstate)
		return 0;
	tgid = thread->ids.tgid;
	label = bpf_map_lookup_elem(&labels, &tgid);
	if (!label)
		return 0;
	if (label->variable == ABI_LABEL_UNKNOWN)
		return UNREADABLE;
	loop = user_u64_called(thread->block.tstate + label->tstate_dict);
	if (loop && label->names[0]) {
		if (loop_stays(thread, label, loop))
			return thread->task_address;
		loop = running_loop(thread, label, loop);
	}
	return loop && loop != label->none ? task_of_loop(thread, label, loop) : 0;
}

/* Objects of 3.13 and later have values behind them, or a dict. */
__noinline int inline_find(struct thread_state *thread, __u64 object, __u64 type, __u64 flags)
{
	__u64 values;

	if (!thread)
		return 0;
	/* tp_basicsize comes after the type's own header and its name */
	values = object + user_u64(type + thread->target.offsets.object_type + 24);
	if (flags & TYPE_INLINE && (user_u64(values) >> 24 & 0xff) == 1)
		search_of(thread)->values = values;
	return 0;
}

/* A dict that lies behind items, as of an int's subclass, where offset counts from the end. */
__noinline __u64 dict_offset(struct thread_state *thread, __u64 object, __u64 type, __u64 offset)
{
	__u64 at, count;

	if (!thread)
		return 0;
	at = thread->target.offsets.object_type;
	count = user_pointer(object + at + 8); /* ob_size, of an int with its sign */
	if ((__s64)count < 0)
		count = -count;
	at += type + 24; /* tp_basicsize, tp_itemsize */
	return ((user_u64(at) + count * user_u64(at + 8) + 7) & ~7ull) + offset;
}

static __always_inline void hold_check(struct label_search *search, __u64 at, __u64 word)
{
	search->hold.check_at = at;
	search->hold.check = word;
}

/* A dict's version: no two states of dicts have alike ones. */
static __always_inline void hold_version(struct label_search *search, __u64 at)
{
	search->hold.version_at = at;
	search->hold.version = user_u64_called(at);
	search->is_held = search->hold.version != 0;
}

/* Where an object has its attributes, or a dict its items: dict, values and keys. */
__noinline int instance_find(struct thread_state *thread, struct abi_label *label, __u64 object)
{
	struct label_search *search;
	__u64 type, flags, word;

	if (!thread || !label)
		return 0;
	search = search_of(thread);
	type = user_u64_called(object + thread->target.offsets.object_type);
	flags = user_u64_called(type + label->type_flags);
	search->dict = search->values = search->keys = 0;
	if (flags & TYPE_DICT) {
		search->dict = object;
	} else if (label->instance == ABI_INSTANCE_DICT || !(flags & TYPE_MANAGED)) {
		word = user_u64_called(type + label->type_dictoffset);
		if ((__s64)word < 0)
			word = dict_offset(thread, object, type, word);
		if ((__s64)word > 0)
			search->dict = user_u64_called(object + word);
		hold_check(search, object + word, search->dict);
		search->is_held = (__s64)word > 0 && !search->dict;
	} else if (label->instance == ABI_INSTANCE_VALUES) {
		search->values = user_u64_called(object - 32);
		search->dict = user_u64_called(object - 24);
		if (search->values)
			hold_check(search, object - 32, search->values);
		else
			hold_check(search, object - 24, search->dict);
	} else {
		word = user_u64_called(object - 24);
		if (label->instance == ABI_INSTANCE_INLINE)
			inline_find(thread, object, type, flags);
		else if (word & 1)
			search->values = word + 1;
		if (!(word & 1))
			search->dict = word;
		/* Values behind the object stay there when they are no longer used. */
		if (label->instance == ABI_INSTANCE_INLINE)
			word = user_u64_called(search->values);
		hold_check(search,
			   label->instance == ABI_INSTANCE_INLINE ? search->values : object - 24,
			   word);
	}
	if (search->values) {
		search->is_held = 1;
		search->keys = user_u64_called(type + label->heaptype_keys);
	} else if (search->dict) {
		search->keys = user_u64_called(search->dict + label->dict_keys);
		search->values = user_u64_called(search->dict + label->dict_values);
		/* Later dicts have no version. */
		if (label->instance != ABI_INSTANCE_INLINE)
			hold_version(search, search->dict + label->dict_keys - 8);
	}
	return 0;
}

/* Does the type have a slot of the step's name? 0: its base may. */
static __noinline long slot_step(__u32 turn UNUSED, void *context)
{
	struct slot_loop *loop = context;
	struct label_search *search = search_of(loop->thread);
	struct abi_label_code *found;

	found = label_slot_find(loop->label->codes_of, search->type, loop->step + 1);
	if (found && found->mark == user_u64_called(search->type + loop->label->type_dict)) {
		search->slot = found->slot;
		return 1;
	}
	search->type = user_u64_called(search->type + loop->label->type_base);
	return !search->type;
}

/* Where the object has the step's slot; 0: its type has none. */
__noinline __u64 slot_find(struct thread_state *thread, struct abi_label *label, __u32 step,
			   __u64 object)
{
	struct slot_loop loop = {.thread = thread, .label = label, .step = step};
	struct label_search *search;

	if (!thread || !label)
		return 0;
	search = search_of(thread);
	search->type = user_u64_called(object + thread->target.offsets.object_type);
	search->slot = 0;
	loop_run(TYPE_BASES, slot_step, &loop);
	return search->slot ? object + search->slot : 0;
}

/* An item of a tuple or a list; 0: it has none at that position, or is neither. */
__noinline __u64 item_value(struct thread_state *thread, struct abi_label *label, __u64 position,
			    __u64 object)
{
	__u64 at, flags;

	if (!thread || !label)
		return 0;
	at = object + thread->target.offsets.object_type;
	flags = user_u64_called(user_u64_called(at) + label->type_flags);
	/* ob_size follows the header */
	if (!(flags & (TYPE_TUPLE | TYPE_LIST)) || position >= user_u64_called(at + 8))
		return 0;
	if (flags & TYPE_LIST)
		return user_u64_called(user_u64_called(object + label->list_items) + 8 * position);
	at = object + label->tuple_items + 8 * position;
	search_of(thread)->hold.value_at = at;
	search_of(thread)->is_held = 1;
	return user_u64_called(at);
}

/* What the instance's dict, or a dict, has of that step's name; 0: nothing. */
__noinline __u64 named_value(struct thread_state *thread, struct abi_label *label, __u32 step,
			     __u64 object)
{
	struct label_search *search;
	__u64 value_at;
	__u32 at;

	if (!thread || !label || step >= ABI_LABEL_NAMES || !label->names[step])
		return 0;
	search = search_of(thread);
	instance_find(thread, label, object);
	if (!search->keys)
		return 0;
	at = key_find(thread, label, step);
	if (at >= KEYS_LIMIT) {
		/* Another instance may bring the key. */
		if (!search->hold.version_at)
			search->is_held = 0;
		return 0;
	}
	value_at = search->values + 8ull * at;
	if (!search->values)
		value_at = search->entries + (__u64)at * search->entry_bytes + 8;
	else if (label->values_first != ABI_NONE)
		value_at += label->values_first;
	search->hold.value_at = value_at;
	return user_u64_called(value_at);
}

/*
 * The object's attribute, a dict's item of that step's name, or the item at its position; 0: it has
 * none.
 */
__noinline __u64 attribute_value(struct thread_state *thread, struct abi_label *label, __u32 step,
				 __u64 object)
{
	struct label_search *search;
	__u64 at;

	if (!thread || !label || step >= ABI_LABEL_NAMES)
		return 0;
	search = search_of(thread);
	search->hold.value_at = search->hold.check_at = search->hold.version_at = 0;
	search->is_held = 0;
	if (label->positions >> step & 1)
		return item_value(thread, label, label->names[step], object);
	at = label->slots >> step & 1 ? slot_find(thread, label, step, object) : 0;
	if (!at)
		return named_value(thread, label, step, object);
	search->hold.value_at = at;
	search->is_held = 1;
	return user_u64_called(at);
}

/* What the label's path leads to from the object that it begins with, or 0. */
__noinline __u64 path_value(struct thread_state *thread, struct abi_label *label, __u64 object)
{
	struct more_codes *more = codes_get((void *)bpf_get_current_task_btf());
	struct label_search *search;
	__u64 value;
	__u32 i;

	if (!thread || !label)
		return 0;
	search = search_of(thread);
	for (i = 0; i < ABI_LABEL_STEPS && i < label->steps; i++) {
		value = object ? attribute_value(thread, label, i, object) : 0;
		search->hold.object = search->is_held ? object : 0;
		if (more)
			more->label_holds[i] = search->hold;
		object = value;
	}
	if (more)
		more->label_steps = i;
	return object;
}

static __always_inline int hold_is_valid(const struct label_hold *hold, __u64 object)
{
	return hold->object == object &&
	       (!hold->check_at || user_u64(hold->check_at) == hold->check) &&
	       (!hold->version_at || user_u64(hold->version_at) == hold->version);
}

/*
 * Does the path lead from this object to the label of the thread's last block? No other block was
 * made since: so an object at the address of one of then is that one, and has the attribute where
 * it had it.
 */
__noinline int path_stays(struct thread_state *thread, __u64 object)
{
	struct more_codes *more = codes_find((void *)bpf_get_current_task_btf());
	struct label_hold *hold;
	__u32 i;

	if (!thread || !more)
		return 0;
	for (i = 0; i < ABI_LABEL_STEPS && i < more->label_steps; i++) {
		hold = &more->label_holds[i];
		if (!object)
			break;
		if (!hold_is_valid(hold, object))
			return 0;
		object = hold->value_at ? user_u64(hold->value_at) : 0;
	}
	return i && object == thread->task_address;
}

/*
 * The same of the thread's greenlet. One without a name runs the function that it did, if the code
 * object is the same.
 */
__noinline int greenlet_stays(struct thread_state *thread)
{
	struct more_codes *more = codes_find((void *)bpf_get_current_task_btf());
	__u64 current, value;

	if (!thread || !more || !more->label_holds[2].object)
		return 0;
	current = user_u64(more->label_holds[2].object + GREENLET_CURRENT);
	if (current == more->label_holds[2].value_at)
		return !thread->task_address;
	if (!current || !hold_is_valid(&more->label_holds[0], current))
		return 0;
	value = more->label_holds[0].value_at;
	value = value ? user_u64(value) : 0;
	if (value)
		return value == thread->task_address;
	return thread->block.tstate && thread->label_frame && !thread->next_frame &&
	       thread->label_words == more->label_holds[1].object;
}

/*
 * The name of the thread's greenlet, if its instance has one, or of the function that it runs: that
 * of its outermost frame. 0: it is the thread's main one, or there are none; UNREADABLE.
 */
__noinline __u64 greenlet_value(struct thread_state *thread, struct abi_label *label)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct more_codes *more = codes_get(task);
	__u64 state, current, main, value;

	if (!thread || !label || !label->variable_hash)
		return 0;
	if (more)
		more->label_holds[2].object = 0;
	state = tls_block(THREAD_POINTER(task), label->variable_hash);
	if (state)
		state = user_u64_called(state + label->variable);
	/* 1: the thread has not used greenlets yet */
	if (state <= 1)
		return 0;
	current = user_u64_called(state + GREENLET_CURRENT);
	main = user_u64_called(state);
	if (more) {
		more->label_holds[2].object = main ? state : 0;
		more->label_holds[2].value_at = main;
		more->label_holds[0].object = more->label_holds[1].object = 0;
	}
	if (!current || current == main)
		return 0;
	value = attribute_value(thread, label, 0, current);
	if (more && search_of(thread)->is_held) {
		more->label_holds[0] = search_of(thread)->hold;
		more->label_holds[0].object = current;
	}
	if (value)
		return value;
	value = thread->block.tstate ? frame_outermost(thread, label->codes_of) : 0;
	if (!value)
		return UNREADABLE;
	value = frame_code(&thread->target.offsets, value);
	if (more)
		more->label_holds[1].object = value;
	return user_u64_called(value + thread->target.offsets.code_qualname);
}

__noinline __u64 loop_task_name(struct thread_state *thread, __u64 task)
{
	struct abi_label *label;
	__u32 tgid;

	if (!thread)
		return 0;
	tgid = thread->ids.tgid;
	label = bpf_map_lookup_elem(&labels, &tgid);
	return label ? attribute_value(thread, label, 1, task) : 0;
}

/* Is it the type of exact ints, or of exact strs? */
static __always_inline int type_is_plain(const struct abi_target *target, __u64 type)
{
	return type && (type == target->long_type || type == target->unicode_type);
}

/* Is the class an enum? Its own class is EnumType, or derived from it. */
__noinline int is_enum(struct thread_state *thread, struct abi_label *label, __u64 type)
{
	const struct abi_offsets *offsets;
	__u64 meta, name;
	__u32 i;

	if (!thread || !label)
		return 0;
	offsets = &thread->target.offsets;
	meta = user_u64_called(type + offsets->object_type);
	for (i = 0; i < META_BASES && meta; i++) {
		name = type_name(offsets, meta, 0);
		if (name == NAME_ENUM_META || name == NAME_ENUM_TYPE)
			return 1;
		meta = user_u64_called(meta + label->type_base);
	}
	return 0;
}

/*
 * An int of at most 128 bits: fills thread->task, and the upper half of a wide one in
 * thread->content. Returns that half.
 */
__noinline __u64 integer_read(struct thread_state *thread, struct abi_label *label, __u64 object)
{
	__u64 at, size, count, low, high, last;
	int is_negative;

	if (!thread || !label)
		return 0;
	at = object + thread->target.offsets.object_type + 8;
	size = user_pointer(at); /* ob_size of -1 is no error */
	is_negative = label->long_tagged ? (size & 3) == 2 : (__s64)size < 0;
	count = label->long_tagged ? ((size & 3) == 1 ? 0 : size >> LONG_DIGITS)
				   : (is_negative ? -size : size);
	low = count ? user_u64_called(at + 8) : 0;
	if (count == 1)
		low = (__u32)low;
	high = count > 2 ? user_u64_called(at + 16) : 0;
	if (count == 3)
		high = (__u32)high;
	last = count > 4 ? (__u32)user_u64_called(at + 24) : 0;
	low = (__u32)low | low >> 32 << DIGIT_BITS | high << 2 * DIGIT_BITS;
	high = (__u32)high >> 4 | high >> 32 << 26 | last << 56;
	thread->task.how = count > 5 || last >> 8 ? EVENT_TASK_UNKNOWN : EVENT_TASK_WIDE;
	thread->task.kind = label->hex_digits;
	thread->task.number = low;
	thread->task.bytes = is_negative;
	thread->content[0] = high;
	if (high || low >> 63)
		return high;
	if (thread->task.how == EVENT_TASK_WIDE)
		thread->task.how = EVENT_TASK_INT;
	thread->task.bytes = 0;
	if (is_negative)
		thread->task.number = -low;
	return 0;
}

/* A uuid.UUID has its int behind its header. 0: it is none. */
__noinline __u64 uuid_number(struct thread_state *thread, struct abi_label *label, __u64 object)
{
	const struct abi_offsets *offsets;
	__u64 type, number;

	if (!thread || !label)
		return 0;
	offsets = &thread->target.offsets;
	type = user_u64_called(object + offsets->object_type);
	if ((type_name(offsets, type, 0) & NAME_UUID_MASK) != NAME_UUID)
		return 0;
	number = user_u64_called(object + offsets->object_type + 8);
	type = user_u64_called(number + offsets->object_type);
	/* else another class of that name */
	return user_u64_called(type + label->type_flags) & TYPE_INT ? number : 0;
}

/*
 * The text of a str or a bytes object, as text_find(). An instance of a subclass of str has it
 * somewhere else.
 */
__noinline __u64 content_find(struct thread_state *thread, struct abi_label *label, __u64 object,
			      __u64 flags)
{
	const struct abi_offsets *offsets;
	__u64 *data;
	__u64 bytes;
	__u32 state;

	if (!thread || !label)
		return 0;
	offsets = &thread->target.offsets;
	data = &search_of(thread)->value;
	if (flags & TYPE_BYTES) {
		*data = object + label->bytes_data;
		thread->task.kind = 1;
		return user_u64_called(object + offsets->bytes_size);
	}
	bytes = text_find(offsets, object, data, &thread->task.kind);
	if (*data)
		return bytes;
	state = user_u64_called(object + offsets->unicode_state) >>
		(offsets->unicode_kind_shift & 31);
	bytes = user_u64_called(object + offsets->unicode_length);
	if (state >> 3 & 1 || bytes > CONTENT_MAX)
		return 0;
	state &= 7;
	if (state != 1 && state != 2 && state != 4)
		return 0;
	thread->task.kind = state;
	*data = user_u64_called(object + offsets->unicode_compact);
	return bytes * state;
}

/* A UUID's int has been read. */
static __always_inline void uuid_take(struct task_name *task, __u64 type)
{
	if (task->how == EVENT_TASK_INT ? (__s64)task->number >= 0
					: task->how == EVENT_TASK_WIDE && !task->bytes)
		task->how = EVENT_TASK_UUID;
	else
		*task = (struct task_name){.number = type, .how = EVENT_TASK_OTHER};
}

/*
 * Reads the value, of that type, into thread->task, and what of it is no word into
 * thread->content. Returns an id of it, which is not 0.
 */
__noinline __u64 label_value_read(struct thread_state *thread, struct abi_label *label,
				  __u64 object, __u64 type)
{
	__u64 flags, bytes, id = 0;
	struct task_name *task;

	if (!thread || !label)
		return 1;
	task = &thread->task;
	if (type_is_plain(&thread->target, type))
		flags = type == thread->target.long_type ? TYPE_INT : TYPE_STR;
	else
		flags = user_u64_called(type + label->type_flags);
	*task = (struct task_name){.number = type,
				   .how = type ? EVENT_TASK_OTHER : EVENT_TASK_UNKNOWN};
	if (flags & (TYPE_STR | TYPE_BYTES)) {
		bytes = content_find(thread, label, object, flags);
		task->number = 0;
		task->bytes = bytes > CONTENT_MAX ? CONTENT_MAX : bytes;
		id = content_hash(thread, search_of(thread)->value,
				  bytes < EVENT_TASK_BYTES ? bytes : EVENT_TASK_BYTES);
		task->how = !id                  ? EVENT_TASK_UNKNOWN
			    : flags & TYPE_BYTES ? EVENT_TASK_RAW
						 : EVENT_TASK_NAMED;
	} else if (flags & TYPE_INT) {
		id = integer_read(thread, label, object);
		if (type == label->bool_type)
			task->how = EVENT_TASK_BOOL;
	} else if (object == label->none || object == label->ellipsis) {
		task->number = object == label->none ? 2 : 3;
		task->how = EVENT_TASK_BOOL;
	} else {
		object = uuid_number(thread, label, object);
		if (object)
			id = integer_read(thread, label, object);
		if (object)
			uuid_take(task, type);
	}
	id = hash_word(hash_word(hash_word(hash_start(task->how), id), task->number), task->bytes);
	return id ? id : 1;
}

/*
 * Another value than at the record before, or perhaps, of that type; object is where it was found.
 * Returns as label_note().
 */
__noinline int label_change(struct thread_state *thread, struct abi_label *label, __u64 object,
			    __u64 value, __u64 type)
{
	__u64 id = 0;

	if (!thread || !label)
		return 0;
	thread->task_address = UNREADABLE;
	if (object)
		id = label_value_read(thread, label, value, type);
	else
		thread->task = (struct task_name){.how = EVENT_TASK_NONE};
	if (id != thread->task_id && task_output(thread))
		return -1;
	thread->task_id = id;
	thread->task_address = object;
	return 0;
}

/*
 * To be called before the record of thread->block. 0; -1: the ring buffer is full, so that the
 * record would be charged to another label.
 *
 * Values of the types that are read do not change. So if the value is at the same address as at the
 * thread's last block, and nobody else has made a block since (stays: allocator_stays()), it is the
 * same.
 */
__noinline int label_note(struct thread_state *thread, int stays)
{
	struct abi_label *label;
	__u64 object, value, type, first;
	__u32 tgid;

	if (!thread)
		return 0;
	tgid = thread->ids.tgid;
	label = bpf_map_lookup_elem(&labels, &tgid);
	if (!label)
		return 0;
	if (label->variable == ABI_LABEL_UNKNOWN) {
		object = UNREADABLE;
	} else if (label_is(ABI_LABEL_CONTEXT)) {
		if (!thread->block.tstate)
			task_tstate_find(thread);
		object = context_value(thread, label, stays);
	} else if (label_is(ABI_LABEL_GREENLET)) {
		object = greenlet_value(thread, label);
	} else {
		object = local_value(thread, label, stays);
	}
	first = object;
	if (label->steps)
		object = path_value(thread, label, object);
	if (stays && object == thread->task_address)
		return 0;
	type = object ? user_u64_called(object + thread->target.offsets.object_type) : 0;
	value = 0;
	if (type && label->names[ABI_LABEL_STEPS] && !type_is_plain(&thread->target, type) &&
	    is_enum(thread, label, type))
		value = named_value(thread, label, ABI_LABEL_STEPS, object);
	if (value)
		type = user_u64_called(value + thread->target.offsets.object_type);
	if (label_change(thread, label, object, value ? value : object, type))
		return -1;
	/* An object that leads to itself may lead to another one next, unlike a variable. */
	if (label->steps && object && object == first)
		thread->task_address = UNREADABLE;
	return 0;
}

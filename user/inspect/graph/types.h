/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types of an image's objects. An address is a type's if its own type derives from
 * PyType_Type, and the chain of types of types leads to PyType_Type. Pure.
 */
#pragma once

#include "inspect/graph/image.h"
#include "runtime/cpython/fields.h"
#include "util/id_map.h"

#define TYPES_NAME      128
#define TYPES_FULL_NAME (2 * TYPES_NAME)
#define TYPES_NONE      UINT32_MAX
#define TYPES_MAX       (1u << 20) /* objects of further types count as no objects */

/* Py_TPFLAGS_* */
#define TYPE_INLINE_VALUES (1ull << 2) /* 3.13+ */
#define TYPE_PREHEADER     (3ull << 3) /* managed weak references (3.12+), managed dict (3.11+) */
#define TYPE_MANAGED_DICT  (1ull << 4)
#define TYPE_HEAP          (1ull << 9)
#define TYPE_GC            (1ull << 14)
#define TYPE_INT           (1ull << 24)
#define TYPE_BYTES         (1ull << 27)
#define TYPE_STR           (1ull << 28)
#define TYPE_TYPE          (1ull << 31)

/* How the references of a type's objects are found. */
enum types_layout {
	LAYOUT_WORDS, /* word by word */
	LAYOUT_PLAIN, /* no references */
	LAYOUT_DICT,
	LAYOUT_LIST,
	LAYOUT_TUPLE,
	LAYOUT_SET,
	LAYOUT_TYPE,
	LAYOUT_WEAKREF,
	LAYOUT_CODE,
	LAYOUT_FRAME,
	LAYOUT_GENERATOR,
	LAYOUT_MODULE,
	LAYOUT_VIEW,   /* memoryview */
	LAYOUT_OPAQUE, /* words, and buffers that hold no references */
	LAYOUT_DEQUE,
	LAYOUT_LRU_CACHE, /* functools.lru_cache: its links are borrowed */
	LAYOUT_LRU_LINK,
	LAYOUT_DECIMAL,  /* no references; its digits are in it, or in a buffer */
	LAYOUT_CYTHON,   /* words; its m_self is itself, borrowed */
	LAYOUT_GREENLET, /* words; its buffers are saved stacks, whose words may borrow */
};

struct type {
	uint64_t address, flags;
	uint64_t keys;    /* ht_cached_keys; 0: none */
	uint64_t members; /* tp_members; 0: none */
	uint64_t base;    /* tp_base */
	/* tp_finalize: a method __del__ of the type or of one of its bases; 0: none */
	uint64_t finalize;
	int64_t dict_at; /* tp_dictoffset */
	uint32_t weaklist_at;
	uint32_t basic_bytes, item_bytes; /* tp_basicsize, tp_itemsize */
	uint32_t layout_bytes;            /* tp_basicsize of the type that has the layout */
	enum types_layout layout;
	char name[TYPES_NAME]; /* tp_name, cut; "" if it cannot be read */
};

struct types {
	const struct image *image;
	struct type *entries;
	size_t count, capacity;
	struct id_map by_address;
	uint64_t *strangers; /* cache of addresses that are no types, by hash */
	int err;             /* -ENOMEM: types are missing */
};

/* 0; -ENOMEM. The caller frees with types_free(), also after a failure. */
int types_open(struct types *types, const struct image *image);
void types_free(struct types *types);
/* The index of the type at address; TYPES_NONE: there is none. */
uint32_t types_find(struct types *types, uint64_t address);
/* Bytes in front of an object of the type: the collector's head, managed pointers. */
uint32_t types_head(const struct types *types, const struct type *type);
/*
 * The name with the module and the classes around it: "shop.Session.User"; of a builtin type its
 * name alone.
 */
void types_full_name(const struct types *types, const struct type *type, char out[TYPES_FULL_NAME]);
/*
 * The name of the member (a slot, a field) at the offset in objects of the type, from the type's
 * own tables and those of its bases. 1: *out has it; 0.
 */
int types_member(const struct types *types, const struct type *type, uint64_t offset,
		 char out[TYPES_NAME]);
/* The same for a field of a builtin or extension type whose layout is known. 1: *out has it; 0. */
int types_field(const struct types *types, const struct type *type, uint64_t offset,
		struct object_field *out);

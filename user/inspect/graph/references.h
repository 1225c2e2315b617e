/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The references that one object of an image holds. Each type is read by its layout; types without
 * a known one word by word, with the buffers that they own. Pure.
 *
 * Work is bounded by the image: an object whose sizes lie gives no references, and after
 * references.work steps none are given at all.
 */
#pragma once

#include "inspect/graph/image_blocks.h"
#include "inspect/graph/types.h"
#include "runtime/cpython/dict_keys.h"
#include "runtime/cpython/refcount.h"

enum reference_kind {
	REFERENCE_TYPE,      /* an object to its type, which is on the heap */
	REFERENCE_WORD,      /* found word by word; slot: offset in the object */
	REFERENCE_BUFFER,    /* found word by word in a buffer that it owns; slot: address */
	REFERENCE_FIELD,     /* slot: offset in the object, whose layout is known */
	REFERENCE_ITEM,      /* slot: index */
	REFERENCE_KEY,       /* of a dict or a type's shared keys; slot: number of the entry */
	REFERENCE_VALUE,     /* of a dict; slot: number of the entry */
	REFERENCE_ELEMENT,   /* of a set */
	REFERENCE_ATTRIBUTE, /* a value in the object; slot: number of its type's shared key */
	REFERENCE_DICT,      /* __dict__ */
	REFERENCE_LOCAL,     /* of a frame; slot: number of the variable */
	REFERENCE_STACK,     /* on a frame's stack; slot: its depth */
	REFERENCE_FRAME,     /* of a frame; slot: enum frame_part */
	REFERENCE_WEAK,      /* does not count: weak, borrowed */
	REFERENCE_MAYBE,     /* on a stack of unknown height: it may be an old word */
	REFERENCE_REFUTED,   /* a guess that does not count: graph_guesses_drop() */
};

enum frame_part { FRAME_CODE, FRAME_FUNCTION, FRAME_LOCALS, FRAME_OBJECT };

typedef void (*reference_fn)(void *context, uint64_t target, enum reference_kind kind,
			     uint64_t slot);

/* A buffer or table of shared keys, and the object that it is counted with. */
struct claim {
	uint64_t address, bytes, owner;
	uint64_t walk; /* the number of the last walk that read it */
};

struct references {
	const struct image *image;
	struct image_blocks *blocks;
	struct types *types;
	/* whether an object begins at address */
	bool (*is_object)(void *context, uint64_t address);
	void *context;
	uint64_t work;  /* steps left */
	uint64_t walks; /* number of the current walk */
	int discovers;  /* 1: buffers without an owner are claimed */
	struct claim *claims;
	size_t claim_count, claim_capacity;
	struct id_map claim_of; /* address of a buffer to claims */
	int err;                /* -ENOMEM */
};

/* Gives all references of the object of that type at address, not only those to objects. */
void references_each(struct references *references, uint64_t address, const struct type *type,
		     reference_fn visit, void *context);
/*
 * The references of a frame of 3.11 and later at address, to code, function, variables and stack.
 * own: its frame object or generator, 0 for a thread's.
 */
void references_inner_frame(struct references *references, uint64_t address, uint64_t own,
			    reference_fn visit, void *context);
void references_free(struct references *references);

/* --- shared by the files of this module --- */

struct walk {
	struct references *references;
	const struct object_offsets *at;
	uint64_t object;
	const struct type *type;
	reference_fn visit;
	void *context;
};

/* Bytes of an object's header. */
static inline uint32_t walk_header(const struct walk *walk)
{
	return refcount_header(&walk->references->image->offsets);
}
static inline void walk_give(struct walk *walk, uint64_t target, enum reference_kind kind,
			     uint64_t slot)
{
	if (target && !(target & 7))
		walk->visit(walk->context, target, kind, slot);
}

/* A table of keys with its entries. 0; -EINVAL: it is damaged, or not in the image. */
int keys_read(const struct image *image, uint64_t address, struct keys *out);

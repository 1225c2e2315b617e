/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of a Python process and the references between them, from an image of its memory.
 * Pure.
 *
 * Objects are those in pymalloc's blocks, and those that references, roots and the collector's
 * lists lead to: in malloc's memory, and in the variables of files. The proof of the whole is each
 * object's own reference count, which the references that were found must explain.
 *
 * Memory: 40 bytes an object, 8 an edge, and as much again as the objects while it is built.
 */
#pragma once

#include <stdbool.h>

#include "inspect/graph/collector.h"
#include "inspect/graph/references.h"

#define GRAPH_NONE UINT32_MAX

/* What holds an object besides other objects. The first that applies is told. */
enum graph_root {
	ROOT_NONE,
	ROOT_MODULES,     /* sys.modules of the main interpreter */
	ROOT_SUBMODULES,  /* sys.modules of another interpreter */
	ROOT_FRAME,       /* a frame of a thread that runs or waits */
	ROOT_INTERPRETER, /* the state of an interpreter or thread */
	ROOT_STATIC,      /* an object in a file's variables: a type, None */
	ROOT_VARIABLE,    /* a variable of a mapped file */
	ROOT_NATIVE,      /* its reference count is higher than what was found */
	ROOT_LOST,        /* as ROOT_NATIVE, and higher than all words of its memory say */
	ROOT_FROZEN,      /* nothing: a cycle that no collection frees, after gc.freeze() */
	ROOT_GARBAGE,     /* nothing: a cycle that the collector has not found yet */
	ROOT_COUNT
};

/* A word outside of all objects that refers to one. */
struct graph_root_word {
	uint32_t object;
	enum graph_root root;
	enum reference_kind kind; /* of a frame's references */
	uint64_t address;         /* of the word; of the frame */
	uint64_t slot;
};

/* Mortal objects on the heap: how much of their reference counts was found. */
struct graph_proof {
	uint64_t objects;
	uint64_t exact;     /* as many references as the count says */
	uint64_t all_found; /* at least as many */
	uint64_t lost;      /* fewer, but no other word of the memory has its address */
};

struct graph_interpreter {
	uint64_t modules; /* address of its dictionary sys.modules; 0: not found */
	int64_t id;
};

/* Why no collection frees an object. */
enum graph_kept {
	KEPT_NOT,
	KEPT_FROZEN, /* gc.freeze() has put it aside */
	KEPT_LISTED, /* it is in gc.garbage */
};

struct graph {
	const struct image *image;
	struct image_blocks blocks;
	struct types types;
	struct references references;
	size_t count;
	uint64_t *addresses; /* sorted */
	uint32_t *type_of;
	uint32_t *bytes; /* of its block and the buffers that it owns, in units of 8 */
	uint32_t *held;  /* references that count, from objects and frames */
	uint8_t *root;   /* enum graph_root */
	/* Edges that count, without those to itself; object i's targets begin at out_start[i]. */
	uint32_t *out_start, *out;
	uint32_t *in_start, *in; /* the same, backwards */
	/* Objects with references that are no edges; one may be there twice. */
	uint32_t *beside;
	size_t beside_count, beside_capacity;
	struct graph_root_word *words; /* by object */
	size_t word_count, word_capacity;
	/* address of the dictionary of interned strings, whose references do not count; 0: none */
	uint64_t interned;
	struct graph_interpreter *interpreters; /* the newest first; the main one is the last */
	size_t interpreter_count;
	struct collectors collectors;
	uint8_t *kept;   /* by object: enum graph_kept */
	uint64_t frozen; /* objects that are KEPT_FROZEN */
	/* address of an object to the references that threads count for themselves (3.14t+) */
	struct id_map thread_counts;
	struct id_map refuted; /* addresses of words that are no references: graph_guesses_drop() */
	struct graph_proof proof;
	struct graph_proof *proofs; /* by type */
	uint64_t immortal, statics; /* objects that the proof leaves out */
	int cut;                    /* 1: work ran out; references are missing */
	int texts_hidden;           /* 1: the contents of texts are not to be told */
	/* while it is built */
	struct id_map found;
	size_t capacity, type_capacity;
	size_t in_pools; /* objects of pools: the first ones, by address */
	uint32_t *pages;
	uint32_t *page_start; /* of each segment in pages */
};

/*
 * 0; -ENODATA, -ENOTSUP (error_set): no heap, or no PyType_Type in the image; -E2BIG: more than
 * 2^32 edges; -ENOMEM. The image is borrowed until graph_free(). *out is untouched on failure.
 */
int graph_new(struct graph **out, const struct image *image);
void graph_free(struct graph *graph);

/* The object that begins at address, or GRAPH_NONE. */
uint32_t graph_find(const struct graph *graph, uint64_t address);
const struct type *graph_type(const struct graph *graph, uint32_t object);
/* Whether it is the dictionary sys.modules of an interpreter. */
static inline bool graph_is_modules(const struct graph *graph, uint32_t object)
{
	return graph->root[object] == ROOT_MODULES || graph->root[object] == ROOT_SUBMODULES;
}
/* Whether it is a list gc.garbage. */
bool graph_is_kept_list(const struct graph *graph, uint32_t object);
/* The interpreter whose sys.modules the object is; NULL: none's. */
const struct graph_interpreter *graph_interpreter(const struct graph *graph, uint32_t object);
/* ob_refcnt without flags; UINT64_MAX: the object is immortal. */
uint64_t graph_refcount(const struct graph *graph, uint64_t address);
static inline uint64_t graph_bytes(const struct graph *graph, uint32_t object)
{
	return (uint64_t)graph->bytes[object] * 8;
}
/*
 * Gives each reference of an object to an object: targets are addresses of objects. The work that
 * is left since graph_work_begin() limits it; none left sets graph->cut.
 */
void graph_work_begin(struct graph *graph);
void graph_references(struct graph *graph, uint32_t object, reference_fn visit, void *context);
/* Those to the object at an address alone, which is several times as fast. */
void graph_references_to(struct graph *graph, uint32_t object, uint64_t target, reference_fn visit,
			 void *context);
/* "modules", "frame", …, as in documents. */
const char *graph_root_name(enum graph_root root);
/* Whether such a reference is in the target's reference count. */
int graph_counts(const struct graph *graph, uint32_t source, uint64_t target,
		 enum reference_kind kind);
/* Gives the addresses of the tables that are the object's own, until visit returns not 0. */
typedef int (*table_fn)(void *context, uint64_t address);
int graph_tables_each(const struct graph *graph, uint32_t object, table_fn visit, void *context);
/* The first of the words that hold an object; *count of them. NULL: none. */
const struct graph_root_word *graph_words(const struct graph *graph, uint32_t object,
					  size_t *count);

/* --- steps of graph_new(), each in a file of its own --- */

int graph_discover(struct graph *graph);
int graph_index(struct graph *graph);
/* Visits every word outside of objects that may refer to one. */
typedef void (*root_fn)(void *context, uint64_t target, const struct graph_root_word *word);
void graph_root_words(struct graph *graph, root_fn visit, void *context);
int graph_roots(struct graph *graph);
/* Adds to graph->beside. 0, -ENOMEM. */
int graph_beside_add(struct graph *graph, uint32_t source);
int graph_word_add(struct graph *graph, const struct graph_root_word *word);
void graph_words_sort(struct graph *graph);
/*
 * Whether a reference is a guess: it was found word by word, nothing names the word, and the
 * target's reference count does not confirm it, since it says otherwise than what was found.
 */
bool graph_is_guess(const struct graph *graph, uint32_t source, uint64_t target,
		    enum reference_kind kind, uint64_t slot);
/*
 * Of an object to which more references were found than its reference count says, those that were
 * found word by word are dropped until the count is right: words of buffers first, then those that
 * nothing names. Between finding the edges and turning them. 0, -ENOMEM.
 */
int graph_guesses_drop(struct graph *graph);
/* The address of the word that such a reference was found in; 0: it was not found word by word. */
uint64_t graph_word_address(const struct graph *graph, uint32_t source, enum reference_kind kind,
			    uint64_t slot);
/* Marks the tables of an object: image_blocks_table(). 0, -ENOMEM. */
int graph_tables_mark(struct graph *graph, uint64_t address, const struct type *type);
/*
 * Usable bytes of the live block at address, or of the one that begins in front of it with debug
 * hooks. 0: there is none.
 */
uint64_t graph_block_bytes(const struct graph *graph, uint64_t address);
/* Bytes of the object's block and of the buffers that its layout tells. */
uint64_t graph_own_bytes(const struct graph *graph, uint64_t address, const struct type *type);
/* Reads the interpreters and their collectors, after the edges. 0, -ENOMEM. */
int graph_interpreters_read(struct graph *graph);
int graph_prove(struct graph *graph);
/* Marks what no root reaches. 0, -ENOMEM. */
int graph_garbage_find(struct graph *graph);
/*
 * Tells objects whose missing references nothing in the memory holds, after graph_prove(). None, if
 * memory is missing from the image, or the process ran while it was copied. 0, -ENOMEM.
 */
int graph_lost_find(struct graph *graph);
/* Reads what threads count for themselves, without the GIL. 0, -ENOMEM. */
int graph_thread_counts_read(struct graph *graph);
int32_t graph_thread_counts(const struct graph *graph, uint64_t address);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why objects are alive: the shortest path to each from a root, and these paths merged. A path from
 * sys.modules is preferred to one from a frame, this to one from an interpreter's state, and so on
 * in the order of enum graph_root. Pure.
 */
#pragma once

#include <stdbool.h>

#include "inspect/holders/retained.h"
#include "util/buffer.h"

#define PATHS_MAX_STEPS 4096u /* of a path that is written; a longer one is cut, and says so */

struct paths {
	struct graph *graph;
	uint32_t *parent; /* by object; GRAPH_NONE: a root, or reached by none */
	uint8_t *kind;    /* enum reference_kind from the parent */
	uint32_t *slot;   /* of a root: the first object with a root of its kind and name */
	/*
	 * of the path without keys and indexes, except those of modules, classes and instances, and
	 * without repetitions
	 */
	uint64_t *shape;
	uint32_t *folded; /* the object whose path this one is without repetitions */
	uint32_t *label;  /* of the reference from the parent, a part of the shape */
	uint32_t *depth;  /* references from the root */
};

/* 0, -ENOMEM. The graph is borrowed until paths_free(). */
int paths_new(struct paths **out, struct graph *graph);
void paths_free(struct paths *paths);

/* Whether the keys of a dictionary say what its values are, as those of a module do. */
bool paths_is_namespace(const struct paths *paths, uint32_t dict);
/* Does a name lead to the object from the one in front of it on its path, or is it one of many? */
bool paths_is_named(const struct paths *paths, uint32_t object);
/* What has the namespace's values as its attributes; GRAPH_NONE: nothing, as of sys.modules. */
uint32_t paths_namespace_owner(const struct paths *paths, uint32_t dict);
/*
 * A threading.local has a dictionary of its attributes for each thread, in a table by thread.
 * Whether an object is such a table, or such a dictionary.
 */
bool paths_is_thread_table(const struct paths *paths, uint32_t object);
bool paths_is_thread_dict(const struct paths *paths, uint32_t object);

struct step {
	const char *kind; /* "module", "attribute", "key", "index", …; a root's: enum graph_root */
	uint32_t object;  /* that it leads to */
	uint32_t name;    /* offset of its text in path.names; "" if it has none */
	uint32_t end;     /* of its part of path.text */
	int guess;        /* graph_is_guess() of the reference to it */
	/* how often it, or the part that it is in, follows itself; 1: there is no such part */
	uint32_t least, most;
};

struct path {
	struct step *steps;
	size_t count, capacity;
	struct buffer names;
	struct buffer text; /* NUL-terminated: as far as possible in Python, then the other steps */
	/*
	 * 1: all of text is an expression of Python; that of a subinterpreter begins with
	 * "interpreter 1: ", and the rest is an expression there
	 */
	int is_python;
	int cut; /* 1: it has more steps than are here */
};

/*
 * The objects of a path, from the root to `object`, at most PATHS_MAX_STEPS of those next to it;
 * the caller frees. *cut: 1: there are more. NULL: no memory.
 */
uint32_t *chain_make(const struct paths *paths, uint32_t object, size_t *count, int *cut);
/* The path to an object. 0, -ENOMEM. The caller frees with path_free(), also after a failure. */
int path_read(const struct paths *paths, uint32_t object, struct path *out);
void path_free(struct path *path);
/*
 * Leaves one of each part of the path that follows itself, with the numbers of times in it and in
 * that of `longest`, an object whose path has the same shape. The texts of the steps are no longer
 * in path.text. 0, -ENOMEM.
 */
int path_fold(const struct paths *paths, uint32_t object, uint32_t longest, struct path *path);
/*
 * Appends path.text, with what follows itself at least three times written once: "a(.next){57}".
 * 0, -ENOMEM.
 */
int path_write(const struct path *path, struct buffer *out);
/*
 * Appends the text that the paths of the object's shape have together: as path.text, without what
 * follows itself, and with [*] for keys and indexes. 0, -ENOMEM.
 */
int path_shape_write(const struct paths *paths, uint32_t object, struct buffer *out);
/*
 * A hash of what the shape of an object's path is made of, which is the same in all processes of a
 * program: the names of its references, without the keys and indexes that are merged. 0, -ENOMEM.
 */
int path_shape_hash(const struct paths *paths, uint32_t object, uint64_t *hash);
/*
 * What holds an object whose root is no other object: the text behind the root's kind. detailed: of
 * a frame also the variable, of native code the number of references. 0, -ENOMEM.
 */
int root_name(const struct graph *graph, uint32_t object, int detailed, struct buffer *out);
/*
 * How a reference is named, as in a step: its kind, and its text in out ("" if it has none). 0,
 * -ENOMEM.
 */
int reference_name(const struct graph *graph, uint32_t source, enum reference_kind kind,
		   uint64_t slot, const char **kind_name, struct buffer *out);

/* The key of entry number slot of a dict; 0: there is none. */
uint64_t dict_key(const struct graph *graph, uint32_t dict, uint64_t slot);
/* The code object of the frame of a frame object or generator. */
uint64_t frame_code(const struct graph *graph, uint32_t source);
/*
 * Appends the name of the function that a frame object, generator or coroutine runs, or whose
 * results an lru_cache keeps. 1; 0: the object is none of these, or the name cannot be read;
 * -ENOMEM.
 */
int frame_function(const struct graph *graph, uint32_t object, struct buffer *out);
/* The address of the function whose results an lru_cache keeps; 0: it is none of Python. */
uint64_t cache_function_at(const struct graph *graph, uint32_t object);
/* The name of variable number slot of a code object; 0: there is none. */
uint64_t variable_name(const struct graph *graph, uint64_t code, uint64_t slot);

/* Objects whose paths have the same shape. */
struct path_group {
	uint64_t shape;
	uint32_t example; /* with the shortest path */
	uint32_t longest; /* with the longest path */
	uint64_t count, bytes;
	/*
	 * what would be freed with them; of dictionaries of modules and classes without what is in
	 * other wanted objects
	 */
	uint64_t retained;
};

/*
 * Groups the objects that `wanted` tells, by the shape of their paths; most retained bytes first.
 * 0, -ENOMEM; the caller frees *groups.
 */
int paths_group(const struct paths *paths, const struct retained *retained,
		bool (*wanted)(void *context, uint32_t object), void *context,
		struct path_group **groups, size_t *count);

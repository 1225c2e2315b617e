/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why objects are alive: the shortest path to each from a root, and these paths merged. A path from
 * sys.modules is preferred to one from a frame, this to one from an interpreter's state, and so on
 * in the order of enum graph_root. Pure.
 */
#ifndef TRACER_HOLDERS_PATHS_H
#define TRACER_HOLDERS_PATHS_H

#include "base/buffer.h"
#include "holders/retained.h"

#define PATHS_MAX_STEPS 4096u /* of a path that is written; a longer one is cut, and says so */

struct paths {
	struct graph *graph;
	uint32_t *parent; /* by object; GRAPH_NONE: a root, or reached by none */
	uint8_t *kind;    /* enum reference_kind from the parent */
	uint32_t *slot;
	/* of the path without keys and indexes, except those of modules, classes and instances */
	uint64_t *shape;
};

/* 0, -ENOMEM. The graph is borrowed until paths_free(). */
int paths_new(struct paths **out, struct graph *graph);
void paths_free(struct paths *paths);

/* Whether the keys of a dictionary say what its values are, as those of a module do. */
int paths_is_namespace(const struct paths *paths, uint32_t dict);

struct step {
	const char *kind; /* "module", "attribute", "key", "index", …; a root's: enum graph_root */
	uint32_t object;  /* that it leads to */
	uint32_t name;    /* offset of its text in path.names; "" if it has none */
};

struct path {
	struct step *steps;
	size_t count, capacity;
	struct buffer names;
	struct buffer expression; /* NUL-terminated; empty: it cannot be written in Python */
	int cut;                  /* 1: it has more steps than are here */
};

/* The path to an object. 0, -ENOMEM. The caller frees with path_free(), also after a failure. */
int path_read(const struct paths *paths, uint32_t object, struct path *out);
void path_free(struct path *path);
/*
 * How a reference is named, as in a step: its kind, and its text in out ("" if it has none). 0,
 * -ENOMEM.
 */
int reference_name(const struct graph *graph, uint32_t source, enum reference_kind kind,
		   uint64_t slot, const char **kind_name, struct buffer *out);

/* The key of entry number slot of a dict; 0: there is none. */
uint64_t dict_key(const struct graph *graph, uint32_t dict, uint64_t slot);
/* The name of variable number slot of a code object; 0: there is none. */
uint64_t variable_name(const struct graph *graph, uint64_t code, uint64_t slot);

/* Objects whose paths have the same shape. */
struct path_group {
	uint64_t shape;
	uint32_t example;
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
		int (*wanted)(void *context, uint32_t object), void *context,
		struct path_group **groups, size_t *count);

#endif

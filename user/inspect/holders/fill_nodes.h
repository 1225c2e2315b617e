/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What code is looked through for: the containers whose fillers are asked for, the objects that
 * have them as an attribute, and by which names code reaches them.
 */
#pragma once

#include "inspect/holders/code_scan.h"
#include "inspect/holders/fillers.h"
#include "util/id_map.h"

#define FILL_NODES (2 * FILLERS_ROWS)

/* The lower, the more it says. */
enum fill_tier {
	TIER_EXACT = 0,  /* the very object */
	TIER_CLASS = 1,  /* the attribute of its class, in a method of it */
	TIER_MODULE = 3, /* an attribute of the name, in the module of the class */
	TIER_NAME = 256, /* an attribute of the name anywhere */
	TIER_NONE = 512,
};

/* How an object is reached from the one that holds it. */
struct fill_place {
	enum { PLACE_OTHER, PLACE_ATTRIBUTE, PLACE_ITEM } kind;
	uint32_t owner; /* GRAPH_NONE: none */
	uint32_t name;  /* of the attribute, in fill_nodes.names; 0: none */
};

struct fill_node {
	uint32_t row;
	int is_owner;      /* not the container, but what has it as an attribute */
	int is_plain;      /* no builtin container: its attributes are replaced */
	int is_list;       /* storing an item adds none */
	int is_default;    /* a defaultdict: reading an item adds it */
	uint32_t own_type; /* of the container */
	/* as the attribute of an object of that type; as an item of such an attribute */
	uint32_t name, type, item_name, item_type;
};

struct fill_nodes {
	const struct paths *paths;
	struct strings *names;
	struct fill_node nodes[FILL_NODES];
	uint32_t count;
	struct id_map objects; /* an object, or any item of one, alone and with each node of it */
	struct id_map edges;   /* an object's attribute: fill_edge(); what it is */
	struct id_map slots;   /* a variable of running code: fill_slot(); what it is */
	int err;
};

static inline uint64_t fill_object(uint32_t object, int is_item)
{
	return (uint64_t)object << 1 | (is_item != 0);
}

/* The same with a node. */
static inline uint64_t fill_object_of(uint64_t key, uint32_t node)
{
	return key | (uint64_t)(node + 1) << 33;
}

static inline uint64_t fill_edge(uint32_t object, uint32_t name)
{
	return (uint64_t)object << 32 | name;
}

static inline uint64_t fill_slot(uint64_t code, uint64_t slot)
{
	return hash_u64(code) + slot;
}

/* names: empty but for those that fillers.c looks for. 0, -ENOMEM. */
int fill_nodes_make(struct fill_nodes *nodes, const struct paths *paths, struct strings *names,
		    const struct filler_row *rows, size_t count);
void fill_nodes_free(struct fill_nodes *nodes);
/* The index in names of an identifier at address; 0: it is none that is looked for. */
uint32_t fill_name_find(const struct fill_nodes *nodes, uint64_t address);

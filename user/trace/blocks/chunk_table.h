/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocated blocks of malloc's heaps, as the last walk has shown them, and since which walk:
 * a block of another size than before at an address is another block. 16 bytes a block.
 *
 * Walks show blocks in order of address, so that a walk is merged with the one before.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/blocks/kind_counts.h"

struct chunk {
	uint64_t address; /* as malloc() returned it */
	uint32_t units;   /* of 16 bytes, with its header */
	uint32_t cohort;  /* as in fingerprints.h */
};

struct account;

/* Zero-initialise; account may be set before the first walk. */
struct chunk_table {
	struct chunk *items; /* by address */
	size_t count, capacity;
	struct chunk *walk; /* those that the walk in progress has shown */
	size_t walk_count, walk_capacity;
	struct chunk *unread; /* ranges that the last walk could not read, by address */
	size_t unread_count, unread_capacity;
	size_t old;  /* of items: those before are below what the walk has shown */
	int walking; /* a walk is in progress */
	int known;   /* a walk was complete */
	/*
	 * Blocks have the sizes of classes (EVENT_CHUNKS_CLASSES): those that walks have shown, by
	 * size.
	 */
	int has_classes;
	uint64_t *classes; /* units */
	size_t class_count, class_capacity;
	struct account *account; /* borrowed; NULL: none */
};

/* A walk begins; what an incomplete one has shown is dropped. */
void chunk_table_begin(struct chunk_table *chunks, int has_classes);
/*
 * The walk shows an allocated block. *out is borrowed until the next call; its cohort is 0 if it is
 * another block than before. 0; -EBADMSG: not in order, or there is no walk; -ENOMEM, -EDQUOT.
 */
int chunk_table_show(struct chunk_table *chunks, uint64_t address, uint32_t units,
		     struct chunk **out);
/* What is in these units could not be read: it stays as it was. The same errors. */
int chunk_table_unread(struct chunk_table *chunks, uint64_t address, uint32_t units);
/* Could the last walk not read what is at an address? */
bool chunk_table_is_unread(const struct chunk_table *chunks, uint64_t address);
/* The walk is complete: what it has not shown is gone. */
void chunk_table_end(struct chunk_table *chunks);
/* The walk is given up: what the one before has shown stays. */
void chunk_table_abandon(struct chunk_table *chunks);
/* NULL: none begins there. */
struct chunk *chunk_table_find(const struct chunk_table *chunks, uint64_t address);
/* The block that begins at an address is another one than before. */
void chunk_table_another(struct chunk_table *chunks, uint64_t address);
/* Its cohort; 0: none, or not known yet. */
uint32_t chunk_table_cohort(const struct chunk_table *chunks, uint64_t address);
/* Gives blocks of each cohort the number that map has for it. */
void chunk_table_renumber(struct chunk_table *chunks, const uint8_t *map);
/* How many there are of a cohort. */
size_t chunk_table_of(const struct chunk_table *chunks, uint32_t cohort);
/* Adds all of them to counts. 0; -ENOMEM, -EDQUOT. */
int chunk_table_count(const struct chunk_table *chunks, struct kind_counts *counts);
/* Copies to out, which is empty and may have an account. 0; -ENOMEM, -EDQUOT. */
int chunk_table_copy(struct chunk_table *out, const struct chunk_table *from);
/* Leaves the empty table, with the same account. */
void chunk_table_free(struct chunk_table *chunks);

/*
 * What a block is counted by: its size to a quarter of the power of two below, from 256 bytes on,
 * and exactly below; and its size class, that power of two. Sizes so rare that windows may well
 * show none of them are joined with the others of their class.
 */
uint32_t chunk_kind(uint32_t units);
uint32_t chunk_class(uint32_t units);
/* What malloc() returns of a chunk of that kind, at least; has_classes: as in the table. */
uint64_t chunk_kind_bytes(uint32_t kind, int has_classes);
/* Is it a size class of chunks, and none of pools? */
bool chunk_is_class(uint32_t class_bytes);
/* Units of the chunk that a request for so many bytes gets, unless malloc has a larger one. */
uint32_t chunk_units(uint64_t bytes);
/* The same, of the class that the request belongs to, if walks have shown it. */
uint32_t chunk_table_units(const struct chunk_table *chunks, uint64_t bytes);
/* May a request for so many bytes have got a chunk of that size? has_classes: as in the table. */
int chunk_fits(uint32_t units, uint64_t bytes, int has_classes);

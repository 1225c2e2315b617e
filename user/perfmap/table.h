/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perf map of one process: which function's code lies at which addresses. Pure.
 *
 * Entries are sorted and never overlap. At each address the newest entry wins: one that is added
 * cuts what it covers out of older ones, which keep what is left (an entry in whose middle another
 * appears becomes two). Every entry knows when it appeared, since addresses are reused.
 */
#ifndef TRACER_PERFMAP_TABLE_H
#define TRACER_PERFMAP_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define PERFMAP_ORIGIN_MAX 0x3fffffffu
/* A target that writes more has its new entries refused (-ENOSPC). */
#define PERFMAP_ENTRIES_MAX (32u << 20)
#define PERFMAP_NAMES_MAX   (2ull << 30) /* bytes */

struct perfmap_entry {
	uint64_t start, end; /* addresses; end is the first one behind the code */
	uint64_t time_ns;    /* when it appeared; of the clock that the caller uses */
	uint32_t name;       /* perfmap_table_name() */
	/* 0: a perf map or a jitdump; else the number of the image that it came with */
	uint32_t origin : 30;
	/* the writer's own call was seen, which says more than its line in a file */
	uint32_t called : 1;
	uint32_t mapped : 1; /* it was seen to lie in mapped memory */
};

/* A range of mapped addresses; sorted, not overlapping. */
struct perfmap_range {
	uint64_t start, end;
};

struct account;
struct perfmap_table;

int perfmap_table_new(struct perfmap_table **out); /* 0, -ENOMEM */
/*
 * Charged to an account, borrowed until it is freed: this and all that adds also fail with -EDQUOT.
 */
int perfmap_table_new_in(struct perfmap_table **out, struct account *account);
void perfmap_table_free(struct perfmap_table *table);

/*
 * Adds size bytes at start; of entry its time, origin and flags are taken. The name needs no NUL
 * and ends at one. 0; -EINVAL nothing, or beyond the end of the address space; -ENOSPC; -ENOMEM,
 * nothing was added.
 */
int perfmap_table_add(struct perfmap_table *table, uint64_t start, uint64_t size, const char *name,
		      size_t name_bytes, const struct perfmap_entry *entry);
/* Takes what lies in [start, end) out. 0, -ENOMEM. */
int perfmap_table_cut(struct perfmap_table *table, uint64_t start, uint64_t end);
/*
 * Adds all entries of another table, or only those that have an origin. 0, -ENOSPC, -ENOMEM (some
 * were added).
 */
int perfmap_table_copy(struct perfmap_table *table, const struct perfmap_table *from,
		       int only_with_origin);
/* Takes out what came with that image; returns the number of entries. */
size_t perfmap_table_remove(struct perfmap_table *table, uint32_t origin);
/*
 * Takes out the entries whose memory was mapped and is no more: not covered by any of the ranges,
 * as they were at time_ns. Entries that appeared since are left alone, and those that never were
 * seen in mapped memory: no code runs there. Marks those that are covered as mapped. Returns the
 * number taken out.
 */
size_t perfmap_table_expire(struct perfmap_table *table, const struct perfmap_range *ranges,
			    size_t count, uint64_t time_ns);
/* Leaves no entry; the memory of all is given back. */
void perfmap_table_clear(struct perfmap_table *table);

/* The entry at an address, or NULL. Borrowed until the table changes. */
const struct perfmap_entry *perfmap_table_find(const struct perfmap_table *table, uint64_t address);
/* In address order; *cursor starts at 0. NULL at the end. The table must not change meanwhile. */
const struct perfmap_entry *perfmap_table_next(const struct perfmap_table *table, size_t *cursor);
const char *perfmap_table_name(const struct perfmap_table *table,
			       const struct perfmap_entry *entry);
size_t perfmap_table_count(const struct perfmap_table *table);
/* Bytes held, names included. */
size_t perfmap_table_memory(const struct perfmap_table *table);
/* A number that changes whenever a range or a name does: two equal ones stand for the same map. */
uint64_t perfmap_table_version(const struct perfmap_table *table);

#endif

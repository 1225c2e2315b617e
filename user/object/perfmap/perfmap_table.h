/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perf map of one process: the code addresses of functions. Pure.
 *
 * Entries are sorted and never overlap. The newest entry wins: a new entry cuts the range that it
 * covers out of older ones, which keep the rest (an entry with a new one in its middle becomes
 * two). Every entry has the time when it appeared, since addresses are reused.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PERFMAP_ORIGIN_MAX 0x1fffffffu
/* New entries beyond these limits are refused (-ENOSPC). */
#define PERFMAP_ENTRIES_MAX (32u << 20)
#define PERFMAP_NAMES_MAX   (2ull << 30) /* bytes */

struct perfmap_entry {
	uint64_t start, end; /* addresses; end is exclusive */
	uint64_t time_ns;    /* when it appeared, on the caller's clock */
	uint32_t name;       /* perfmap_table_name() */
	/* 0: from a perf map or a jitdump; else the number of its image */
	uint32_t origin : 29;
	/* recorded from the writer's call, which is more exact than a line of the file */
	uint32_t called : 1;
	uint32_t mapped : 1; /* it was seen in mapped memory */
	uint32_t gone : 1;   /* its memory was unmapped at the last look */
};

/* A range of mapped addresses; sorted, not overlapping. */
struct perfmap_range {
	uint64_t start, end;
};

struct account;
struct perfmap_table;

int perfmap_table_new(struct perfmap_table **out); /* 0, -ENOMEM */
/*
 * The same, charged to an account, which is borrowed until the table is freed: this and all
 * functions that add entries also return -EDQUOT.
 */
int perfmap_table_new_in(struct perfmap_table **out, struct account *account);
void perfmap_table_free(struct perfmap_table *table);

/*
 * Adds size bytes at start, with the time, origin and flags of *entry. The name needs no NUL and
 * ends at the first one. 0; -EINVAL: size is 0, or the range is beyond the address space; -ENOSPC,
 * -ENOMEM: nothing was added.
 */
int perfmap_table_add(struct perfmap_table *table, uint64_t start, uint64_t size, const char *name,
		      size_t name_bytes, const struct perfmap_entry *entry);
/* Removes the range [start, end). 0, -ENOMEM. */
int perfmap_table_cut(struct perfmap_table *table, uint64_t start, uint64_t end);
/* Adds all entries of another table. 0, -ENOSPC, -ENOMEM (some were added). */
int perfmap_table_copy(struct perfmap_table *table, const struct perfmap_table *from);
/* Removes the entries of an image; returns their number. */
size_t perfmap_table_remove(struct perfmap_table *table, uint32_t origin);
/*
 * Removes the entries whose memory was mapped and no longer is: no range, as of time_ns, covers
 * them. Keeps entries that appeared after time_ns, and entries that were never seen in mapped
 * memory, where no code runs. Marks covered entries as mapped. With late, an entry stays until the
 * next call, whatever is mapped there by then: a program that ends frees all its code, and its
 * names are still needed. Returns the number of removed entries.
 */
size_t perfmap_table_expire(struct perfmap_table *table, const struct perfmap_range *ranges,
			    size_t count, uint64_t time_ns, int late);
/* Removes all entries and frees their memory. */
void perfmap_table_clear(struct perfmap_table *table);

/* The entry at an address, or NULL. Borrowed until the table changes. */
const struct perfmap_entry *perfmap_table_find(const struct perfmap_table *table, uint64_t address);
/* The first entry that ends above an address, or NULL. Borrowed until the table changes. */
const struct perfmap_entry *perfmap_table_after(const struct perfmap_table *table,
						uint64_t address);
/* In address order; *cursor starts at 0. NULL at the end. The table must not change meanwhile. */
const struct perfmap_entry *perfmap_table_next(const struct perfmap_table *table, size_t *cursor);
const char *perfmap_table_name(const struct perfmap_table *table,
			       const struct perfmap_entry *entry);
size_t perfmap_table_count(const struct perfmap_table *table);
/* Bytes held, names included. */
size_t perfmap_table_memory(const struct perfmap_table *table);
/* A number that changes whenever a range or a name changes: equal numbers mean the same map. */
uint64_t perfmap_table_version(const struct perfmap_table *table);

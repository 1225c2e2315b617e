/* SPDX-License-Identifier: Apache-2.0 */
#include "perfmap/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/account.h"
#include "perfmap/entries.h"
#include "tables/strings.h"

/* The names of removed entries are kept until there are this many and more than live ones. */
#define NAMES_SLACK 65536u

struct perfmap_table {
	struct entries entries;
	uint64_t version;
	struct strings *names;
};

int perfmap_table_new(struct perfmap_table **out)
{
	return perfmap_table_new_in(out, NULL);
}

int perfmap_table_new_in(struct perfmap_table **out, struct account *account)
{
	struct perfmap_table *table = calloc(1, sizeof(*table));
	int err = table ? account_charge(account, sizeof(*table)) : -ENOMEM;

	if (!err) {
		err = strings_new_in(&table->names, account);
		if (err)
			account_uncharge(account, sizeof(*table));
	}
	if (err) {
		free(table);
		return err;
	}
	table->entries.account = account;
	*out = table;
	return 0;
}

void perfmap_table_free(struct perfmap_table *table)
{
	if (!table)
		return;
	entries_free(&table->entries);
	strings_free(table->names);
	account_uncharge(table->entries.account, sizeof(*table));
	free(table);
}

/* Re-interns the names of live entries only. Without memory for that, all names stay. */
static void names_collect(struct perfmap_table *table)
{
	struct strings *names;
	struct perfmap_entry *entry;
	uint32_t *ids, id;
	size_t count = 0, cursor = 0;

	ids = malloc((table->entries.count + 1) * sizeof(*ids));
	if (!ids || strings_new_in(&names, table->entries.account)) {
		free(ids);
		return;
	}
	while ((entry = entries_next(&table->entries, &cursor))) {
		const char *name = strings_get(table->names, entry->name);

		if (strings_intern(names, name, strlen(name), &id))
			goto give_up;
		ids[count++] = id;
	}
	cursor = 0;
	count = 0;
	while ((entry = entries_next(&table->entries, &cursor)))
		entry->name = ids[count++];
	strings_free(table->names);
	table->names = names;
	free(ids);
	return;
give_up:
	strings_free(names);
	free(ids);
}

void perfmap_table_clear(struct perfmap_table *table)
{
	if (table->entries.count)
		table->version++;
	entries_free(&table->entries);
	names_collect(table);
}

int perfmap_table_add(struct perfmap_table *table, uint64_t start, uint64_t size, const char *name,
		      size_t name_bytes, const struct perfmap_entry *entry)
{
	struct perfmap_entry new = {.start = start,
				    .end = start + size,
				    .time_ns = entry->time_ns,
				    .origin = entry->origin,
				    .called = entry->called,
				    .mapped = entry->mapped};
	struct perfmap_entry *old;
	struct entry_position position;
	int err;

	if (!size || new.end < start)
		return -EINVAL;
	if (table->entries.count >= PERFMAP_ENTRIES_MAX)
		return -ENOSPC;
	if (strings_count(table->names) > 2 * table->entries.count + NAMES_SLACK)
		names_collect(table);
	if (strings_memory(table->names) >= PERFMAP_NAMES_MAX)
		return -ENOSPC;
	err = strings_intern(table->names, name, name_bytes, &new.name);
	if (err)
		return err;
	position = entries_find(&table->entries, start);
	old = entries_at(&table->entries, position);
	if (old && old->start == start && old->end == new.end) {
		table->version += old->name != new.name;
		new.mapped |= old->mapped && old->name == new.name;
		*old = new;
		return 0;
	}
	table->version++;
	if (old && old->start < new.end) {
		err = entries_clear_range(&table->entries, start, new.end);
		position = entries_find(&table->entries, start);
	}
	return err ? err : entries_insert(&table->entries, position, &new);
}

int perfmap_table_cut(struct perfmap_table *table, uint64_t start, uint64_t end)
{
	table->version++;
	return start < end ? entries_clear_range(&table->entries, start, end) : 0;
}

int perfmap_table_copy(struct perfmap_table *table, const struct perfmap_table *from)
{
	const struct perfmap_entry *entry;
	size_t cursor = 0;
	int err = 0;

	while (!err && (entry = perfmap_table_next(from, &cursor))) {
		const char *name = perfmap_table_name(from, entry);

		err = perfmap_table_add(table, entry->start, entry->end - entry->start, name,
					strlen(name), entry);
	}
	return err;
}

static size_t table_filter(struct perfmap_table *table, int (*keep)(struct perfmap_entry *, void *),
			   void *context)
{
	size_t removed = entries_filter(&table->entries, keep, context);

	table->version += removed != 0;
	return removed;
}

static int origin_differs(struct perfmap_entry *entry, void *context)
{
	return entry->origin != *(const uint32_t *)context;
}

size_t perfmap_table_remove(struct perfmap_table *table, uint32_t origin)
{
	return table_filter(table, origin_differs, &origin);
}

struct expiry {
	const struct perfmap_range *ranges;
	size_t count;
	/* the first range that ends above the last entry's start; entries come in order */
	size_t at;
	uint64_t time_ns;
	int late;
};

static int is_mapped(struct perfmap_entry *entry, void *context)
{
	struct expiry *expiry = context;

	while (expiry->at < expiry->count && expiry->ranges[expiry->at].end <= entry->start)
		expiry->at++;
	if (entry->gone)
		return 0;
	if (expiry->at < expiry->count && expiry->ranges[expiry->at].start < entry->end)
		entry->mapped = 1;
	else if (entry->mapped && entry->time_ns < expiry->time_ns)
		return entry->gone = expiry->late;
	return 1;
}

size_t perfmap_table_expire(struct perfmap_table *table, const struct perfmap_range *ranges,
			    size_t count, uint64_t time_ns, int late)
{
	struct expiry expiry = {.ranges = ranges, .count = count, .time_ns = time_ns, .late = late};

	return table_filter(table, is_mapped, &expiry);
}

const struct perfmap_entry *perfmap_table_after(const struct perfmap_table *table, uint64_t address)
{
	return entries_at(&table->entries, entries_find(&table->entries, address));
}

const struct perfmap_entry *perfmap_table_find(const struct perfmap_table *table, uint64_t address)
{
	const struct perfmap_entry *entry = perfmap_table_after(table, address);

	return entry && entry->start <= address ? entry : NULL;
}

const struct perfmap_entry *perfmap_table_next(const struct perfmap_table *table, size_t *cursor)
{
	return entries_next(&table->entries, cursor);
}

const char *perfmap_table_name(const struct perfmap_table *table, const struct perfmap_entry *entry)
{
	return strings_get(table->names, entry->name);
}

size_t perfmap_table_count(const struct perfmap_table *table)
{
	return table->entries.count;
}

size_t perfmap_table_memory(const struct perfmap_table *table)
{
	return sizeof(*table) + entries_memory(&table->entries) + strings_memory(table->names);
}

uint64_t perfmap_table_version(const struct perfmap_table *table)
{
	return table->version;
}

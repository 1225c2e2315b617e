/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A perf map of a million entries: the time to build, query and write it, and the memory that it
 * holds. usage: bench_perfmap [N]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "object/perfmap/text.h"
#include "util/clock.h"
#include "util/hash.h"

#define BASE 0x7f0000000000ull
#define STEP 64

static int bytes_count(void *context, const char *data, size_t bytes)
{
	(void)data;
	*(size_t *)context += bytes;
	return 0;
}

static struct perfmap_table *table_build(uint64_t count, int shuffled, size_t *names)
{
	struct perfmap_table *table;
	struct perfmap_entry entry = {0};
	char name[64];

	if (perfmap_table_new(&table))
		return NULL;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t slot = shuffled ? hash_u64(i) % count : i;
		int bytes = snprintf(name, sizeof(name), "py::function_%" PRIu64 ":/srv/app.py", i);

		*names += bytes + 1;
		if (perfmap_table_add(table, BASE + slot * STEP, 48, name, bytes, &entry))
			return NULL;
	}
	return table;
}

static void order_measure(uint64_t count, int shuffled)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC), found = 0, built, asked;
	size_t names = 0, written = 0, entries;
	struct perfmap_table *table = table_build(count, shuffled, &names);

	if (!table)
		exit(1);
	built = clock_ns(CLOCK_MONOTONIC);
	for (uint64_t i = 0; i < count; i++)
		found += perfmap_table_find(table, BASE + hash_u64(i) % (count * STEP)) != NULL;
	asked = clock_ns(CLOCK_MONOTONIC);
	perfmap_text_write(table, bytes_count, &written);
	entries = perfmap_table_count(table);
	printf("perf map, %" PRIu64
	       " entries %s: built in %.3f s, an address resolved in %.3f us (%.0f %% found), %.1f "
	       "bytes an entry beside its name, written in %.3f s\n",
	       count, shuffled ? "in any order, some twice" : "in order",
	       (double)(built - start) / 1e9, (double)(asked - built) / 1e3 / count,
	       100.0 * found / count, (double)(perfmap_table_memory(table) - names) / entries,
	       (double)(clock_ns(CLOCK_MONOTONIC) - asked) / 1e9);
	perfmap_table_free(table);
}

int main(int argc, char **argv)
{
	uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;

	if (!count)
		return 2;
	order_measure(count, 0);
	order_measure(count, 1);
	return 0;
}

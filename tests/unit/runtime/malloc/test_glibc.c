/* SPDX-License-Identifier: Apache-2.0 */
/* glibc's heaps in real processes, against mallinfo2() and the processes' own records. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "malloc_child.h"
#include "proc/memory.h"
#include "runtime/malloc/mapped.h"
#include "runtime/malloc/states.h"
#include "runtime/malloc/walk.h"
#include "sanitized.h"
#include "util/error.h"

#define ROOTS "build/roots"

struct seen {
	const struct malloc_record *record;
	uint64_t end, used_found, free_found, mapped, mapped_bytes;
	uint32_t heap;
	int disorder;
};

static int is_live(const struct malloc_record *record, uint64_t address)
{
	return bsearch(&address, record->live, record->live_count, sizeof(address),
		       child_compare) != NULL;
}

static int chunk_see(const struct glibc_chunk *chunk, void *context)
{
	struct seen *seen = context;

	if (seen->end && seen->heap == chunk->heap && seen->end != chunk->address)
		seen->disorder = 1;
	seen->end = chunk->address + chunk->bytes;
	seen->heap = chunk->heap;
	if (is_live(seen->record, chunk->address + GLIBC_HEADER)) {
		seen->used_found += chunk->kind == GLIBC_USED;
		seen->free_found += chunk->kind != GLIBC_USED;
	}
	return 0;
}

static int mapped_see(uint64_t start, uint64_t bytes, void *context)
{
	struct seen *seen = context;

	seen->used_found += is_live(seen->record, start + GLIBC_HEADER) != 0;
	seen->mapped++;
	seen->mapped_bytes += bytes;
	return 0;
}

static void mallinfo_check(const struct glibc *glibc, const struct glibc_totals *totals,
			   const struct mallinfo2 *info)
{
	uint64_t system = 0, free_bytes = totals->bytes[GLIBC_FAST] + totals->bytes[GLIBC_BIN] +
					  totals->bytes[GLIBC_TOP];

	for (size_t i = 0; i < glibc->arena_count; i++)
		system += glibc->arenas[i].system_bytes;
	assert_int_equal(totals->bytes[GLIBC_UNKNOWN], 0);
	assert_int_equal(totals->cut, 0);
	assert_int_equal(system, info->arena);
	assert_int_equal(free_bytes, info->fordblks);
	assert_int_equal(totals->bytes[GLIBC_FAST], info->fsmblks);
	assert_int_equal(totals->counts[GLIBC_FAST], info->smblks);
	assert_int_equal(totals->counts[GLIBC_BIN] + totals->counts[GLIBC_TOP], info->ordblks);
	assert_int_equal(system - free_bytes, info->uordblks);
	assert_int_equal(glibc->arenas[0].top_bytes, info->keepcost);
	assert_true(glibc->mmaps.known);
	assert_int_equal(glibc->mmaps.count, info->hblks);
	assert_int_equal(glibc->mmaps.bytes, info->hblkhd);
}

/* Every other question is an address that is not live: in the middle of a block. */
static void states_check(struct glibc *glibc, const struct malloc_record *record)
{
	size_t count = (size_t)record->live_count * 2;
	uint64_t *addresses = calloc(count, sizeof(*addresses));
	uint8_t *states = calloc(count, 1);

	for (size_t i = 0; i < record->live_count; i++) {
		addresses[i * 2] = record->live[i];
		addresses[i * 2 + 1] = record->live[i] + GLIBC_ALIGNMENT / 2;
	}
	assert_int_equal(glibc_states(glibc, addresses, count, states), 0);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(states[i], i % 2 ? GLIBC_STATE_FREE : GLIBC_STATE_ALLOCATED);
	free(addresses);
	free(states);
}

static int child_glibc(struct glibc **out, const struct malloc_child *child,
		       const struct process_maps *maps)
{
	struct space *space;
	int err;

	assert_int_equal(space_open(&space, child->pid), 0);
	err = glibc_open(out, space, maps);
	space_close(space);
	return err;
}

static void check_at(const char *root)
{
	struct malloc_child child;
	struct process_maps maps;
	struct glibc *glibc = NULL;
	struct glibc_totals totals;
	struct glibc_range ranges[64];
	struct seen seen;
	int err;

	if (!child_start(&child, root))
		return;
	seen = (struct seen){.record = child.record};
	assert_int_equal(process_maps_read(child.pid, &maps), 0);
	err = child_glibc(&glibc, &child, &maps);
	if (err)
		print_message("%s\n", error_reason(err));
	assert_int_equal(err, 0);
	print_message("glibc 2.%u: %zu arenas, %zu heaps, %u live\n", glibc->minor,
		      glibc->arena_count, glibc->heap_count, child.record->live_count);
	assert_int_equal(glibc->arena_count, CHILD_THREADS + 1);
	assert_int_equal(glibc_walk(glibc, chunk_see, &seen, &totals), 0);
	assert_false(seen.disorder);
	assert_int_equal(seen.free_found, 0);
	assert_true(totals.tcaches > 0 && totals.counts[GLIBC_TCACHE] > 0);
	mallinfo_check(glibc, &totals, &child.record->info);
	for (size_t i = 0; i < glibc->heap_count; i++)
		ranges[i] = (struct glibc_range){glibc->heaps[i].start, glibc->heaps[i].end};
	assert_int_equal(
		glibc_mapped_walk(glibc, &maps, ranges, glibc->heap_count, mapped_see, &seen), 0);
	assert_int_equal(seen.mapped, child.record->info.hblks);
	assert_int_equal(seen.mapped_bytes, child.record->info.hblkhd);
	assert_int_equal(seen.used_found, child.record->live_count);
	states_check(glibc, child.record);
	glibc_close(glibc);
	process_maps_free(&maps);
	child_stop(&child);
}

static void skip_sanitized(void)
{
	if (SANITIZED) {
		print_message("the sanitizers have an allocator of their own\n");
		skip();
	}
}

static void test_here(void **state)
{
	(void)state;
	skip_sanitized();
	check_at(NULL);
}

/* Those of TRACER_ROOTS, separated by colons. Returns how many. */
static int named_roots_check(const char *roots)
{
	char *list = strdup(roots), *rest = list, *root;
	int tried = 0;

	assert_non_null(list);
	while ((root = strsep(&rest, ":")))
		if (*root) {
			check_at(root);
			tried++;
		}
	free(list);
	return tried;
}

static int made_roots_check(void)
{
	char path[PATH_MAX];
	struct dirent *entry;
	int tried = 0;
	DIR *folder = opendir(ROOTS);

	while (folder && (entry = readdir(folder)))
		if (entry->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/%s", ROOTS, entry->d_name);
			check_at(path);
			tried++;
		}
	if (folder)
		closedir(folder);
	return tried;
}

static void test_roots(void **state)
{
	const char *roots = getenv("TRACER_ROOTS");

	(void)state;
	skip_sanitized();
	if (!(roots ? named_roots_check(roots) : made_roots_check())) {
		print_message("no root file systems (make roots)\n");
		skip();
	}
}

/* A process that ends leaves an error, not a guess. */
static void test_ended(void **state)
{
	uint64_t address = 0x1000;
	struct malloc_child child;
	struct process_maps maps;
	struct glibc *glibc;
	uint8_t answer;

	(void)state;
	skip_sanitized();
	assert_int_equal(child_start(&child, NULL), 1);
	assert_int_equal(process_maps_read(child.pid, &maps), 0);
	assert_int_equal(child_glibc(&glibc, &child, &maps), 0);
	child_stop(&child);
	assert_int_equal(glibc_states(glibc, &address, 1, &answer), -ESRCH);
	glibc_close(glibc);
	process_maps_free(&maps);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_here),
		cmocka_unit_test(test_roots),
		cmocka_unit_test(test_ended),
	};

	if (argc == 3 && !strcmp(argv[1], CHILD_WORD))
		child_main(atoi(argv[2]));
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What makes figures incomplete (--require-complete), and what does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "report/caveats/completeness.h"
#include "report_text.h"

static void complete(const struct snapshot *snapshot)
{
	char why[INCOMPLETE_WHY] = "";

	if (!figures_are_complete(snapshot, why))
		fail_msg("not complete: %s", why);
}

static void lacking(const struct snapshot *snapshot, const char *what)
{
	char why[INCOMPLETE_WHY] = "";

	assert_false(figures_are_complete(snapshot, why));
	contains(why, what);
}

static void test_what_every_trace_lacks(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_meta *meta = &snapshot->meta;

	complete(snapshot);
	meta->coverage_known = 1;
	meta->coverage.old_blocks = 100000;
	meta->frees_unknown = 100;
	meta->rounded_blocks = 10;
	meta->loss[LOSS_FRAME_FAULT] = 5;
	meta->stack_ends.reasons[0] = 3;
	meta->unknown[UNKNOWN_NO_FRAME].blocks = 4;
	complete(snapshot);
	meta->sample_bytes = 4096;
	complete(snapshot);
	meta->sample_bytes = 0;
	meta->windows.count = 9;
	complete(snapshot);
	snprintf(meta->mode, sizeof(meta->mode), SNAPSHOT_TRACEMALLOC);
	complete(snapshot);
}

static void test_sums(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_meta *meta = &snapshot->meta;
	const struct {
		uint64_t *count;
		const char *one, *many;
	} cases[] = {
		{&meta->loss[LOSS_FREE], "1 event was lost", "2,000 events were lost"},
		{&meta->loss[LOSS_SHARER], "1 event was lost", "2,000 events were lost"},
		{&meta->records_malformed, "1 record was", "2,000 records were"},
		{&meta->blocks_dropped, "1 block was dropped", "2,000 blocks were dropped"},
		{&meta->regions_dropped, "1 change of mapped", "2,000 changes of mapped"},
		{&meta->windows.unseen_blocks, "1 new block is in no line", "2,000 new blocks are"},
		{&meta->unknown[UNKNOWN_NO_STACK].blocks, "1 block is at <unknown>",
		 "2,000 blocks are at <unknown>"},
		{&meta->coverage.pools_unreadable, "1 pool could", "2,000 pools could"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		*cases[i].count = 1;
		lacking(snapshot, cases[i].one);
		*cases[i].count = 2000;
		lacking(snapshot, cases[i].many);
		*cases[i].count = 0;
	}
	complete(snapshot);
}

static void test_process(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_meta *meta = &snapshot->meta;

	meta->change_count = 2;
	meta->changes[0].mode = EVENT_MODE_EXACT;
	meta->changes[1].mode = EVENT_MODE_CENSUS;
	complete(snapshot);
	meta->changes[1].mode = EVENT_MODE_OFF;
	lacking(snapshot, "nothing was traced for a time");
	meta->change_count = 0;
	meta->large_skipped = 1;
	lacking(snapshot, "blocks of more than 512 bytes were not traced");
	meta->large_skipped = 0;
	/* The report's warnings. */
	meta->unread_ns = 412300000;
	snprintf(meta->moment, sizeof(meta->moment), "exited");
	lacking(snapshot, "the heap was not read before the end");
	meta->unread_ns = 0;
	meta->coverage_known = 1;
	meta->coverage.new_blocks = 5000;
	meta->coverage.seen_blocks = 4000;
	lacking(snapshot, "of 5000 small blocks that are new on the heap, only 4000 were seen");
	meta->parent = 10;
	lacking(snapshot, "1,000 new blocks are in no line");
	meta->coverage.seen_blocks = 4990;
	complete(snapshot);
}

static void test_one_of_several(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_meta processes[] = {snapshot->meta, snapshot->meta};

	processes[1].pid = 77;
	snapshot->processes = processes;
	snapshot->process_count = 2;
	complete(snapshot);
	processes[1].large_skipped = 1;
	lacking(snapshot, "PID 77: blocks of more than 512 bytes");
	snapshot->processes = NULL;
	snapshot->process_count = 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_what_every_trace_lacks),
		TEST(test_sums),
		TEST(test_process),
		TEST(test_one_of_several),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

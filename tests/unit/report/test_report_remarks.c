/* SPDX-License-Identifier: Apache-2.0 */
/* What a report says about its own limits: losses, coverage, inconsistencies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "report/report.h"
#include "report_text.h"
#include "snapshots.h"

/* Returns the report with one kind of loss. */
static char *report_lost(struct snapshot *snapshot, enum event_loss_kind kind, uint64_t count)
{
	memset(snapshot->meta.loss, 0, sizeof(snapshot->meta.loss));
	snapshot->meta.loss[kind] = count;
	return report(snapshot, (struct report_opts){.by = GROUP_LINENO, .top = 1}, report_text);
}

static void test_losses(void **state)
{
	struct snapshot *snapshot = *state;
	char *text = report_lost(snapshot, LOSS_FREE, 1234);

	contains(text, "lost events: 1,234: 1,234 frees (ring buffer full); live figures are upper "
		       "bounds: ");
	free(text);
	text = report_lost(snapshot, LOSS_ALLOC, 1);
	contains(text,
		 "1 allocation of 0 B (ring buffer full); blocks of lost allocations are not in "
		 "the report");
	lacks(text, "upper");
	contains(text, "; --sample or --overhead reduces the number of events\n");
	free(text);
	snapshot->meta.sample_bytes = 4096;
	text = report_lost(snapshot, LOSS_ALLOC, 1);
	lacks(text, "--overhead");
	snapshot->meta.sample_bytes = 0;
	free(text);
	text = report_lost(snapshot, LOSS_REALLOC, 2);
	contains(text, "live figures are upper bounds: some blocks may be dead; blocks "
		       "of lost");
	free(text);
	snapshot->meta.coverage_known = 1;
	text = report_lost(snapshot, LOSS_FREE, 1234);
	contains(text, "(ring buffer full); small blocks are checked against the heap");
	lacks(text, "upper");
	snapshot->meta.coverage_known = 0;
	free(text);
	text = report_lost(snapshot, LOSS_REUSE, 1);
	contains(text,
		 "lost events: 1: 1 reuse of a dead object (ring buffer full); some reused objects "
		 "are charged");
	lacks(text, "bounds");
	free(text);
	text = report_lost(snapshot, LOSS_FRAME_FAULT, 2);
	contains(text, "lost events: none");
	contains(text, "tracebacks cut short by a page that was not resident: 2\n");
	lacks(text, "bounds");
	lacks(text, "ring buffer");
	free(text);
}

static void test_coverage(void **state)
{
	struct snapshot *snapshot = *state;
	struct report_opts opts = {.by = GROUP_LINENO, .top = 1};
	char *text = report(snapshot, opts, report_text);

	contains(text, "coverage: not measured");
	contains(text, "older than the trace: blocks from before the attach are not in the report "
		       "(not measured)");
	free(text);
	snapshot->meta.coverage_known = 1;
	snapshot->meta.coverage.new_blocks = 123456;
	snapshot->meta.coverage.seen_blocks = 123455;
	snapshot->meta.coverage.new_bytes = snapshot->meta.coverage.seen_bytes = 1000;
	snapshot->meta.coverage.old_blocks = 12;
	text = report(snapshot, opts, report_text);
	contains(text,
		 "Not seen: 12 blocks (0 B) older than the trace; no event lost, 99.9 % of 123,456 "
		 "new small blocks traced\n");
	free(text);
	snapshot->meta.coverage.seen_blocks = 98 * 1234;
	text = report(snapshot, opts, report_text);
	contains(text,
		 "\n  coverage: 97.9 % of the 123,456 small blocks (100.0 % of bytes) that are new "
		 "on the heap since the attach\n");
	contains(text, "\n  older than the trace: 12 small blocks (0 B) on the heap are not in the "
		       "report\n");
	free(text);
}

static size_t lines_of(const char *text)
{
	size_t count = 0;

	for (; *text; text++)
		count += *text == '\n';
	return count;
}

/* A page of a terminal says in one line how good its figures are. */
static void test_page(void **state)
{
	struct snapshot *snapshot = *state;
	struct report_opts opts = {
		.by = GROUP_LINENO, .top = 10, .tables = 1, .brief = 80, .next = "tracer list"};
	char *text = report(snapshot, opts, report_text);

	contains(text, "\nFigures: complete since the attach; older blocks not in it; -v: more\n"
		       "next: tracer list\n");
	lacks(text, "Not seen");
	assert_true(lines_of(text) <= REPORT_BRIEF_LINES);
	free(text);
	snapshot->meta.loss[LOSS_FREE] = 1234;
	snapshot->meta.coverage_known = 1;
	snapshot->meta.coverage.new_blocks = 1000;
	snapshot->meta.coverage.seen_blocks = 973;
	text = report(snapshot, opts, report_text);
	contains(text, "\nFigures: 1,234 events lost; 97.3 % of new blocks in it; ");
	lacks(text, "complete");
	free(text);
	/* The clauses that have no room are left out, the first one never. */
	opts.brief = 24;
	text = report(snapshot, opts, report_text);
	contains(text, "\nFigures: 1,234 events lost; -v: more\n");
	free(text);
	opts.brief = 0;
	text = report(snapshot, opts, report_text);
	contains(text, "\nNot seen:\n  lost events: 1,234: ");
	lacks(text, "Figures");
	free(text);
}

/* Windows: large blocks that none has shown are in no line, since nothing is like them. */
static void test_large_windows(void **state)
{
	struct snapshot *snapshot = *state;
	struct report_opts opts = {.by = GROUP_LINENO, .top = 1};
	char *text;

	snapshot->meta.windows.count = 9;
	snapshot->meta.rss_bytes = 24 << 20;
	snapshot->meta.coverage_known = 1;
	snapshot->meta.coverage.live_bytes = 10 << 20;
	snapshot->meta.coverage.large_blocks = 1778;
	snapshot->meta.coverage.large_seen = 3;
	text = report(snapshot, opts, report_text);
	contains(text,
		 "\n  large blocks: 1,775 of 1,778 that were passed on to malloc were not seen, "
		 "since they are older than the trace; those that are older are in no line, "
		 "and their size is not known (of RSS, 14.0 MiB are outside pools)\n");
	free(text);
	/* Their malloc's heap cannot be walked, and they are not traced. */
	snapshot->meta.coverage.large_new = 1003;
	snapshot->meta.windows.unseen_blocks = 1002;
	snapshot->meta.windows.unseen_bytes = 128;
	text = report(snapshot, opts, report_text);
	contains(text,
		 "were not seen: at least 1,000 were allocated since the trace began, and not "
		 "traced; at most 775 are older; these are in no line, and their size is not "
		 "known");
	contains(text,
		 "in no line: 2 blocks (128 B), and at least 1,000 of more than 512 bytes, of "
		 "unknown size\n");
	free(text);
	snapshot->meta.windows.large = 1;
	text = report(snapshot, opts, report_text);
	contains(text, "since they are older than the trace or were allocated between windows;");
	free(text);
	snapshot->meta.coverage.large_seen = 1778;
	text = report(snapshot, opts, report_text);
	assert_null(strstr(text, "large blocks:"));
	free(text);
}

/* Every fault of a trace is reported in full; a trace without faults is reported in one line. */
static void test_well(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_meta *meta = &snapshot->meta, well;
	uint64_t *const faults[] = {
		&meta->loss[LOSS_FREE],
		&meta->loss[LOSS_NO_THREAD],
		&meta->coverage.pools_unreadable,
		&meta->coverage.large_new,
		&meta->frames_unknown,
		&meta->stacks_unknown,
		&meta->replaced,
		&meta->blocks_dropped,
		&meta->records_malformed,
		&meta->coverage.frozen_ns,
		&meta->walks_dropped,
		&meta->native.replaced,
	};
	const struct report_opts opts = {.by = GROUP_LINENO, .top = 1};

	meta->coverage_known = meta->from_start = 1;
	well = *meta;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		char *text = report(snapshot, opts, report_text);

		contains(text, "\nNot seen: no event lost\n");
		free(text);
		*faults[i] = 5;
		text = report(snapshot, opts, report_text);
		contains(text, "\nNot seen:\n  lost events: ");
		free(text);
		*meta = well;
	}
	meta->unread_ns = 200000000; /* there was no time for a last heap walk */
	char *text = report(snapshot, opts, report_text);

	contains(
		text,
		"\n  the heap was last read 200.0 ms before the end: small blocks freed since then "
		"are counted as live\n");
	free(text);
}

static void test_rss(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_meta *meta = &snapshot->meta;
	struct report_opts opts = {.by = GROUP_LINENO, .top = 1};
	char *text = report(snapshot, opts, report_json);

	lacks(text, "rss");
	free(text);
	meta->rss_bytes = 352 << 20;
	text = report(snapshot, opts, report_json);
	contains(text, "\"rss\": 369098752, \"explained\": 1049015, \"");
	free(text);
	text = report(snapshot, opts, report_text);
	contains(text, "  RSS 352 MiB: 1024 KiB in this report; --layer all shows more\n");
	free(text);
	meta->coverage_known = meta->from_start = 1;
	meta->rss_age_ns = 510000000;
	text = report(snapshot, opts, report_text);
	contains(text,
		 "no event lost; RSS 352 MiB, read 0.5 s before: 1024 KiB in this report; --layer");
	free(text);
	/* Blocks that were never written to occupy no memory. */
	meta->rss_bytes = 4096;
	meta->layers = 1u << EVENT_LAYER_NATIVE | 1u << EVENT_LAYER_MMAP;
	text = report(snapshot, opts, report_text);
	contains(text, "RSS 4096 B, read 0.5 s before: 4096 B in this report\n");
	free(text);
	/* Filtered blocks are not in that sum, so it is not printed. */
	opts.filters = &(struct filters){.no_inherited = 1};
	text = report(snapshot, opts, report_text);
	lacks(text, "RSS");
	free(text);
}

static void warns(const struct snapshot *snapshot, const char *sentence)
{
	char expected[400];
	char *text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_text);

	snprintf(expected, sizeof(expected), "Warning: %s\ntracer: ", sentence);
	if (strncmp(text, expected, strlen(expected)) != 0)
		fail_msg("\"%s\" is not the first line of:\n%s", sentence, text);
	free(text);
	text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_json);
	snprintf(expected, sizeof(expected), "\"warnings\": [\"%s\"], ", sentence);
	contains(text, expected);
	free(text);
}

static void warns_not(const struct snapshot *snapshot)
{
	char *text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_text);

	lacks(text, "Warning");
	free(text);
	text = report(snapshot, (struct report_opts){.by = GROUP_LINENO}, report_json);
	lacks(text, "warnings");
	free(text);
}

/*
 * Inconsistencies between the interpreter's own figures of its heap and the trace are reported
 * before the figures.
 */
static void test_inconsistencies(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_coverage *counts = &snapshot->meta.coverage;

	snapshot->meta.coverage_known = 1;
	*counts = (struct snapshot_coverage){
		.large_seen = 1300, .large_new = 300, .large_blocks = 1300};
	counts->new_blocks = 10000;
	counts->seen_blocks = 9900;
	warns_not(snapshot);
	counts->large_seen = 25840;
	warns(snapshot,
	      "25840 blocks of more than 512 bytes are counted as live, but the interpreter has "
	      "only 1300: the others are dead, and make the figures too large");
	snprintf(snapshot->meta.mode, sizeof(snapshot->meta.mode), "census");
	warns(snapshot,
	      "25840 blocks of more than 512 bytes are counted as live, but the interpreter has "
	      "only 1300: the others are dead, and make the figures too large");
	counts->large_seen = 2;
	warns(snapshot,
	      "the interpreter counts 300 more blocks of over 512 bytes than at the start of the "
	      "trace, but only 2 of them are known: the others may not be in the report");
	snapshot->meta.large_skipped = 1;
	warns_not(snapshot);
	counts->seen_blocks = 1000;
	warns(snapshot,
	      "of 10000 small blocks that are new on the heap, only 1000 were seen: the others are "
	      "not in the report");
	counts->seen_blocks = counts->new_blocks;
	counts->typed_blocks = 1000;
	counts->mistyped_blocks = 36;
	warns_not(snapshot);
	counts->mistyped_blocks = 37;
	warns(snapshot,
	      "of 1000 objects whose types give their sizes, 37 differ from the traced size: their "
	      "blocks may be charged to the lines of earlier ones");
	snapshot->meta.sample_bytes = 4096;
	warns_not(snapshot);
	snapshot->meta.ends_unseen = 1;
	warns(snapshot,
	      "an allocator function that the interpreter exports leads to no probed site "
	      "(--dry-run names it): blocks that are allocated or freed through it may not be "
	      "seen");
	snapshot->meta.ends_unseen = 0;
	snapshot->meta.reuse_unseen = 1;
	warns(snapshot,
	      "not all objects that are taken from free lists are seen: blocks may be charged to "
	      "the lines of earlier objects");
}

/* Figures that depend on a heap that was not walked are reported with a warning. */
static void test_unread_warned(void **state)
{
	struct snapshot *snapshot = *state;
	struct snapshot_meta *meta = &snapshot->meta;

	snprintf(meta->mode, sizeof(meta->mode), "census");
	meta->unread_ns = 20000000;
	warns_not(snapshot); /* it runs, and its heap was walked lately */
	meta->unread_ns = 412300000;
	snprintf(meta->moment, sizeof(meta->moment), "exited");
	warns(snapshot,
	      "the heap was not read before the end: small blocks that were freed are counted as "
	      "live");
	meta->coverage_known = 1;
	warns(snapshot,
	      "the heap was last read 412.3 ms before the end: small blocks that were freed since "
	      "then are counted as live");
	snprintf(meta->mode, sizeof(meta->mode), "growth");
	warns(snapshot,
	      "the heap was last read 412.3 ms before the end: pools that were given back since "
	      "then are "
	      "counted as in use");
	meta->unread_ns = 20;
	warns_not(snapshot);
	snprintf(meta->mode, sizeof(meta->mode), "census");
	snprintf(meta->moment, sizeof(meta->moment), "running");
	meta->coverage_known = 0;
	meta->walks_dropped = 3;
	warns(snapshot,
	      "there was no memory to read the heap (--budget): small blocks that were freed are "
	      "counted as live");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_losses),          TEST(test_coverage),      TEST(test_page),
		TEST(test_large_windows),   TEST(test_well),          TEST(test_rss),
		TEST(test_inconsistencies), TEST(test_unread_warned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

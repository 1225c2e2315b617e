/* SPDX-License-Identifier: Apache-2.0 */
/* tracemalloc's files, written and read back, without a Python; tests/oracle has the real ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "report/tracemalloc/snapshot_file.h"
#include "report/tracemalloc/tracemalloc.h"
#include "snapshots.h"
#include "util/error.h"

#define FRAMES(...) ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})

static struct snapshot *write_read(const struct snapshot *snapshot, enum tracemalloc_layout layout)
{
	char directory[] = "/tmp/test_tracemalloc.XXXXXX", path[64];
	struct snapshot *back;
	struct outfile *file;

	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/snapshot.pickle", directory);
	assert_int_equal(outfile_open(&file, path, OUTFILE_ANY), 0);
	assert_int_equal(tracemalloc_write(snapshot, layout, file), 0);
	assert_int_equal(outfile_commit(file), 0);
	assert_int_equal(snapshot_load(path, &back), 0);
	unlink(path);
	rmdir(directory);
	return back;
}

/*
 * More blocks than a batch has, numbers of every width, the same traceback with two totals, a byte
 * that is not UTF-8.
 */
static void test_round_trip(void **state)
{
	struct builder builder;
	struct snapshot *snapshot, *back;
	(void)state;

	assert_int_equal(builder_begin(&builder), 0);
	builder.snapshot->meta.traceback_limit = 128;
	assert_int_equal(snapshot_add(&builder, FRAMES({"a\xff", "f", 255}, {"b", "g", 65536}), 2,
				      0, 300, 2500),
			 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"a\xff", "f", 255}, {"b", "g", 65536}), 9,
				      7, 70000, 1),
			 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"b", "f", UINT32_MAX}), 1, UINT32_MAX,
				      1ull << 50, 2),
			 0);
	snapshot = builder_finish(&builder);
	back = write_read(snapshot, TRACEMALLOC_3_9);
	assert_int_equal(back->trace_count, 2503);
	assert_int_equal(back->meta.traceback_limit, 128);
	for (size_t i = 0; i < 2503; i++) {
		const struct snapshot_trace *x = &snapshot->traces[i < 2500   ? 0
								   : i < 2501 ? 1
									      : 2],
					    *y = &back->traces[i];
		const struct snapshot_traceback *s = &snapshot->tracebacks[x->traceback],
						*t = &back->tracebacks[y->traceback];

		assert_int_equal(x->bytes, y->bytes);
		assert_int_equal(x->domain, y->domain);
		assert_int_equal(y->count, 1);
		assert_int_equal(s->nframe, t->nframe);
		assert_int_equal(s->total, t->total);
		assert_int_equal(snapshot->frames[s->first].line, back->frames[t->first].line);
	}
	assert_string_equal(
		strings_get(
			back->strings,
			back->frames[back->tracebacks[back->traces[0].traceback].first].filename),
		"a\xed\xb3\xbf");
	snapshot_free(back);
	back = write_read(snapshot, TRACEMALLOC_3_8);
	assert_int_equal(tracemalloc_layout_of(back), TRACEMALLOC_3_8);
	assert_int_equal(back->tracebacks[0].total, SNAPSHOT_TOTAL_UNKNOWN);
	snapshot_free(back);
	snapshot_free(snapshot);
}

static void test_too_many(void **state)
{
	struct builder builder;
	struct snapshot *snapshot;
	(void)state;

	assert_int_equal(builder_begin(&builder), 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"a", "f", 1}), 1, 0, 1, 1ull << 40), 0);
	snapshot = builder_finish(&builder);
	assert_int_equal(tracemalloc_write(snapshot, TRACEMALLOC_3_9, NULL), -EFBIG);
	snapshot_free(snapshot);
}

static void refused(const char *data, size_t bytes, const char *reason)
{
	unsigned char *copy = malloc(bytes);
	struct snapshot *back;

	assert_non_null(copy);
	memcpy(copy, data, bytes);
	struct infile file = infile_memory(copy, bytes);
	assert_int_equal(tracemalloc_read(&file, &back), -EBADMSG);
	if (!strstr(error_reason(-EBADMSG), reason))
		fail_msg("no \"%s\" in \"%s\"", reason, error_reason(-EBADMSG));
	free(copy);
}
#define REFUSED(data, reason) refused(data, sizeof(data) - 1, reason)

static void test_refused(void **state)
{
	(void)state;

	REFUSED("\x80\x04"
		"cos\nsystem\n.",
		"byte 2: os.system");
	REFUSED("\x80\x04R", "byte 2: 0x52");
	REFUSED("\x80\x07.", "protocol 7");
	REFUSED("\x80\x04(t.", "without a complete Snapshot");
	REFUSED("\x80\x04(((((((((((((((((", "nested");
	REFUSED("\x80\x04h\x01", "entry 1 of a memo of 0");
	REFUSED("\x80\x04K", "truncated");
	/* A trace could start at the end of the file: nothing beyond it is read. */
	REFUSED("\x80\x04(K\x01K\x02h", "truncated");
	REFUSED("\x80\x04(K\x01K\x02h\x00K\x01t", "entry 0 of a memo of 0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

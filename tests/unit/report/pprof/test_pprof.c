/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "place.h"
#include "report/pprof/pprof.h"
#include "report/pprof/pprof_format.h"
#include "report/tracemalloc/snapshot_file.h"
#include "snapshot/meta.h"
#include "snapshots.h"
#include "util/array.h"
#include "util/buffer.h"
#include "util/error.h"

#define FRAMES(...) ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})

/* Every field of the metadata has a value that is not 0 and differs from the others. */
static void meta_fill(struct snapshot_meta *meta)
{
	*meta = (struct snapshot_meta){
		.pid = 4000000000u,
		.python_version = 0x030b07f0,
		.traceback_limit = 128,
		.name = "py\xff=x\n",
		.mode = "exact",
		.moment = "finalizing",
		.taken_realtime_ns = UINT64_MAX,
		.duration_ns = 12,
		.from_start = 1,
		.peak_bytes = 13,
		.frees_unknown = 14,
		.replaced = 15,
		.stacks_unknown = 16,
		.frames_unknown = 17,
		.records_malformed = 18,
		.unknown = {{38, 39}, {40, 41}, {42, 43}, {44, 45}, {46, 47}, {48, 49}},
		.rounded_blocks = 27,
		.reuse_unseen = 1,
		.of_app = 1,
		.sample_bytes = 28,
		.changes_dropped = 29,
		.change_count = 2,
		.changes = {{30, 31, 32, 33, 34, 35},
			    {UINT64_MAX, 35, 36, 37, UINT32_MAX, UINT32_MAX}},
		.coverage_known = 1,
		.coverage.new_blocks = 19,
		.coverage.new_bytes = 20,
		.coverage.seen_blocks = 21,
		.coverage.seen_bytes = 22,
		.coverage.old_blocks = 23,
		.coverage.old_bytes = 24,
		.coverage.large_new = 25,
		.coverage.large_seen = 26,
		.ends_unseen = 1,
		.coverage.typed_blocks = 27,
		.coverage.mistyped_blocks = 28,
	};
	for (unsigned int i = 0; i < LOSS_COUNT; i++)
		meta->loss[i] = 100 + i;
}

static struct snapshot *snapshot_rich(void)
{
	struct builder builder;
	struct frame_text deep[EVENT_MAX_FRAMES + 1] = {0};

	assert_int_equal(builder_begin(&builder), 0);
	meta_fill(&builder.snapshot->meta);
	for (uint32_t i = 0; i < EVENT_MAX_FRAMES; i++)
		deep[i] = (struct frame_text){i % 2 ? "deep.py" : "\xe6\xb7\xb1.py", "f", i % 7};
	assert_int_equal(snapshot_add(&builder, deep, 1000, 0, 48, 3), 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"<unknown>", "<unknown>", 0}), 1, 0, 0, 5),
			 0);
	assert_int_equal(snapshot_add(&builder,
				      FRAMES({"a\xed\xb3\xbf.py", "g.<locals>.h", UINT32_MAX}), 4,
				      389047, 1ull << 40, 2),
			 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"", "", 1}), 1, UINT32_MAX, 7, 1), 0);
	builder.snapshot->traces[1].flags = SNAPSHOT_ROUNDED;
	builder.snapshot->traces[2].flags = SNAPSHOT_ROUNDED | SNAPSHOT_INHERITED;
	/* The same frames as those of trace 1, without its flag. */
	assert_int_equal(snapshot_add(&builder, FRAMES({"<unknown>", "<unknown>", 0}), 1, 0, 0, 4),
			 0);
	/* The same line in two functions; the same frames with a different total. */
	assert_int_equal(
		snapshot_add(&builder, FRAMES({"s.py", "f", 1}, {"s.py", "g", 1}), 2, 0, 8, 1), 0);
	assert_int_equal(
		snapshot_add(&builder, FRAMES({"s.py", "f", 1}, {"s.py", "g", 1}), 3, 0, 8, 1), 0);
	return builder_finish(&builder);
}

static void snapshot_equal(const struct snapshot *a, const struct snapshot *b)
{
	assert_memory_equal(&a->meta, &b->meta, sizeof(a->meta));
	assert_int_equal(a->trace_count, b->trace_count);
	assert_int_equal(a->traceback_count, b->traceback_count);
	for (size_t i = 0; i < a->trace_count; i++) {
		const struct snapshot_trace *x = &a->traces[i], *y = &b->traces[i];
		const struct snapshot_traceback *s = &a->tracebacks[x->traceback],
						*t = &b->tracebacks[y->traceback];

		assert_int_equal(x->bytes, y->bytes);
		assert_int_equal(x->count, y->count);
		assert_int_equal(x->domain, y->domain);
		assert_int_equal(x->flags, y->flags);
		assert_int_equal(s->nframe, t->nframe);
		assert_int_equal(s->total, t->total);
		for (uint32_t f = 0; f < s->nframe; f++) {
			const struct snapshot_frame *m = &a->frames[s->first + f],
						    *n = &b->frames[t->first + f];

			assert_string_equal(strings_get(a->strings, m->filename),
					    strings_get(b->strings, n->filename));
			assert_string_equal(strings_get(a->strings, m->function),
					    strings_get(b->strings, n->function));
			assert_int_equal(m->line, n->line);
		}
	}
}

static void snapshot_write(const struct snapshot *snapshot, const char *path)
{
	struct outfile *file;

	assert_int_equal(outfile_open(&file, path, OUTFILE_ANY), 0);
	assert_int_equal(pprof_write(snapshot, file), 0);
	assert_int_equal(outfile_commit(file), 0);
}

static void test_round_trip(void **state)
{
	struct place *place = *state;
	struct snapshot *snapshot = snapshot_rich(), *back, *copy;

	snapshot_write(snapshot, place->path);
	assert_int_equal(snapshot_load(place->path, &back), 0);
	snapshot_equal(snapshot, back);
	assert_int_equal(snapshot_copy(back, &copy), 0);
	snapshot_free(back);
	snapshot_equal(snapshot, copy);
	snapshot_free(copy);
	snapshot_free(snapshot);
}

static void test_empty(void **state)
{
	struct place *place = *state;
	struct builder builder;
	struct snapshot *snapshot, *back;

	assert_int_equal(builder_begin(&builder), 0);
	snapshot = builder_finish(&builder);
	snapshot_write(snapshot, place->path);
	assert_int_equal(snapshot_load(place->path, &back), 0);
	snapshot_equal(snapshot, back);
	snapshot_free(back);
	snapshot_free(snapshot);
}

/* The uncompressed profile of a file. */
static void profile_load(const char *path, struct buffer *out)
{
	unsigned char chunk[4096];
	gzFile file = gzopen(path, "rb");
	int got;

	assert_non_null(file);
	while ((got = gzread(file, chunk, sizeof(chunk))) > 0)
		assert_int_equal(buffer_append(out, chunk, (size_t)got), 0);
	assert_int_equal(gzclose(file), Z_OK);
}

/*
 * A profile that is truncated or has any byte changed is refused or read as a different one.
 * Nothing worse happens.
 */
static void test_damaged_profile(void **state)
{
	struct place *place = *state;
	struct snapshot *snapshot = snapshot_rich(), *back;
	struct buffer profile = {0};
	size_t refused = 0;

	snapshot_write(snapshot, place->path);
	profile_load(place->path, &profile);
	for (size_t size = 0; size < profile.size; size++) {
		/* A copy of exactly that size, so that a sanitizer detects a read beyond it. */
		unsigned char *cut = malloc(size + !size);

		memcpy(cut, profile.data, size);
		int err = pprof_parse(cut, size, &back);
		free(cut);
		if (!err)
			snapshot_free(back);
		else
			assert_int_equal(err, -EBADMSG);
		refused += err != 0;
	}
	assert_true(refused > profile.size / 2);
	for (size_t at = 0; at < profile.size; at++) {
		profile.data[at] ^= 0xff;
		int err = pprof_parse(profile.data, profile.size, &back);
		profile.data[at] ^= 0xff;
		if (!err)
			snapshot_free(back);
		else
			assert_int_equal(err, -EBADMSG);
	}
	buffer_free(&profile);
	snapshot_free(snapshot);
}

static void test_damaged_file(void **state)
{
	struct place *place = *state;
	struct snapshot *snapshot = snapshot_rich(), *back;
	struct stat stat_buf;
	FILE *file;

	snapshot_write(snapshot, place->path);
	file = fopen(place->path, "a");
	assert_true(fputs("more", file) >= 0 && !fclose(file));
	assert_int_equal(snapshot_load(place->path, &back), -EBADMSG);
	snapshot_write(snapshot, place->path);
	assert_int_equal(stat(place->path, &stat_buf), 0);
	assert_int_equal(truncate(place->path, stat_buf.st_size - 9), 0);
	assert_int_equal(snapshot_load(place->path, &back), -EBADMSG);
	assert_non_null(strstr(error_reason(-EBADMSG), "truncated"));
	assert_int_equal(truncate(place->path, 0), 0);
	assert_int_equal(snapshot_load(place->path, &back), -EBADMSG);
	file = fopen(place->path, "w");
	assert_true(fputs("plain text", file) >= 0 && !fclose(file));
	assert_int_equal(snapshot_load(place->path, &back), -EBADMSG);
	assert_int_equal(unlink(place->path), 0);
	assert_int_equal(snapshot_load(place->path, &back), -ENOENT);
	snapshot_free(snapshot);
}

/*
 * The mapped layer is written beside the blocks and is read back unchanged. Without it, nothing is
 * written for it.
 */
static void test_mapped(void **state)
{
	struct place *place = *state;
	struct snapshot *snapshot = snapshot_rich(), *back;
	const struct snapshot_trace ranges[] = {
		{.traceback = 1, .bytes = 4096, .count = 1},
		{.traceback = 0, .bytes = 1ull << 40, .count = 1},
	};

	snapshot->layers[EVENT_LAYER_MMAP].traces =
		calloc(2, sizeof(*snapshot->layers[EVENT_LAYER_MMAP].traces));
	assert_non_null(snapshot->layers[EVENT_LAYER_MMAP].traces);
	memcpy(snapshot->layers[EVENT_LAYER_MMAP].traces, ranges, sizeof(ranges));
	snapshot->layers[EVENT_LAYER_MMAP].trace_count = 2;
	snapshot->meta.layers = 1u << EVENT_LAYER_MMAP;
	snapshot->meta.large_skipped = snapshot->meta.reuse_unseen = 1;
	snapshot->meta.pool_bytes = 16384;
	snapshot->meta.regions_dropped = 3;
	snapshot_write(snapshot, place->path);
	assert_int_equal(snapshot_load(place->path, &back), 0);
	snapshot_equal(snapshot, back);
	assert_int_equal(back->layers[EVENT_LAYER_MMAP].trace_count, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(back->layers[EVENT_LAYER_MMAP].traces[i].bytes, ranges[i].bytes);
		assert_int_equal(back->layers[EVENT_LAYER_MMAP].traces[i].count, 1);
	}
	/* Each has the same line as in the snapshot. */
	struct snapshot layer = snapshot_of_layer(back, EVENT_LAYER_MMAP);
	assert_int_equal(layer.trace_count, 2);
	assert_int_equal(back->tracebacks[layer.traces[0].traceback].nframe,
			 snapshot->tracebacks[ranges[0].traceback].nframe);
	assert_int_equal(back->tracebacks[layer.traces[1].traceback].nframe,
			 snapshot->tracebacks[ranges[1].traceback].nframe);
	snapshot_free(snapshot);
	assert_int_equal(snapshot_copy(back, &snapshot), 0);
	assert_int_equal(snapshot->layers[EVENT_LAYER_MMAP].trace_count, 2);
	assert_int_equal(snapshot->layers[EVENT_LAYER_MMAP].traces[0].bytes, 4096);
	snapshot_free(snapshot);
	snapshot_free(back);
}

/* Three layers at once, with each of them as the first. */
static void test_layers(void **state)
{
	static const enum event_layer firsts[] = {EVENT_LAYER_PYTHON, EVENT_LAYER_NATIVE,
						  EVENT_LAYER_MMAP};
	struct place *place = *state;

	for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++) {
		struct snapshot *snapshot = snapshot_rich(), *back;

		snapshot->meta.layer = firsts[i];
		for (int layer = 0; layer < EVENT_LAYERS; layer++) {
			struct snapshot_layer *extra = &snapshot->layers[layer];

			if (layer == (int)firsts[i])
				continue;
			snapshot->meta.layers |= 1u << layer;
			extra->traces = calloc(1, sizeof(*extra->traces));
			assert_non_null(extra->traces);
			extra->traces[0] =
				(struct snapshot_trace){.bytes = 100 + (uint64_t)layer, .count = 3};
			extra->trace_count = 1;
		}
		snapshot->meta.native = (struct snapshot_table){7, 8, 9};
		snapshot->meta.frames_unnamed = 10;
		snapshot->meta.stack_ends.reasons[ABI_UNWIND_CUT_FRAME] = 11;
		snapshot->meta.stack_ends.whole_bytes = 13;
		snapshot->meta.stack_ends.cut_bytes = 14;
		snapshot->meta.frames_slow = 12;
		snapshot_write(snapshot, place->path);
		assert_int_equal(snapshot_load(place->path, &back), 0);
		snapshot_equal(snapshot, back);
		assert_int_equal(back->meta.layers, snapshot->meta.layers);
		assert_memory_equal(&back->meta.native, &snapshot->meta.native,
				    sizeof(back->meta.native));
		assert_memory_equal(&back->meta.stack_ends, &snapshot->meta.stack_ends,
				    sizeof(back->meta.stack_ends));
		for (int layer = 0; layer < EVENT_LAYERS; layer++) {
			assert_int_equal(back->layers[layer].trace_count, layer != (int)firsts[i]);
			if (layer != (int)firsts[i])
				assert_int_equal(back->layers[layer].traces[0].bytes, 100 + layer);
		}
		snapshot_free(snapshot);
		snapshot_free(back);
	}
}

static void profile_refused(const void *profile, size_t size, const char *reason)
{
	struct snapshot *back;

	assert_int_equal(pprof_parse(profile, size, &back), -EBADMSG);
	assert_non_null(strstr(error_reason(-EBADMSG), reason));
}

static void test_others(void **state)
{
	static const char foreign[] = "\x32\x00" /* string 0: "" */
				      "\x32\x03"
				      "cpu"       /* string 1 */
				      "\x68\x01"; /* comment 1 */
	static const char newer[] = "\x32\x00\x32\x11tracer:snapshot=2\x68\x01";
	/* keep_frames 1 */
	static const char newer_lines[] = "\x32\x00\x32\x12tracer:snapshot=2\n\x40\x01";
	static const char no_lines[] = "\x32\x00\x40\x05";
	/* comments, packed */
	static const char unpaired[] = "\x32\x00\x32\x11tracer:snapshot=1\x6a\x01\x01"
				       /* a sample without labels */
				       "\x12\x06\x0a\x01\x09\x12\x01\x01";
	(void)state;

	profile_refused("", 0, "not written by tracer");
	profile_refused(foreign, sizeof(foreign) - 1, "not written by tracer");
	profile_refused(newer, sizeof(newer) - 1, "version 2");
	profile_refused(newer_lines, sizeof(newer_lines) - 1, "version 2");
	profile_refused(no_lines, sizeof(no_lines) - 1, "no string 5");
	profile_refused(unpaired, sizeof(unpaired) - 1, "sample");
}

/* Keys that follow the names of members stay as they are when a member gets another name. */
static void test_keys(void **state)
{
	static const char *const written[] = {"taken_realtime_ns",
					      "coverage.typed_blocks",
					      "windows.unseen_bytes",
					      "beside[BESIDE_ALLOCATED].known",
					      "beside[BESIDE_FREED].gaps",
					      "beside[BESIDE_PEAK].known",
					      "beside[BESIDE_THREAD].gaps",
					      "sole_thread[EVENT_LAYER_NATIVE]",
					      "sole_thread_name[EVENT_LAYER_PYTHON]"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(written); i++) {
		size_t at = 0;

		while (at < meta_field_count && strcmp(meta_fields[at].key, written[i]) != 0)
			at++;
		if (at == meta_field_count)
			fail_msg("profiles have %s", written[i]);
	}
}

static void label_key_check(const char *label, const char *expected)
{
	struct snapshot_meta meta = {.tasks = 1};
	char key[EVENT_LABEL_TEXT];

	snprintf(meta.label, sizeof(meta.label), "%s", label);
	pprof_label_key(&meta, key);
	assert_string_equal(key, expected);
}

/* A variable's own name, unless another label has it. */
static void test_label_key(void **state)
{
	(void)state;
	label_key_check("", "task");
	label_key_check("context request_id", "request_id");
	label_key_check("context flask.request_ctx.request.path", "flask.request_ctx.request.path");
	label_key_check("local BaseHandler.get_response:request.path", "request.path");
	label_key_check("local run:thread", "local run:thread");
	label_key_check("context task", "context task");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, place_setup, place_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_round_trip),   TEST(test_empty),  TEST(test_damaged_profile),
		TEST(test_damaged_file), TEST(test_others), TEST(test_mapped),
		TEST(test_layers),       TEST(test_keys),   TEST(test_label_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

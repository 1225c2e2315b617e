/* SPDX-License-Identifier: Apache-2.0 */
/* The binaries of native frames in profiles: mappings, and locations that are only addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "report/pprof/pprof.h"
#include "report/pprof/pprof_format.h"
#include "report/pprof/profile.pb-c.h"
#include "snapshot/builder.h"
#include "snapshot/merge.h"
#include "util/array.h"
#include "util/buffer.h"

typedef Perftools__Profiles__Profile Profile;
typedef Perftools__Profiles__Mapping Mapping;
typedef Perftools__Profiles__Location Location;

#define NONE (-1)
#define LIB  "/usr/lib/libone.so"

static const struct {
	const char *path, *build_id;
	uint64_t start, limit, offset;
} binaries[] = {
	{"/app/program", "aa01", 0x401000, 0x403000, 0x1000},
	{LIB, "bb02", 0x3000, 0x5000, 0x2000},
	{LIB, "cc03", 0x3000, 0x5000, 0x2000}, /* another container's */
	{"/usr/lib/libdebug.so", "", 0, 0x9000, 0},
};

static const struct one_frame {
	const char *file, *function;
	uint32_t line;
	int binary; /* in binaries, or NONE */
	int native;
	uint64_t address; /* of a location without lines; 0: it has one */
} frames[] = {
	{"app.py", "f", 7, NONE, 0, 0},
	{"[vdso]", "[vdso]", 0, NONE, 1, 0},
	{"<unknown>", "0x7f00dead", 0, NONE, 1, 0},
	{"/app/program", "[program+0x1234]", 0, 0, 1, 0x401234},
	{"/app/program", "main", 0, 0, 1, 0},
	{LIB, "[libone.so+0x2abc]", 0, 1, 1, 0x3abc},
	{LIB, "[libone.so+0x2abc]", 0, 2, 1, 0x3abc},
	/* what cannot be restored from a file's name and an address has lines */
	{LIB, "[libone.so+0x1fff]", 0, 1, 1, 0},
	{LIB, "[libone.so+0x4000]", 0, 1, 1, 0},
	{LIB, "[libtwo.so+0x2abc]", 0, 1, 1, 0},
	{LIB, "[libone.so+0x02abc]", 0, 1, 1, 0},
	{LIB, "[libone.so]", 0, 1, 1, 0},
	{"one.c", "shared_inline", 9, 1, 1, 0},
	{"one.c", "shared_inline", 9, 2, 1, 0},
	{"debug.c", "g", 3, 3, 1, 0},
};

static uint32_t intern(struct builder *builder, const char *text)
{
	uint32_t id;

	assert_int_equal(strings_intern(builder->snapshot->strings, text, strlen(text), &id), 0);
	return id;
}

/* A traceback of each frame alone, from first on. */
static struct snapshot *snapshot_make(size_t first)
{
	struct builder builder;

	assert_int_equal(builder_begin(&builder), 0);
	strcpy(builder.snapshot->meta.mode, "exact");
	builder.snapshot->meta.pid = 1 + (uint32_t)first;
	for (size_t i = first; i < ARRAY_SIZE(frames); i++) {
		struct snapshot_frame frame = {.filename = intern(&builder, frames[i].file),
					       .function = intern(&builder, frames[i].function),
					       .line = frames[i].line,
					       .native = (uint16_t)frames[i].native};
		struct snapshot_trace trace = {.bytes = 8 + i, .count = 1};

		if (frames[i].binary != NONE) {
			const struct snapshot_binary binary = {
				.path = intern(&builder, binaries[frames[i].binary].path),
				.build_id = intern(&builder, binaries[frames[i].binary].build_id),
				.start = binaries[frames[i].binary].start,
				.limit = binaries[frames[i].binary].limit,
				.offset = binaries[frames[i].binary].offset};

			assert_int_equal(builder_binary(&builder, &binary, &frame.native), 0);
		}
		assert_int_equal(builder_traceback(&builder, &frame, 1, 1, &trace.traceback), 0);
		assert_int_equal(builder_trace(&builder, &trace), 0);
	}
	return builder_finish(&builder);
}

/* Its traces are the frames from first on. */
static void expect(const struct snapshot *snapshot, size_t first,
		   const struct snapshot_trace *trace)
{
	for (size_t i = first; i < ARRAY_SIZE(frames); i++, trace++) {
		const struct snapshot_frame *frame =
			&snapshot->frames[snapshot->tracebacks[trace->traceback].first];
		const struct snapshot_binary *binary = snapshot_binary(snapshot, frame);

		assert_int_equal(trace->bytes, 8 + i);
		assert_string_equal(strings_get(snapshot->strings, frame->filename),
				    frames[i].file);
		assert_string_equal(strings_get(snapshot->strings, frame->function),
				    frames[i].function);
		assert_int_equal(frame->line, frames[i].line);
		assert_int_equal(frame->native != 0, frames[i].native);
		assert_int_equal(binary != NULL, frames[i].binary != NONE);
		if (!binary)
			continue;
		assert_string_equal(strings_get(snapshot->strings, binary->path),
				    binaries[frames[i].binary].path);
		assert_string_equal(strings_get(snapshot->strings, binary->build_id),
				    binaries[frames[i].binary].build_id);
		assert_int_equal(binary->start, binaries[frames[i].binary].start);
		assert_int_equal(binary->limit, binaries[frames[i].binary].limit);
		assert_int_equal(binary->offset, binaries[frames[i].binary].offset);
	}
}

static Profile *profile_of(const struct snapshot *snapshot, struct buffer *plain)
{
	Profile *profile;

	plain->size = 0;
	assert_int_equal(pprof_write_unpacked(snapshot, 7, plain), 0);
	profile = perftools__profiles__profile__unpack(NULL, plain->size, plain->data);
	assert_non_null(profile);
	return profile;
}

static const Mapping *mapping_of(const Profile *profile, uint64_t id)
{
	for (size_t i = 0; i < profile->n_mapping; i++)
		if (profile->mapping[i]->id == id)
			return profile->mapping[i];
	fail_msg("no mapping %llu", (unsigned long long)id);
	return NULL;
}

static const Location *location_of(const Profile *profile, size_t sample)
{
	for (size_t i = 0; i < profile->n_location; i++)
		if (profile->location[i]->id == profile->sample[sample]->location_id[0])
			return profile->location[i];
	fail_msg("no location of sample %zu", sample);
	return NULL;
}

static void test_mappings(void **state)
{
	/* of the program with Python's code, of no binary, and of binaries */
	static const struct {
		const char *path, *flags; /* functions, files, lines, inlined */
	} expected[] = {{"", "FFL."},  {PPROF_NATIVE, "...."}, {"/app/program", "...."},
			{LIB, "...."}, {LIB, "...."},          {"/usr/lib/libdebug.so", "FFLI"}};
	struct snapshot *snapshot = snapshot_make(0);
	struct buffer plain = {0};
	Profile *profile = profile_of(snapshot, &plain);

	(void)state;
	assert_int_equal(profile->n_mapping, ARRAY_SIZE(expected));
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		const Mapping *mapping = profile->mapping[i];
		char flags[8];

		snprintf(flags, sizeof(flags), "%c%c%c%c", mapping->has_functions ? 'F' : '.',
			 mapping->has_filenames ? 'F' : '.', mapping->has_line_numbers ? 'L' : '.',
			 mapping->has_inline_frames ? 'I' : '.');
		assert_string_equal(profile->string_table[mapping->filename], expected[i].path);
		assert_string_equal(flags, expected[i].flags);
		assert_int_equal(mapping->memory_limit, i < 2 ? 0 : binaries[i - 2].limit);
		assert_int_equal(mapping->memory_start, i < 2 ? 0 : binaries[i - 2].start);
		assert_int_equal(mapping->file_offset, i < 2 ? 0 : binaries[i - 2].offset);
		assert_string_equal(profile->string_table[mapping->build_id],
				    i < 2 ? "" : binaries[i - 2].build_id);
	}
	perftools__profiles__profile__free_unpacked(profile, NULL);
	buffer_free(&plain);
	snapshot_free(snapshot);
}

static void test_locations(void **state)
{
	struct snapshot *snapshot = snapshot_make(0);
	struct buffer plain = {0};
	Profile *profile = profile_of(snapshot, &plain);

	(void)state;
	assert_int_equal(profile->n_sample, ARRAY_SIZE(frames));
	assert_int_equal(profile->n_location, ARRAY_SIZE(frames));
	for (size_t i = 0; i < ARRAY_SIZE(frames); i++) {
		const Location *location = location_of(profile, i);
		const Mapping *mapping = mapping_of(profile, location->mapping_id);

		assert_int_equal(location->address, frames[i].address);
		assert_int_equal(location->n_line, frames[i].address == 0);
		assert_string_equal(profile->string_table[mapping->build_id],
				    frames[i].binary == NONE ? ""
							     : binaries[frames[i].binary].build_id);
	}
	perftools__profiles__profile__free_unpacked(profile, NULL);
	buffer_free(&plain);
	snapshot_free(snapshot);
}

static void test_round_trip(void **state)
{
	struct snapshot *snapshot = snapshot_make(0), *back, *copy;
	struct buffer plain = {0};

	(void)state;
	assert_int_equal(pprof_write_unpacked(snapshot, 7, &plain), 0);
	assert_int_equal(pprof_parse(plain.data, plain.size, &back), 0);
	assert_int_equal(back->binary_count, ARRAY_SIZE(binaries));
	expect(back, 0, back->traces);
	assert_int_equal(snapshot_copy(back, &copy), 0);
	snapshot_free(back);
	snapshot_fit(copy);
	expect(copy, 0, copy->traces);
	snapshot_free(copy);
	buffer_free(&plain);
	snapshot_free(snapshot);
}

/* Binaries that processes share are listed once, and keep their frames. */
static void test_merge(void **state)
{
	const size_t first = 5;
	struct snapshot *parts[] = {snapshot_make(0), snapshot_make(first)}, *all, *back;
	struct buffer plain = {0};

	(void)state;
	assert_int_equal(snapshot_merge((const struct snapshot *const *)parts, 2, &all), 0);
	assert_int_equal(pprof_write_unpacked(all, 7, &plain), 0);
	assert_int_equal(pprof_parse(plain.data, plain.size, &back), 0);
	assert_int_equal(back->binary_count, ARRAY_SIZE(binaries));
	assert_int_equal(back->trace_count, 2 * ARRAY_SIZE(frames) - first);
	expect(back, 0, back->traces);
	expect(back, first, back->traces + ARRAY_SIZE(frames));
	snapshot_free(back);
	snapshot_free(all);
	snapshot_free(parts[0]);
	snapshot_free(parts[1]);
	buffer_free(&plain);
}

static int parse_again(const Profile *profile, struct buffer *plain)
{
	size_t bytes = perftools__profiles__profile__get_packed_size(profile);
	struct snapshot *back;

	plain->size = 0;
	assert_int_equal(buffer_reserve(plain, bytes), 0);
	perftools__profiles__profile__pack(profile, plain->data);
	int err = pprof_parse(plain->data, bytes, &back);

	if (!err)
		snapshot_free(back);
	return err;
}

/* An address that is in none of its binary's pages, or of no binary, is no frame. */
static void test_hostile(void **state)
{
	struct snapshot *snapshot = snapshot_make(3);
	struct buffer plain = {0};
	Profile *profile = profile_of(snapshot, &plain);
	Location *location = (Location *)location_of(profile, 0);
	Mapping *mapping = (Mapping *)mapping_of(profile, location->mapping_id);

	(void)state;
	assert_int_equal(parse_again(profile, &plain), 0);
	location->address = mapping->memory_limit;
	assert_int_equal(parse_again(profile, &plain), -EBADMSG);
	location->address = mapping->memory_start - 1;
	assert_int_equal(parse_again(profile, &plain), -EBADMSG);
	location->address = mapping->memory_start;
	mapping->file_offset = UINT64_MAX;
	assert_int_equal(parse_again(profile, &plain), 0);
	mapping->memory_limit = mapping->memory_start;
	assert_int_equal(parse_again(profile, &plain), -EBADMSG);
	mapping->memory_limit = UINT64_MAX;
	mapping->build_id = 1 << 20;
	assert_int_equal(parse_again(profile, &plain), -EBADMSG);
	mapping->build_id = 0;
	location->mapping_id = 0;
	assert_int_equal(parse_again(profile, &plain), -EBADMSG);
	perftools__profiles__profile__free_unpacked(profile, NULL);
	buffer_free(&plain);
	snapshot_free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mappings),   cmocka_unit_test(test_locations),
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_merge),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

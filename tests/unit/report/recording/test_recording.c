/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "place.h"
#include "recordings.h"
#include "report/pprof/pprof.h"
#include "report/recording/record_state.h"
#include "report/recording/recording.h"
#include "snapshot/group/group.h"
#include "util/error.h"

/* A line in 25 changes from snapshot to snapshot; some begin late, some end. */
static int64_t some_change(unsigned int line, unsigned int at)
{
	if (line % 40 == 7)
		return at > line % 20 ? 3 : 0;
	if (line % 40 == 9)
		return at < line % 20 ? 3 : 0;
	return line % 25 ? (int64_t)(1 + line % 9) : (int64_t)(100 + at * (line % 7 + 1));
}

/* Most lines live for one snapshot only. */
static int64_t all_change(unsigned int line, unsigned int at)
{
	return line / 5000 == at ? 1 : line % 1000 ? 0 : 2;
}

static void snapshots_equal(const struct snapshot *a, const struct snapshot *b)
{
	const struct statistics_opts opts = {.by = GROUP_TRACEBACK};
	struct statistics compared;

	assert_memory_equal(&a->meta, &b->meta, sizeof(a->meta));
	assert_int_equal(a->trace_count, b->trace_count);
	assert_int_equal(statistics_compare(a, b, &opts, &compared), 0);
	assert_int_equal(compared.count, a->trace_count);
	for (size_t i = 0; i < compared.count; i++) {
		assert_int_equal(compared.entries[i].size, compared.entries[i].old_size);
		assert_int_equal(compared.entries[i].count, compared.entries[i].old_count);
	}
	statistics_free(&compared);
}

/* The number of snapshots that can be read of the file; the last one is compared with what was. */
static unsigned int recording_check(const char *path, recording_count_fn count, unsigned int lines,
				    int each, char *damage)
{
	struct recording *recording;
	struct recording_moment moment;
	struct snapshot *was, *is;
	struct infile file;
	unsigned int read = 0;
	int more;

	assert_int_equal(infile_open(&file, path), 0);
	if (recording_new(&recording, &file)) {
		infile_close(&file);
		return 0;
	}
	do {
		more = recording_next(recording, UINT64_MAX, 1, &moment);
		assert_true(more >= 0);
		if (more) {
			assert_int_equal(moment.index, read);
			assert_int_equal(moment.since_ns, read * RECORDING_SECOND);
			assert_int_equal(moment.realtime_ns,
					 RECORDING_BEGIN + read * RECORDING_SECOND);
			read++;
		}
		if (read && (each || !more)) {
			was = recording_state(count, lines, read - 1);
			assert_int_equal(recording_snapshot(recording, &is), 0);
			snapshots_equal(was, is);
			snapshot_free(was);
			snapshot_free(is);
		}
	} while (more);
	strcpy(damage, recording_damage(recording));
	recording_free(recording);
	infile_close(&file);
	return read;
}

static void test_what_was_recorded_is_read(void **state)
{
	struct place *place = *state;
	struct recording_made made;
	char damage[256];

	assert_int_equal(recording_make(place->path, some_change, 500, 20, &made), 0);
	assert_int_equal(recording_check(place->path, some_change, 500, 1, damage), 20);
	assert_string_equal(damage, "");
}

/* Samples that are gone do not stay in the recording's state for ever. */
static void test_whole_again(void **state)
{
	struct place *place = *state;
	struct recording_made made;
	struct recording *recording;
	struct recording_moment moment;
	struct infile file;
	struct record_header header;
	unsigned int whole = 0;
	char damage[256];

	assert_int_equal(recording_make(place->path, all_change, 30000, 6, &made), 0);
	assert_int_equal(recording_check(place->path, all_change, 30000, 1, damage), 6);
	assert_int_equal(infile_open(&file, place->path), 0);
	for (unsigned int i = 0; i + 1 < made.count; i++) {
		assert_int_equal(pread(file.fd, &header, sizeof(header), made.ends[i]),
				 sizeof(header));
		whole += header.flags & RECORD_WHOLE;
	}
	assert_true(whole > 0 && whole < made.count - 1);
	/* Those before a moment, without reading the rest. */
	assert_int_equal(recording_new(&recording, &file), 0);
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(recording_next(recording, 3 * RECORDING_SECOND + 1, 1, &moment),
				 1);
	assert_int_equal(recording_next(recording, 3 * RECORDING_SECOND + 1, 1, &moment), 0);
	assert_int_equal(moment.index, 3);
	assert_string_equal(recording_damage(recording), "");
	recording_free(recording);
	infile_close(&file);
}

/* A tracer that is killed leaves a part of what it was writing. */
static void test_cut_at_every_byte(void **state)
{
	struct place *place = *state;
	struct recording_made made;
	char damage[256];

	assert_int_equal(recording_make(place->path, some_change, 60, 5, &made), 0);
	for (off_t bytes = made.ends[made.count - 1]; bytes >= 0; bytes--) {
		unsigned int whole = 0;
		int at_end = 0;

		assert_int_equal(truncate(place->path, bytes), 0);
		for (unsigned int i = 0; i < made.count; i++) {
			whole += made.ends[i] <= bytes;
			at_end |= made.ends[i] == bytes;
		}
		damage[0] = 0;
		assert_int_equal(recording_check(place->path, some_change, 60, 0, damage), whole);
		if (whole && at_end)
			assert_string_equal(damage, "");
		else if (whole)
			assert_non_null(strstr(damage, "not whole"));
	}
}

/* A byte that has changed hides nothing that comes before it, and shows nothing that was not. */
static void test_damaged_bytes(void **state)
{
	struct place *place = *state;
	struct recording_made made;
	char damage[256];

	assert_int_equal(recording_make(place->path, some_change, 60, 5, &made), 0);
	for (off_t at = made.ends[0]; at < made.ends[made.count - 1]; at += 3) {
		int file = open(place->path, O_RDWR | O_CLOEXEC);
		unsigned int whole = 0;
		unsigned char byte;

		assert_int_equal(pread(file, &byte, 1, at), 1);
		byte ^= 0x10;
		assert_int_equal(pwrite(file, &byte, 1, at), 1);
		while (made.ends[whole] <= at)
			whole++;
		/* The last words of a record's header are reserved: nobody reads them. */
		if (at < made.ends[whole - 1] + 44 || at >= made.ends[whole - 1] + 48) {
			assert_int_equal(recording_check(place->path, some_change, 60, 0, damage),
					 whole);
			assert_non_null(strstr(damage, "not whole"));
		}
		byte ^= 0x10;
		assert_int_equal(pwrite(file, &byte, 1, at), 1);
		close(file);
	}
}

static off_t whole_size(const char *path, unsigned int at, unsigned int lines)
{
	struct snapshot *snapshot = recording_state(some_change, lines, at);
	struct outfile *file;
	struct stat st;

	assert_int_equal(outfile_open(&file, path, OUTFILE_ANY), 0);
	assert_int_equal(pprof_write(snapshot, file), 0);
	assert_int_equal(outfile_commit(file), 0);
	snapshot_free(snapshot);
	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

/* Where one line in 25 changes, a snapshot takes at most a tenth of a whole file. */
static void test_size(void **state)
{
	struct place *place = *state;
	struct recording_made made;
	off_t whole = 0, recorded;

	assert_int_equal(recording_make(place->path, some_change, 3000, 20, &made), 0);
	recorded = made.ends[made.count - 1] - made.ends[0];
	for (unsigned int at = 1; at < made.count; at++)
		whole += whole_size(place->path, at, 3000);
	print_message("19 snapshots: %lld bytes, %lld as whole files; the first: %lld\n",
		      (long long)recorded, (long long)whole, (long long)made.ends[0]);
	assert_true(recorded * 10 <= whole);
}

/* Items without a byte, as no tracer writes them: the sanitizers watch. */
static void test_empty_items(void **state)
{
	/* 6 values, no header; an empty string, no tables, a sample of one number; its row */
	static const unsigned char bytes[] = {6, 0, 1, 0, 0, 0, 0, 1, 1, 0, 1, 0, 2, 2, 0, 0, 0, 0};
	static const unsigned char none[] = {6, 0, 1, 0, 0, 0, 0, 0, 0};
	const struct span payloads[] = {{none, sizeof(none)}, {bytes, sizeof(bytes)}};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct record_state state_of = {0};
		struct buffer profile = {0};

		assert_int_equal(record_state_apply(&state_of, payloads[i]), 0);
		assert_int_equal(state_of.live, i);
		assert_int_equal(record_profile(&state_of, &profile), 0);
		record_state_free(&state_of);
		buffer_free(&profile);
	}
}

static void test_refused(void **state)
{
	struct place *place = *state;
	struct recording *recording;
	struct infile file;
	unsigned char bytes[40] = RECORDING_MAGIC "\x02";

	(void)place;
	file = infile_memory(bytes, sizeof(bytes));
	assert_int_equal(recording_new(&recording, &file), -EBADMSG);
	assert_string_equal(error_reason(-EBADMSG),
			    "a recording of version 2; this tracer reads version 1");
	file = infile_memory(bytes, 20);
	assert_int_equal(recording_new(&recording, &file), -EBADMSG);
	bytes[0] = 'x';
	file = infile_memory(bytes, sizeof(bytes));
	assert_int_equal(recording_new(&recording, &file), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_what_was_recorded_is_read, place_setup,
						place_teardown),
		cmocka_unit_test_setup_teardown(test_whole_again, place_setup, place_teardown),
		cmocka_unit_test_setup_teardown(test_cut_at_every_byte, place_setup,
						place_teardown),
		cmocka_unit_test_setup_teardown(test_damaged_bytes, place_setup, place_teardown),
		cmocka_unit_test_setup_teardown(test_size, place_setup, place_teardown),
		cmocka_unit_test(test_empty_items),
		cmocka_unit_test_setup_teardown(test_refused, place_setup, place_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

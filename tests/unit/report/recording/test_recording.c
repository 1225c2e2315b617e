/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "place.h"
#include "recordings.h"
#include "report/pprof/pprof.h"
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
		more = recording_next(recording, UINT64_MAX, &moment);
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

/*
 * What has little in common with the one before; whole records, because the profiles from the last
 * one on have become too many bytes, or because an append failed and the file in memory is empty.
 */
static void test_whole_again(void **state)
{
	struct place *place = *state;
	struct recording *recording;
	struct recording_moment moment;
	struct infile file;
	struct record_header header;
	struct recorder_last head;
	char damage[256];
	int last = memfd_create("last", MFD_CLOEXEC),
	    out = open(place->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(recorder_begin(out, RECORDING_BEGIN), 0);
	for (unsigned int at = 0; at < 6; at++) {
		off_t end = lseek(out, 0, SEEK_END);

		if (at == 2) {
			assert_int_equal(pread(last, &head, sizeof(head), 0), sizeof(head));
			head.run = RECORD_RUN - 1000;
			assert_int_equal(pwrite(last, &head, sizeof(head), 0), sizeof(head));
		}
		if (at == 4)
			assert_int_equal(ftruncate(last, 0), 0);
		assert_int_equal(recording_add(out, last, all_change, 30000, at), 0);
		assert_int_equal(pread(out, &header, sizeof(header), end), sizeof(header));
		assert_int_equal(header.flags, at % 2 ? 0 : RECORD_WHOLE);
	}
	close(last);
	close(out);
	assert_int_equal(recording_check(place->path, all_change, 30000, 1, damage), 6);
	assert_int_equal(recording_check(place->path, all_change, 30000, 0, damage), 6);
	/* Those before a moment, without reading the rest. */
	assert_int_equal(infile_open(&file, place->path), 0);
	assert_int_equal(recording_new(&recording, &file), 0);
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(recording_next(recording, 3 * RECORDING_SECOND + 1, &moment), 1);
	assert_int_equal(recording_next(recording, 3 * RECORDING_SECOND + 1, &moment), 0);
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

struct crafted {
	uint32_t flags, unpacked, packed; /* packed 0: the bytes that there are */
	const void *data;
	size_t bytes;
};

/* Appends a record with the right checksum, as no tracer writes it. */
static void record_craft(const char *path, const struct crafted *crafted)
{
	const uint32_t bytes = (uint32_t)crafted->bytes;
	struct record_header header = {.magic = RECORD_MAGIC,
				       .flags = crafted->flags,
				       .since_ns = 60 * RECORDING_SECOND,
				       .packed = crafted->packed ? crafted->packed : bytes,
				       .unpacked = crafted->unpacked};
	FILE *file = fopen(path, "a");

	header.checksum = (uint32_t)crc32(
		crc32(0, (const void *)&header, offsetof(struct record_header, checksum)),
		crafted->data, bytes);
	assert_non_null(file);
	assert_int_equal(fwrite(&header, sizeof(header), 1, file), 1);
	assert_int_equal(fwrite(crafted->data, 1, crafted->bytes, file), crafted->bytes);
	fclose(file);
}

/* The reason why a record that was crafted after three others is not read. */
static void crafted_check(const char *path, const struct crafted *crafted, const char *reason)
{
	struct recording_made made;
	struct recording *recording;
	struct recording_moment moment;
	struct snapshot *snapshot;
	struct infile file;
	int count = 0;

	assert_int_equal(recording_make(path, some_change, 60, 3, &made), 0);
	record_craft(path, crafted);
	assert_int_equal(infile_open(&file, path), 0);
	assert_int_equal(recording_new(&recording, &file), 0);
	while (recording_next(recording, UINT64_MAX, &moment) > 0 &&
	       !recording_snapshot(recording, &snapshot)) {
		snapshot_free(snapshot);
		count++;
	}
	assert_int_equal(count, 3);
	assert_non_null(strstr(recording_damage(recording), reason));
	assert_int_equal(recording_next(recording, UINT64_MAX, &moment), 0);
	recording_free(recording);
	infile_close(&file);
}

/* What is packed to next to nothing; no memory is taken for it. */
static void test_bombs(void **state)
{
	struct place *place = *state;
	const size_t bytes = 8u << 20, room = ZSTD_compressBound(bytes);
	unsigned char *zeros = calloc(1, bytes), *packed = malloc(room);
	struct crafted bomb = {.flags = RECORD_WHOLE, .data = packed};

	assert_true(zeros && packed);
	bomb.bytes = ZSTD_compress(packed, room, zeros, bytes, 1);
	bomb.unpacked = 128u << 20;
	crafted_check(place->path, &bomb, "unpacks to more than can be");
	bomb.unpacked = UINT32_MAX;
	crafted_check(place->path, &bomb, "unpacks to more than can be");
	/* Its header claims bytes that the file does not have. */
	bomb.packed = UINT32_MAX;
	crafted_check(place->path, &bomb, "a snapshot is cut off");
	bomb.packed = 0;
	/* It has more, or fewer, than it claims; zeros are no profile. */
	bomb.unpacked = (uint32_t)bytes - 1;
	crafted_check(place->path, &bomb, "a snapshot is damaged");
	bomb.unpacked = (uint32_t)bytes + 1;
	crafted_check(place->path, &bomb, "a snapshot is damaged");
	bomb.unpacked = (uint32_t)bytes;
	crafted_check(place->path, &bomb, "a snapshot is damaged");
	bomb.flags = 0;
	crafted_check(place->path, &bomb, "a snapshot is damaged");
	bomb = (struct crafted){.flags = RECORD_WHOLE, .data = zeros, .bytes = 100};
	crafted_check(place->path, &bomb, "a snapshot is damaged");
	bomb.bytes = 0;
	crafted_check(place->path, &bomb, "a snapshot is damaged");
	free(zeros);
	free(packed);
}

/* The first one is packed against another, and so are too many after a whole one. */
static void test_without_the_one_before(void **state)
{
	struct place *place = *state;
	const size_t bytes = 60u << 20, room = ZSTD_compressBound(bytes);
	unsigned char *zeros = calloc(1, bytes), *packed = malloc(room);
	struct crafted record = {.data = packed, .unpacked = (uint32_t)bytes};
	struct recording *recording;
	struct recording_moment moment;
	struct infile file;
	uint64_t count = 0;
	int out = open(place->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(zeros && packed);
	record.bytes = ZSTD_compress(packed, room, zeros, bytes, 1);
	for (uint32_t flags = 0; flags <= RECORD_WHOLE; flags += RECORD_WHOLE) {
		assert_int_equal(ftruncate(out, 0), 0);
		assert_int_equal(recorder_begin(out, RECORDING_BEGIN), 0);
		for (unsigned int i = 0; i < 40; i++) {
			record.flags = i ? 0 : flags;
			record_craft(place->path, &record);
		}
		assert_int_equal(infile_open(&file, place->path), 0);
		assert_int_equal(recording_new(&recording, &file), 0);
		for (count = 0; recording_next(recording, UINT64_MAX, &moment) > 0;)
			count++;
		assert_int_equal(count, flags ? RECORD_RUN / bytes : 0);
		assert_non_null(strstr(recording_damage(recording), "packed against"));
		recording_free(recording);
		infile_close(&file);
	}
	close(out);
	free(zeros);
	free(packed);
}

static void test_refused(void **state)
{
	struct place *place = *state;
	struct recording *recording;
	struct infile file;
	unsigned char bytes[40] = RECORDING_MAGIC "\x01";

	(void)place;
	file = infile_memory(bytes, sizeof(bytes));
	assert_int_equal(recording_new(&recording, &file), -EBADMSG);
	assert_string_equal(error_reason(-EBADMSG),
			    "a recording of version 1, which an older tracer made; this one reads "
			    "version 2");
	bytes[8] = 3;
	file = infile_memory(bytes, sizeof(bytes));
	assert_int_equal(recording_new(&recording, &file), -EBADMSG);
	assert_string_equal(error_reason(-EBADMSG),
			    "a recording of version 3, which a newer tracer made; this one reads "
			    "version 2");
	bytes[8] = RECORDING_VERSION;
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
		cmocka_unit_test_setup_teardown(test_bombs, place_setup, place_teardown),
		cmocka_unit_test_setup_teardown(test_without_the_one_before, place_setup,
						place_teardown),
		cmocka_unit_test_setup_teardown(test_refused, place_setup, place_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* perf.data: file names that perf cannot handle, and files that cannot be written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "perf_data_files.h"
#include "report/export/exporter.h"
#include "report/export/perf_data_frames.h"
#include "snapshots.h"
#include "util/buffer.h"
#include "util/error.h"

static void test_names(void **state)
{
	static const struct {
		const char *name, *shown;
	} cases[] = {
		{"", "<unknown>"},
		{"a\nb\x1b[31m\x7f", "a\\x0ab\\x1b[31m\\x7f"},
		{"\xc2\x9b-\xc3\xa9-\xe2\x82\xac-\xf0\x9f\x98\x80",
		 "\\x9b-\\xe9-\\u20ac-\\U0001f600"},
		{"\xed\xb3\xbf-\xff-\xed\xa0\x80", "\\udcff-\\udcff-\\ud800"},
	};
	struct buffer out = {0};
	char *huge = calloc(1, PERF_NAME_MAX + 2);
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		out.size = 0;
		assert_int_equal(perf_name_append(&out, cases[i].name, 0), 0);
		assert_int_equal(buffer_append(&out, "", 1), 0);
		assert_string_equal((char *)out.data, cases[i].shown);
	}
	out.size = 0;
	assert_int_equal(perf_name_append(&out, "a:12", ':'), 0);
	assert_memory_equal(out.data, "a\\x3a12", 7);
	memset(huge, 'x', PERF_NAME_MAX);
	out.size = 0;
	assert_int_equal(perf_name_append(&out, huge, 0), 0);
	assert_int_equal(out.size, PERF_NAME_MAX);
	huge[PERF_NAME_MAX] = 'x';
	out.size = 0;
	assert_int_equal(perf_name_append(&out, huge, 0), 0);
	assert_int_equal(out.size, PERF_NAME_MAX + 3);
	assert_memory_equal(out.data + PERF_NAME_MAX - 1, "x...", 4);
	free(huge);
	buffer_free(&out);
}

static size_t directory_entries(const char *path)
{
	DIR *directory = opendir(path);
	size_t count = 0;

	assert_non_null(directory);
	for (const struct dirent *entry; (entry = readdir(directory));)
		count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
	closedir(directory);
	return count;
}

static void test_refused(void **state)
{
	const struct export_opts opts = {0};
	struct files *files = *state;
	struct snapshot *snapshot = work_make();
	struct outfile *file;

	assert_int_equal(outfile_open(&file, "-", OUTFILE_ANY), 0);
	assert_int_equal(exporter_write(&export_perf, snapshot, NULL, &opts, file), -ENOTSUP);
	assert_non_null(strstr(error_reason(-ENOTSUP), "-o FILE"));
	outfile_discard(file);

	/* The name of the image is already taken: neither file appears, and nothing is replaced. */
	assert_int_equal(mkdir(files->image_path, 0700), 0);
	assert_int_equal(snapshot_export(files, snapshot, 0), -EISDIR);
	assert_int_equal(directory_entries(files->directory), 1);
	assert_int_equal(rmdir(files->image_path), 0);
	assert_int_equal(symlink("elsewhere", files->image_path), 0);
	assert_int_equal(snapshot_export(files, snapshot, 0), -ELOOP);
	assert_int_equal(directory_entries(files->directory), 1);
	assert_int_equal(unlink(files->image_path), 0);

	snapshot->traces[0].count = UINT64_MAX;
	assert_int_equal(snapshot_export(files, snapshot, 0), -EOVERFLOW);
	assert_int_equal(directory_entries(files->directory), 0);
	snapshot_free(snapshot);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_names),
		TEST(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

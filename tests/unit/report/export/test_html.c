/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML page's JSON. Its behaviour in a browser is tested in tests/oracle/test_html.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/export/exporter.h"
#include "report/source.h"
#include "snapshots.h"

#define FRAMES(...) ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})

static char *page_make(const struct snapshot *snapshot, struct source *source)
{
	const struct export_opts opts = {.source = source};
	struct outfile *file;
	FILE *made = tmpfile();
	char *text;
	long size;

	assert_non_null(made);
	assert_int_equal(outfile_on(&file, fileno(made), "page"), 0);
	assert_int_equal(exporter_write(&export_html, snapshot, NULL, &opts, file), 0);
	assert_int_equal(outfile_commit(file), 0);
	assert_int_equal(fseek(made, 0, SEEK_END), 0);
	size = ftell(made);
	assert_true(size > 0);
	text = calloc((size_t)size + 1, 1);
	assert_non_null(text);
	rewind(made);
	assert_int_equal(fread(text, 1, (size_t)size, made), size);
	fclose(made);
	return text;
}

static size_t occurrences(const char *text, const char *of)
{
	size_t count = 0;

	for (; (text = strstr(text, of)); text += strlen(of))
		count++;
	return count;
}

/* Two functions on one line: JSON has its lines once. */
static void one_line_of_two_functions_is_written_once(void **state)
{
	char path[] = "/tmp/tracer-html-XXXXXX", key[64];
	int fd = mkstemp(path);
	struct builder builder;
	struct snapshot *snapshot;
	struct source *source;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "a\nb = lambda: 0, lambda: 1\n", 27), 27);
	close(fd);
	assert_int_equal(builder_begin(&builder), 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({path, "f", 2}), 1, 0, 100, 1), 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({path, "g", 2}), 1, 0, 200, 1), 0);
	snapshot = builder_finish(&builder);
	assert_int_equal(source_new(&source, NULL), 0);
	char *page = page_make(snapshot, source);
	snprintf(key, sizeof(key), "\"%s:2\": [[1, \"a\"], [2, ", path);
	assert_int_equal(occurrences(page, key), 1);
	free(page);
	source_free(source);
	snapshot_free(snapshot);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_line_of_two_functions_is_written_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

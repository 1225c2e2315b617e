/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/app.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"

/*
 * CPython searches its library in lib/pythonX.Y below its prefix (Modules/getpath.py), whatever
 * that is: a virtual environment, a distribution's /usr, or a local build. Debian's packages are in
 * lib/python3/dist-packages.
 */
static const char *const not_the_application[] = {
	"*/lib/python[23]/*",
	"*/lib/python[23].[0-9]*/*",
	"*/lib64/python[23].[0-9]*/*",
	"*/python[23][0-9]*.zip/*",
	"*/site-packages/*",
	"*/dist-packages/*",
	"<frozen *>",
	"<unknown>",
	/* Native frames. */
	"*/bin/python[23]*",
	"*.so",
	"*.so.[0-9]*",
	"[[]*]", /* [vdso] */
	"/usr/include/*",
	"/rustc/*",
	"*/.cargo/registry/*",
};

/* Cells of notebooks and shells have such names in place of a file's; a person writes them. */
static const char *const cells[] = {"<ipython-input-", "<command-"};

#define PATTERNS (ARRAY_SIZE(not_the_application))

static const char *const native_ends[] = {".c",  ".cc",  ".cpp", ".cxx", ".h",
					  ".hh", ".hpp", ".rs",  ".S",   ".go"};

int app_add(struct app *app, const char *pattern)
{
	int err = ARRAY_RESERVE(NULL, app, patterns, count, capacity, 1)
			  ?: pattern_new(&app->patterns[app->count], pattern);

	if (err)
		return err;
	app->count++;
	app->asked = 1;
	return 0;
}

static void patterns_free(struct pattern **patterns, size_t count)
{
	for (size_t i = 0; patterns && i < count; i++)
		pattern_free(patterns[i]);
	free(patterns);
}

void app_free(struct app *app)
{
	patterns_free(app->patterns, app->count);
	*app = (struct app){0};
}

int app_run_begin(struct app_run *run, const struct app *app, const struct snapshot *snapshot)
{
	int err = 0;

	*run = (struct app_run){.app = app, .snapshot = snapshot};
	if (!app || !app->asked)
		return 0;
	run->ranks = calloc(strings_count(snapshot->strings), 1);
	run->patterns = calloc(PATTERNS, sizeof(*run->patterns));
	if (!run->ranks || !run->patterns)
		return -ENOMEM;
	for (size_t i = 0; !err && i < PATTERNS; i++)
		err = pattern_new(&run->patterns[i], not_the_application[i]);
	return err;
}

void app_run_end(struct app_run *run)
{
	patterns_free(run->patterns, PATTERNS);
	free(run->ranks);
	*run = (struct app_run){0};
}

/* 1, 0, -ENOMEM. */
static int any_matches(struct pattern *const *patterns, size_t count, const char *name)
{
	int matches = 0;

	for (size_t i = 0; !matches && i < count; i++)
		matches = pattern_match(patterns[i], name);
	return matches;
}

static bool is_native(const char *name)
{
	const char *end = strrchr(name, '.');

	for (size_t i = 0; end && i < ARRAY_SIZE(native_ends); i++)
		if (!strcmp(end, native_ends[i]))
			return 1;
	return 0;
}

static bool is_cell(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(cells); i++)
		if (!strncmp(name, cells[i], strlen(cells[i])))
			return 1;
	return 0;
}

static int name_rank(const struct app_run *run, const char *name)
{
	size_t length = strlen(name);
	int matches;

	if (run->app->count) {
		matches = any_matches(run->app->patterns, run->app->count, name);
		return matches < 0 ? matches : matches ? APP_FILE : APP_NOT;
	}
	if (is_cell(name))
		return APP_FILE;
	matches = any_matches(run->patterns, PATTERNS, name);
	if (matches)
		return matches < 0 ? matches : APP_NOT;
	/*
	 * Distributions build libraries in a directory whose path is not recorded or no longer
	 * exists.
	 */
	if (is_native(name))
		return name[0] == '.' ? APP_NOT : APP_NATIVE;
	return length && name[0] == '<' && name[length - 1] == '>' ? APP_NO_FILE : APP_FILE;
}

int app_run_rank(struct app_run *run, const struct snapshot_frame *frame)
{
	unsigned char *known = &run->ranks[frame->filename];

	if (!*known) {
		int rank = name_rank(run, strings_get(run->snapshot->strings, frame->filename));

		if (rank < 0)
			return rank;
		*known = (unsigned char)rank;
	}
	return *known;
}

/* Does the traceback start in code without a file? 1, 0, -ENOMEM. */
static int starts_without_file(struct app_run *run, const struct snapshot_traceback *traceback)
{
	int rank =
		app_run_rank(run, &run->snapshot->frames[traceback->first + traceback->nframe - 1]);
	int is_cut =
		traceback->total != SNAPSHOT_TOTAL_UNKNOWN && traceback->total > traceback->nframe;

	return rank < 0 ? rank : rank == APP_NO_FILE && !is_cut;
}

int app_run_find(struct app_run *run, const struct snapshot_traceback *traceback, uint32_t *first)
{
	int highest = APP_NOT, without_file = starts_without_file(run, traceback);

	*first = 0;
	if (without_file < 0)
		return without_file;
	for (uint32_t i = 0; highest < APP_FILE && i < traceback->nframe; i++) {
		int rank = app_run_rank(run, &run->snapshot->frames[traceback->first + i]);

		if (rank < 0)
			return rank;
		if (rank <= highest || (rank == APP_NO_FILE && !without_file))
			continue;
		highest = rank;
		*first = i;
	}
	return highest;
}

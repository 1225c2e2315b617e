/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/frames/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/frames/library.h"
#include "util/array.h"

#define NONE UINT32_MAX

int view_add_wrapper(struct view_choice *view, const char *pattern)
{
	int err = ARRAY_RESERVE(NULL, view, wrappers, count, capacity, 1)
			  ?: pattern_new(&view->wrappers[view->count], pattern);

	if (!err)
		view->count++;
	return err;
}

void view_free(struct view_choice *view)
{
	for (size_t i = 0; i < view->count; i++)
		pattern_free(view->wrappers[i]);
	free(view->wrappers);
	*view = (struct view_choice){0};
}

enum answer { UNKNOWN, NO, YES };

/* What a frame is; as enum library_part from PART_NOT on. */
enum view_part { PART_UNKNOWN, PART_NOT, PART_INSIDE, PART_ALLOCATOR, PART_UNNAMED };

/* What is known of a string of the snapshot. */
struct view_known {
	uint32_t as_is, as_name; /* its ids in the view: unchanged, shortened; NONE */
	uint8_t part;            /* of a function: enum view_part */
	uint8_t is_library_file; /* enum answer */
};

struct view_run {
	const struct view_choice *view;
	const struct snapshot *from;
	struct shown *out;
	struct view_known *known; /* by string id */
	char *name;               /* the longest name fits */
};

static int string_add(struct view_run *run, const char *text, uint32_t *id)
{
	return strings_intern(run->out->snapshot.strings, text, strlen(text), id);
}

static int string_keep(struct view_run *run, uint32_t id, uint32_t *out)
{
	struct view_known *known = &run->known[id];
	int err = 0;

	if (known->as_is == NONE)
		err = string_add(run, strings_get(run->from->strings, id), &known->as_is);
	*out = known->as_is;
	return err;
}

/*
 * Names of code outside of files are those that its compiler has given: of JavaScript
 * "JS:~find /app/main.js:12:5".
 */
static bool is_of_compiler(const struct view_run *run, const struct snapshot_frame *frame)
{
	const char *file = strings_get(run->from->strings, frame->filename);

	return file[0] == '[' || !strncmp(file, "/memfd:", strlen("/memfd:"));
}

static int name_keep(struct view_run *run, const struct snapshot_frame *frame, uint32_t *out)
{
	struct view_known *known = &run->known[frame->function];
	int err = 0;

	if (!frame->native || run->view->full_names || is_of_compiler(run, frame))
		return string_keep(run, frame->function, out);
	if (known->as_name == NONE) {
		short_name(strings_get(run->from->strings, frame->function), run->name, NULL);
		err = string_add(run, run->name, &known->as_name);
	}
	*out = known->as_name;
	return err;
}

/* 1, 0, -ENOMEM. */
static bool is_wrapper(const struct view_choice *view, const char *name)
{
	int matches = 0;

	for (size_t i = 0; !matches && i < view->count; i++)
		matches = pattern_match(view->wrappers[i], name);
	return matches;
}

/* enum view_part of a function, -ENOMEM. */
static int function_part(struct view_run *run, uint32_t function)
{
	const char *name = strings_get(run->from->strings, function);
	enum short_name_form form;
	enum library_part part;
	int matches;

	if (name[0] == '[' || !strncmp(name, "0x", 2))
		return PART_UNNAMED;
	short_name(name, run->name, &form);
	part = library_function(run->name, form);
	if (part != LIBRARY_NOT)
		return PART_NOT + (int)part;
	matches = is_wrapper(run->view, run->name);
	if (!matches)
		matches = is_wrapper(run->view, name);
	return matches < 0 ? matches : matches ? PART_ALLOCATOR : PART_NOT;
}

/* enum view_part of a frame, -ENOMEM. */
static int frame_part(struct view_run *run, const struct snapshot_frame *frame)
{
	struct view_known *function = &run->known[frame->function],
			  *file = &run->known[frame->filename];
	int part;

	if (!frame->native)
		return PART_NOT;
	if (!file->is_library_file) {
		int is = library_has_file(strings_get(run->from->strings, frame->filename));

		file->is_library_file = is ? YES : NO;
	}
	if (file->is_library_file == YES)
		return PART_INSIDE;
	if (!function->part) {
		part = function_part(run, frame->function);
		if (part < 0)
			return part;
		function->part = (uint8_t)part;
	}
	return function->part;
}

/*
 * The number of frames that are not shown, or -ENOMEM. Frames without a name wait for one that says
 * whose they are.
 */
static int64_t frames_skipped(struct view_run *run, const struct snapshot_traceback *traceback)
{
	const struct snapshot_frame *frames = &run->from->frames[traceback->first];
	uint32_t skipped = 0;

	for (uint32_t i = 0; !run->view->no_skip && i < traceback->nframe; i++) {
		int part = frame_part(run, &frames[i]);
		int waits = skipped < i;

		if (part < 0)
			return part;
		if (waits && frames[i].filename != frames[skipped].filename)
			return skipped;
		if (part == PART_NOT || (waits && part == PART_INSIDE))
			return skipped;
		if (part != PART_UNNAMED)
			skipped = i + 1;
	}
	return skipped < traceback->nframe ? skipped : 0;
}

static int traceback_show(struct view_run *run, struct snapshot_traceback *traceback)
{
	struct snapshot *to = &run->out->snapshot;
	int64_t skipped = frames_skipped(run, traceback);
	uint32_t first = traceback->first + (uint32_t)skipped;
	int err = 0;

	if (skipped < 0)
		return (int)skipped;
	traceback->first = (uint32_t)to->frame_count;
	traceback->nframe -= (uint32_t)skipped;
	if (traceback->total != SNAPSHOT_TOTAL_UNKNOWN)
		traceback->total -= (uint32_t)skipped;
	for (uint32_t i = 0; !err && i < traceback->nframe; i++) {
		struct snapshot_frame *frame = &to->frames[to->frame_count++];

		*frame = run->from->frames[first + i];
		err = name_keep(run, &run->from->frames[first + i], &frame->function)
			      ?: string_keep(run, frame->filename, &frame->filename);
	}
	return err;
}

/* Tracebacks may share frames; their copies do not. */
static size_t frames_total(const struct snapshot *snapshot)
{
	size_t total = 0;

	for (size_t i = 0; i < snapshot->traceback_count; i++)
		total += snapshot->tracebacks[i].nframe;
	return total;
}

static size_t name_longest(const struct snapshot *snapshot)
{
	size_t longest = 0;

	for (uint32_t i = 0; i < strings_count(snapshot->strings); i++) {
		size_t bytes = strlen(strings_get(snapshot->strings, i));

		longest = bytes > longest ? bytes : longest;
	}
	return longest;
}

static int run_begin(struct view_run *run)
{
	const struct snapshot *from = run->from;
	struct snapshot *to = &run->out->snapshot;
	size_t tracebacks = from->traceback_count * sizeof(*to->tracebacks);
	uint32_t strings = strings_count(from->strings);
	int err;

	to->strings = NULL;
	to->frame_count = 0;
	to->frames = calloc(frames_total(from) + 1, sizeof(*to->frames));
	to->tracebacks = malloc(tracebacks + 1);
	run->known = malloc((strings + 1) * sizeof(*run->known));
	run->name = malloc(name_longest(from) + 1);
	run->out->is_changed = 1;
	err = strings_new(&to->strings);
	if (!to->frames || !to->tracebacks || !run->known || !run->name || err)
		return -ENOMEM;
	if (tracebacks)
		memcpy(to->tracebacks, from->tracebacks, tracebacks);
	for (uint32_t i = 0; i < strings; i++)
		run->known[i] = (struct view_known){.as_is = NONE, .as_name = NONE};
	return 0;
}

int view_apply(const struct view_choice *view, const struct snapshot *snapshot, struct shown *out)
{
	struct view_run run = {.view = view, .from = snapshot, .out = out};
	int err;

	*out = (struct shown){.snapshot = *snapshot};
	if (!view || (view->no_skip && view->full_names) || !snapshot_has_native_frames(snapshot))
		return 0;
	err = run_begin(&run);
	for (size_t i = 0; !err && i < snapshot->traceback_count; i++)
		err = traceback_show(&run, &out->snapshot.tracebacks[i]);
	free(run.known);
	free(run.name);
	if (err)
		shown_free(out);
	return err;
}

void shown_free(struct shown *shown)
{
	if (shown->is_changed) {
		strings_free(shown->snapshot.strings);
		free(shown->snapshot.frames);
		free(shown->snapshot.tracebacks);
	}
	*shown = (struct shown){0};
}

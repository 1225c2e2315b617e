/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of which snapshot: the layer, the file, its processes. */
#include <errno.h>

#include "cmd/options/options.h"
#include "report/tracemalloc/snapshot_file.h"
#include "snapshot/inlined.h"
#include "snapshot/merge.h"
#include "util/error.h"

enum { KEY_LAYER = 0x1a0, KEY_AT_PEAK };

static const struct argp_option layer_options[] = {
	{"layer", KEY_LAYER, "LAYER", 0,
	 "only python, native, mmap or pages (default: all layers of the snapshot; exports other "
	 "than pprof: its first)",
	 10},
	{"at-peak", KEY_AT_PEAK, NULL, 0,
	 "what was alive when most bytes were (census mode: at one of the heap walks), instead of "
	 "at the end; of one layer",
	 10},
	{0},
};

static error_t layer_option(int key, char *arg, struct argp_state *state)
{
	struct layer_choice *choice = state->input;

	if (key == ARGP_KEY_INIT)
		*choice = (struct layer_choice){.layer = -1};
	else if (key == KEY_AT_PEAK)
		choice->at_peak = 1;
	if (key == ARGP_KEY_INIT || key == KEY_AT_PEAK)
		return 0;
	if (key != KEY_LAYER)
		return ARGP_ERR_UNKNOWN;
	choice->layer = event_layer_find(arg);
	return choice->layer < 0 ? cli_reject("--layer", arg, "python, native, mmap or pages") : 0;
}

const struct argp cli_layer_argp = {.options = layer_options, .parser = layer_option};

int cli_layer_choose(const struct snapshot *snapshot, const struct layer_choice *choice,
		     struct snapshot *out)
{
	*out = *snapshot;
	if (choice->layer >= 0 && !snapshot_has_layer(snapshot, choice->layer))
		return error_set(-ENOENT, "the snapshot has no %s layer",
				 event_layer_name(choice->layer));
	if (choice->layer >= 0)
		*out = snapshot_of_layer(snapshot, choice->layer);
	if (!choice->at_peak || out->meta.at_peak)
		return 0;
	if (!snapshot_knows(out, EXTRA_PEAK))
		return error_set(-ENOENT, "the snapshot does not hold the peak: only exact and "
					  "census mode know it");
	*out = snapshot_at_peak(out);
	return 0;
}

/*
 * Reads a snapshot of any kind (snapshot_load_at()), and says which one of a recording it is: 0, or
 * -errno after an error message.
 */
static int cli_snapshot_load(const char *path, const struct pid_choice *choice,
			     struct snapshot **out)
{
	const struct recording_choice moment = {.time = choice->at,
						.layer = choice->layer ? choice->layer->layer : -1,
						.pids = choice->pids,
						.pid_count = choice->count};
	char note[RECORDING_NOTE_BYTES];
	int err = snapshot_load_at(path, &moment, note, out);

	if (err)
		error_print(err, err == -ERANGE ? "tracer timeline shows its times" : NULL, "%s",
			    path);
	else if (note[0])
		log_info("%s: %s", path, note);
	return err;
}

int cli_snapshot_pick(const char *path, const struct pid_choice *choice, struct snapshot **out)
{
	struct snapshot *whole;
	int err = cli_snapshot_load(path, choice, &whole);

	if (!err && choice->no_inline)
		snapshot_inlined_drop(whole);
	if (!err) {
		err = cli_ages_keep(whole, &choice->ages, path);
		if (err)
			snapshot_free(whole);
	}
	if (err || !choice->count) {
		if (!err)
			*out = whole;
		return err;
	}
	err = snapshot_pick(whole, choice->pids, choice->count, out);
	snapshot_free(whole);
	return err ? error_print(err, "tracer report --by process lists them", "%s", path) : 0;
}

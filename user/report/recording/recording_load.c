/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/recording_load.h"

#include <errno.h>
#include <stdio.h>

#include "snapshot/group/group.h"
#include "snapshot/merge.h"
#include "util/error.h"

/* Until when snapshots count. */
static int until_find(const char *path, const char *text, uint64_t *until_ns)
{
	struct recording_bounds bounds;
	struct recording_time time;

	*until_ns = UINT64_MAX;
	if (!text)
		return 0;
	int err = recording_time_parse(text, &time);
	if (err || time.kind == RECORDING_END)
		return err;
	return recording_bounds(path, &bounds)
		       ?: recording_time_resolve(&time, bounds.begin_realtime_ns, bounds.last_ns,
						 until_ns);
}

static void note_set(char *note, const struct recording_moment *moment, const char *range,
		     const char *damage)
{
	char since[RECORDING_DURATION_BYTES], clock[RECORDING_DURATION_BYTES];

	snprintf(note, RECORDING_NOTE_BYTES,
		 "snapshot %zu of the recording, of %s, %s after it began%s%s%s", moment->index + 1,
		 recording_clock_text(clock, moment->realtime_ns),
		 recording_duration_text(since, moment->since_ns), range, damage[0] ? "; " : "",
		 damage);
}

/* The last snapshot until a time. *count: 0 if there is none. */
static int time_load(struct recording *recording, const char *path, const char *time,
		     struct recording_moment *moment, size_t *count, struct snapshot **out)
{
	uint64_t until_ns;
	int more = until_find(path, time, &until_ns), first;

	if (more)
		return more;
	/* "start" is the first one, whenever it was. */
	first = time && !until_ns;
	do {
		more = recording_next(recording, first ? UINT64_MAX : until_ns, moment);
		*count += more > 0;
	} while (more > 0 && !first);
	return more < 0 || !*count ? more : recording_snapshot(recording, out);
}

static int total_add(const struct snapshot *snapshot, uint64_t *bytes)
{
	const struct statistics_opts opts = {.by = GROUP_FILENAME};
	struct statistics statistics;
	int err = statistics_compute(snapshot, &opts, &statistics);

	if (err)
		return err;
	*bytes += statistics.total_size;
	statistics_free(&statistics);
	return 0;
}

/* What a snapshot holds in a layer, or each of its processes in its first one. */
static int layer_weigh(const struct snapshot *snapshot, int layer, uint64_t *bytes)
{
	size_t count = snapshot_process_count(snapshot), first = 0;
	struct snapshot one;
	int err = 0;

	if (layer >= 0) {
		one = snapshot_of_layer(snapshot, (enum event_layer)layer);
		return snapshot_has_layer(snapshot, (enum event_layer)layer)
			       ? total_add(&one, bytes)
			       : 0;
	}
	for (size_t i = 0; !err && i < count; i++) {
		one = snapshot_of_process(snapshot, i, &first);
		err = total_add(&one, bytes);
	}
	return err;
}

/* The bytes that a snapshot's chosen processes hold; 0 if one of them is not in it. */
static int weigh(const struct snapshot *snapshot, const struct recording_choice *choice,
		 uint64_t *bytes)
{
	struct snapshot *picked;

	*bytes = 0;
	if (!choice->pid_count)
		return layer_weigh(snapshot, choice->layer, bytes);
	int err = snapshot_pick(snapshot, choice->pids, choice->pid_count, &picked);
	if (err)
		return err == -ESRCH ? 0 : err;
	err = layer_weigh(picked, choice->layer, bytes);
	snapshot_free(picked);
	return err;
}

int recording_heavier(struct recording *recording, const struct recording_choice *choice,
		      uint64_t *most, struct snapshot **best)
{
	struct snapshot *snapshot;
	uint64_t bytes;
	int err = recording_snapshot(recording, &snapshot);

	if (err)
		return err;
	err = weigh(snapshot, choice, &bytes);
	if (err || (*best && bytes <= *most)) {
		snapshot_free(snapshot);
		return err;
	}
	snapshot_free(*best);
	*best = snapshot;
	*most = bytes;
	return 1;
}

/* The snapshot with the highest total in a range; *count: how many are in it. */
static int range_load(struct recording *recording, const char *path,
		      const struct recording_choice *choice, struct recording_moment *moment,
		      size_t *count, struct snapshot **out)
{
	uint64_t from_ns, until_ns, most = 0;
	struct recording_bounds bounds;
	struct snapshot *best = NULL;
	struct recording_moment at;
	int err = recording_bounds(path, &bounds), more = 0;

	err = err
		      ?: recording_range_resolve(choice->time, bounds.begin_realtime_ns,
						 bounds.last_ns, &from_ns, &until_ns);
	while (!err && (more = recording_next(recording, until_ns, &at)) > 0) {
		if (at.since_ns < from_ns)
			continue;
		err = recording_heavier(recording, choice, &most, &best);
		if (err > 0)
			*moment = at;
		*count += err >= 0;
		err = err < 0 ? err : 0;
	}
	/* What is damaged does not hide what comes before it. */
	if (err == -EBADMSG && best)
		err = 0;
	else
		err = err ?: more < 0 ? more : 0;
	if (err)
		snapshot_free(best);
	else
		*out = best;
	return err;
}

/* Why no snapshot was found: the recording is not empty, or no range was asked for. */
static int none_explain(struct recording *recording, int by_range)
{
	struct recording_moment later;

	if (recording_damage(recording)[0])
		return recording_none(recording);
	if (by_range)
		return error_set(-ERANGE, "the recording has no snapshot in that range");
	return recording_next(recording, UINT64_MAX, &later) > 0
		       ? error_set(-ERANGE, "the recording's first snapshot is later")
		       : recording_none(recording);
}

int recording_load(struct infile *file, const char *path, const struct recording_choice *choice,
		   char note[RECORDING_NOTE_BYTES], struct snapshot **out)
{
	int by_range = choice->time && recording_is_range(choice->time);
	struct recording_moment moment;
	struct recording *recording;
	char range[64] = "";
	size_t count = 0;
	int err = recording_new(&recording, file);

	if (err)
		return err;
	if (by_range)
		err = range_load(recording, path, choice, &moment, &count, out);
	else
		err = time_load(recording, path, choice->time, &moment, &count, out);
	if (!err && !count)
		err = none_explain(recording, by_range);
	if (!err && by_range)
		snprintf(range, sizeof(range), ", with the highest total of the %zu in the range",
			 count);
	if (!err)
		note_set(note, &moment, range, recording_damage(recording));
	recording_free(recording);
	return err;
}

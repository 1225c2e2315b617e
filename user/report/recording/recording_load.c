/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/recording_load.h"

#include <errno.h>
#include <stdio.h>

#include "snapshot/group/group.h"
#include "snapshot/merge.h"
#include "util/error.h"

/* The last snapshot until then is read. *count: how many there are until then. */
static int advance(struct recording *recording, uint64_t until_ns, int data,
		   struct recording_moment *moment, size_t *count)
{
	int more;

	for (*count = 0; (more = recording_next(recording, until_ns, data, moment)) > 0;)
		++*count;
	return more;
}

/* No snapshot of the recording can be read. */
static int none_set(const struct recording *recording)
{
	const char *damage = recording_damage(recording);

	return error_set(-EBADMSG, "%s", damage[0] ? damage : "the recording has no snapshot");
}

/* When the recording began by the clock on the wall, and when its last snapshot was. */
static int bounds_read(const char *path, uint64_t *begin_realtime_ns, uint64_t *last_ns)
{
	struct recording_moment moment = {0};
	struct recording *recording;
	struct infile file;
	size_t count;
	int err = infile_open(&file, path);

	if (err)
		return err;
	err = recording_new(&recording, &file);
	if (!err) {
		err = advance(recording, UINT64_MAX, 0, &moment, &count);
		if (!err && !count)
			err = none_set(recording);
		recording_free(recording);
	}
	infile_close(&file);
	*begin_realtime_ns = moment.realtime_ns - moment.since_ns;
	*last_ns = moment.since_ns;
	return err;
}

/* Until when snapshots count. */
static int until_find(const char *path, const char *text, uint64_t *until_ns)
{
	uint64_t begin_realtime_ns, last_ns;
	struct recording_time time;

	*until_ns = UINT64_MAX;
	if (!text)
		return 0;
	int err = recording_time_parse(text, &time);
	if (err || time.kind == RECORDING_END)
		return err;
	return bounds_read(path, &begin_realtime_ns, &last_ns)
		       ?: recording_time_resolve(&time, begin_realtime_ns, last_ns, until_ns);
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
	int err = until_find(path, time, &until_ns), more;

	/* "start" is the first one, whenever it was. */
	if (!err && time && !until_ns) {
		more = recording_next(recording, UINT64_MAX, 1, moment);
		*count = more > 0;
		err = more < 0 ? more : 0;
	} else if (!err) {
		err = advance(recording, until_ns, 1, moment, count);
	}
	return err || !*count ? err : recording_snapshot(recording, out);
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

/* Takes the snapshot that was advanced to in place of *best if it holds more. */
static int heavier_take(const struct recording *recording, const struct recording_choice *choice,
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
	uint64_t begin_realtime_ns, last_ns, from_ns, until_ns, most = 0;
	struct snapshot *best = NULL;
	struct recording_moment at;
	int err = bounds_read(path, &begin_realtime_ns, &last_ns), more = 0;

	err = err
		      ?: recording_range_resolve(choice->time, begin_realtime_ns, last_ns, &from_ns,
						 &until_ns);
	while (!err && (more = recording_next(recording, until_ns, 1, &at)) > 0) {
		if (at.since_ns < from_ns)
			continue;
		++*count;
		err = heavier_take(recording, choice, &most, &best);
		if (err > 0)
			*moment = at;
		err = err < 0 ? err : 0;
	}
	err = err ?: more;
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
		return none_set(recording);
	if (by_range)
		return error_set(-ERANGE, "the recording has no snapshot in that range");
	return recording_next(recording, UINT64_MAX, 0, &later) > 0
		       ? error_set(-ERANGE, "the recording's first snapshot is later")
		       : none_set(recording);
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

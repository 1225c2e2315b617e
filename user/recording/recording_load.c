/* SPDX-License-Identifier: Apache-2.0 */
#include "recording/recording_load.h"

#include <errno.h>
#include <stdio.h>

#include "base/error.h"

/* The last snapshot until then is read. *count: how many there are until then. */
static int advance(struct recording *recording, uint64_t until_ns, int data,
		   struct recording_moment *moment, size_t *count)
{
	int more;

	for (*count = 0; (more = recording_next(recording, until_ns, data, moment)) > 0;)
		++*count;
	return more;
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
	int err;

	*until_ns = UINT64_MAX;
	if (!text)
		return 0;
	err = recording_time_parse(text, &time);
	if (err || time.kind == RECORDING_END)
		return err;
	err = bounds_read(path, &begin_realtime_ns, &last_ns);
	return err ?: recording_time_resolve(&time, begin_realtime_ns, last_ns, until_ns);
}

static void note_set(char *note, const struct recording_moment *moment, const char *damage)
{
	char since[RECORDING_DURATION_BYTES], clock[RECORDING_DURATION_BYTES];

	snprintf(note, RECORDING_NOTE_BYTES,
		 "snapshot %zu of the recording, of %s, %s after it began%s%s", moment->index + 1,
		 recording_clock_text(clock, moment->realtime_ns),
		 recording_duration_text(since, moment->since_ns), damage[0] ? "; " : "", damage);
}

int recording_load(struct infile *file, const char *path, const char *time,
		   char note[RECORDING_NOTE_BYTES], struct snapshot **out)
{
	struct recording_moment moment;
	struct recording *recording;
	uint64_t until_ns;
	size_t count = 0;
	int err = recording_new(&recording, file), more;

	if (err)
		return err;
	err = until_find(path, time, &until_ns);
	/* "start" is the first one, whenever it was. */
	if (!err && time && !until_ns) {
		more = recording_next(recording, UINT64_MAX, 1, &moment);
		count = more > 0;
		err = more < 0 ? more : 0;
	} else if (!err) {
		err = advance(recording, until_ns, 1, &moment, &count);
	}
	if (!err && !count)
		err = recording_damage(recording)[0]
			      ? error_set(-EBADMSG, "%s", recording_damage(recording))
			      : error_set(-ERANGE, "the recording's first snapshot is later");
	if (!err)
		err = recording_snapshot(recording, out);
	if (!err)
		note_set(note, &moment, recording_damage(recording));
	recording_free(recording);
	return err;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "report/tracemalloc/snapshot_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/pprof/pprof.h"
#include "report/recording/record_file.h"
#include "report/tracemalloc/pickle.h"
#include "report/tracemalloc/tracemalloc.h"
#include "util/archive.h"
#include "util/error.h"

static int neither(const struct infile *file)
{
	static const char kinds[] =
		"neither a snapshot of tracer (a gzip'd pprof profile), nor a recording, nor a "
		"file of tracemalloc.Snapshot.dump()";

	if (file->at == file->end)
		return error_set(-EBADMSG, "the file is empty");
	if (file->data[0] == 'c' ||
	    file->data[0] == '(') /* the first object is created by a class or is in a tuple */
		return error_set(
			-EBADMSG,
			"%s; if it is a pickle of protocol 0 or 1, dump it again with protocol 2 "
			"to 5",
			kinds);
	return error_set(-EBADMSG, "%s", kinds);
}

static int file_load(const char *path, const struct recording_choice *choice, char *note,
		     struct snapshot **out)
{
	struct infile file;
	int err = archive_infile(&file, path, SNAPSHOT_MEMBER);

	if (err)
		return err;
	err = infile_fill(&file, sizeof(RECORDING_MAGIC) - 1);
	if (!err && recording_is(&file))
		err = recording_load(&file, path, choice, note, out);
	else if (!err && choice->time)
		err = error_set(-EINVAL, "not a recording: it has no other times");
	else if (!err && file.end >= 2 && file.data[0] == 0x1f && file.data[1] == 0x8b)
		err = pprof_read(&file, out);
	else if (!err && file.end && file.data[0] == PICKLE_PROTO)
		err = tracemalloc_read(&file, out);
	else if (!err)
		err = neither(&file);
	infile_close(&file);
	return err;
}

int snapshot_load_at(const char *path, const struct recording_choice *choice,
		     char note[RECORDING_NOTE_BYTES], struct snapshot **out)
{
	struct recording_choice named = *choice;
	const char *at = strrchr(path, '@');

	note[0] = '\0';
	if (choice->time || !at || !access(path, F_OK))
		return file_load(path, choice, note, out);
	char *name = strndup(path, (size_t)(at - path));
	if (!name)
		return -ENOMEM;
	/* If there is no such file, either, the whole name is what is missing. */
	named.time = at + 1;
	int err = file_load(access(name, F_OK) ? path : name, &named, note, out);
	free(name);
	return err;
}

int snapshot_load(const char *path, struct snapshot **out)
{
	const struct recording_choice last = {.layer = -1};
	char note[RECORDING_NOTE_BYTES];

	return snapshot_load_at(path, &last, note, out);
}

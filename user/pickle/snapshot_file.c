/* SPDX-License-Identifier: Apache-2.0 */
#include "pickle/snapshot_file.h"

#include <errno.h>

#include "base/error.h"
#include "pickle/pickle.h"
#include "pickle/tracemalloc.h"
#include "pprof/pprof.h"

static int neither(const struct infile *file)
{
	static const char kinds[] =
		"neither a snapshot of tracer (a gzip'd pprof profile) nor a file of "
		"tracemalloc.Snapshot.dump()";

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

int snapshot_load(const char *path, struct snapshot **out)
{
	struct infile file;
	int err = infile_open(&file, path);

	if (err)
		return err;
	err = infile_fill(&file, 2);
	if (!err && file.end >= 2 && file.data[0] == 0x1f && file.data[1] == 0x8b)
		err = pprof_read(&file, out);
	else if (!err && file.end && file.data[0] == PICKLE_PROTO)
		err = tracemalloc_read(&file, out);
	else if (!err)
		err = neither(&file);
	infile_close(&file);
	return err;
}

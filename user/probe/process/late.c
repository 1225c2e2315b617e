/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file is first mapped and then relocated, and only then is the location of its thread-local
 * variables known. So the maps must be equal in two checks, and a runtime whose thread states can
 * only be matched by thread id gets more time.
 */
#include "probe/process/late.h"

#include <errno.h>

#include "proc/process.h"
#include "runtime/cpython/runtime.h"
#include "util/hash.h"

#define TRIES 50u

static int maps_hash(pid_t pid, uint64_t *out)
{
	struct process_maps maps;
	uint64_t hash = 1;
	int err = process_maps_read(pid, &maps);

	if (err)
		return err;
	for (size_t i = 0; i < maps.count; i++)
		if (maps.entries[i].executable && maps.entries[i].inode)
			hash = hash_u64(hash ^ maps.entries[i].start) ^
			       hash_u64(maps.entries[i].inode + maps.entries[i].offset);
	*out = hash;
	/* An ended process and a kernel thread have no maps. */
	err = maps.count ? 0 : -ESRCH;
	process_maps_free(&maps);
	return err;
}

int late_look(struct late *late, struct runtime_files *files)
{
	struct python_runtime runtime = {0};
	uint64_t mapped;
	int err = maps_hash(late->pid, &mapped), ready;

	if (err || mapped == late->looked)
		return err;
	if (mapped != late->mapped) {
		late->mapped = mapped;
		late->tries = 0;
		return 0;
	}
	err = python_runtime_find(late->pid, files, &runtime);
	if (err == -ENOENT) {
		late->looked = mapped;
		return 0;
	}
	/* Not supported or not readable: attaching reports the error. */
	if (err)
		return err == -ESRCH ? err : 1;
	ready = runtime.target.tstate_source != ABI_TSTATE_MATCH || ++late->tries >= TRIES;
	python_runtime_close(&runtime);
	return ready;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What is done with a runtime that was found: reading its memory, sharing, closing it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "python/runtime.h"

int runtime_read(const struct python_runtime *runtime, uint64_t address, void *out, size_t bytes)
{
	const struct runtime_copy *copy = runtime->copy;

	return copy ? copy->memory.read(copy->memory.context, address, out, bytes)
		    : memory_read(runtime->pid, address, out, bytes);
}

int runtime_read_u64(const struct python_runtime *runtime, uint64_t address, uint64_t *out)
{
	return runtime_read(runtime, address, out, sizeof(*out));
}

/* Whether runtime->offsets is a copy rather than an entry of the table. */
static int offsets_are_own(const struct python_runtime *runtime)
{
	return runtime->offsets && runtime->offsets != offsets_for(runtime->offsets->version,
								   (int)runtime->offsets->py_debug);
}

int python_runtime_inherit(const struct python_runtime *parent, pid_t pid,
			   struct python_runtime *out)
{
	struct python_offsets *copy = NULL;

	if (offsets_are_own(parent)) {
		copy = malloc(sizeof(*copy));
		if (!copy)
			return -ENOMEM;
		*copy = *parent->offsets;
	}
	*out = *parent;
	out->pid = pid;
	if (copy)
		out->offsets = copy;
	if (out->file)
		elf_file_share(out->file);
	return 0;
}

void python_runtime_close(struct python_runtime *runtime)
{
	if (!runtime)
		return;
	if (offsets_are_own(runtime))
		free((void *)runtime->offsets);
	elf_file_close(runtime->file);
	memset(runtime, 0, sizeof(*runtime));
}

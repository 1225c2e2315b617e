/* SPDX-License-Identifier: Apache-2.0 */
/* What is done with a runtime that was found: reading it, sharing, closing it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpython/runtime.h"
#include "util/error.h"

int runtime_read(const struct python_runtime *runtime, uint64_t address, void *out, size_t bytes)
{
	const struct runtime_copy *copy = runtime->copy;

	return copy ? copy->memory.read(copy->memory.context, address, out, bytes)
		    : space_read(runtime->space, address, out, bytes);
}

int runtime_read_u64(const struct python_runtime *runtime, uint64_t address, uint64_t *out)
{
	return runtime_read(runtime, address, out, sizeof(*out));
}

int runtime_type_type(const struct python_runtime *runtime, uint64_t *address)
{
	struct elf_symbol symbol;

	if (!runtime->file) {
		*address = runtime->found.type_type;
		return 0;
	}
	int err = elf_file_symbol(runtime->file, "PyType_Type", &symbol);
	if (err == -ENOENT)
		return error_set(
			-ENOTSUP,
			"%s has no symbol PyType_Type, which is needed to recognize objects",
			elf_file_path(runtime->file));
	if (!err)
		*address = symbol.vaddr + runtime->bias;
	return err;
}

void runtime_data(const struct python_runtime *runtime, uint64_t *address, uint64_t *bytes)
{
	uint64_t data, bss, data_bytes, bss_bytes;

	if (!runtime->file) {
		*address = runtime->found.data;
		*bytes = runtime->found.data_bytes;
		return;
	}
	if (elf_file_section(runtime->file, ".data", &data, &data_bytes))
		return;
	if (!elf_file_section(runtime->file, ".bss", &bss, &bss_bytes) && bss > data)
		data_bytes = bss + bss_bytes - data;
	*address = data + runtime->bias;
	*bytes = data_bytes;
}

/* Whether runtime->offsets is a copy rather than an entry of the table. */
static int offsets_are_own(const struct python_runtime *runtime)
{
	return runtime->offsets &&
	       runtime->offsets != offsets_for(runtime->offsets->version, runtime->offsets->build);
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
	if (space_open(&out->space, pid))
		out->space = NULL;
	if (out->target.renames == ABI_RENAMES_HERE)
		out->target.renames = ABI_RENAMES_UNTOLD;
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
	space_close(runtime->space);
	memset(runtime, 0, sizeof(*runtime));
}

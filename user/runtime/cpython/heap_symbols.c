/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpython/heap_symbols.h"

#include <errno.h>

#include "object/insn/machine.h"
#include "runtime/cpython/heap_code.h"
#include "util/error.h"

#define FUNCTION "_Py_GetAllocatedBlocks"

/* A static variable of obmalloc.c; link-time optimisation may have renamed it. */
static int variable_find(const struct python_runtime *runtime, const char *name,
			 const char *lto_name, uint64_t *vaddr)
{
	struct elf_symbol symbol;
	int err = elf_file_symbol(runtime->file, name, &symbol);

	if (err == -ENOENT)
		err = elf_file_symbol(runtime->file, lto_name, &symbol);
	if (!err)
		*vaddr = symbol.vaddr;
	return err;
}

static int from_symbols(const struct python_runtime *runtime, struct heap_head *head)
{
	int err = variable_find(runtime, "arenas", "arenas.lto_priv.0", &head->arenas);

	err = err ?: variable_find(runtime, "maxarenas", "maxarenas.lto_priv.0", &head->maxarenas);
	if (err)
		return err;
	head->raw_is_total = runtime->offsets->version == 0x0308;
	if (head->raw_is_total)
		return variable_find(runtime, "_Py_AllocatedBlocks",
				     "_Py_AllocatedBlocks.lto_priv.0", &head->raw_blocks);
	return variable_find(runtime, "raw_allocated_blocks", "raw_allocated_blocks.lto_priv.0",
			     &head->raw_blocks);
}

static int from_code(const struct python_runtime *runtime, struct heap_head *head)
{
	uint8_t code[HEAP_CODE_BYTES_MAX];
	struct heap_code found = {0};
	struct elf_symbol symbol;
	const char *why = NULL;
	int got;

	if (runtime->offsets->version < 0x0309)
		why = "its " FUNCTION "() does not read the arenas";
	else if (elf_file_symbol(runtime->file, FUNCTION, &symbol))
		why = "there is no " FUNCTION "()";
	else if (!symbol.size || symbol.size > sizeof(code))
		why = "the size of " FUNCTION "() is not plausible";
	else if ((got = elf_file_read(runtime->file, symbol.vaddr, code, symbol.size)) < 0)
		return got;
	else if ((got = heap_code_decode(machine_own(), code, (size_t)got, symbol.vaddr, &found)) !=
		 -ENOTSUP) {
		head->arenas = found.arenas;
		head->maxarenas = found.maxarenas;
		head->raw_blocks = found.raw_blocks;
		return got;
	} else
		why = "the code of " FUNCTION "() is not understood";
	return error_set(
		-ENOTSUP,
		"%s has no symbols for the heap of Python %u.%u, and %s; install its debug symbols",
		elf_file_path(runtime->file), runtime->offsets->version >> 8,
		runtime->offsets->version & 0xff, why);
}

int heap_symbols_find(const struct python_runtime *runtime, struct heap_head *out)
{
	struct heap_head head = {0};

	if (!runtime->file) {
		*out = (struct heap_head){.arenas = runtime->found.arenas,
					  .maxarenas = runtime->found.maxarenas};
		return 0;
	}
	int err = from_symbols(runtime, &head);
	if (err == -ENOENT) {
		head = (struct heap_head){0};
		err = from_code(runtime, &head);
	}
	if (err)
		return err;
	head.arenas += runtime->bias;
	head.maxarenas += runtime->bias;
	head.raw_blocks += runtime->bias;
	*out = head;
	return 0;
}

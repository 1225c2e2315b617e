/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (Include/internal/pycore_obmalloc.h, 3.12+). struct _obmalloc_state begins with
 * pools.used[], two words per size class: the next and the previous pool in use of the class. They
 * are part of a pseudo pool header that starts 16 bytes before them and is head and end of the
 * list. A class without pools has the address of this header in both words; every other word is the
 * address of a pool. No other data has this form, and it holds at every moment.
 */
#include "runtime/cpython/heap_place.h"

#include <errno.h>
#include <string.h>

#include "object/insn/machine.h"
#include "proc/memory.h"
#include "runtime/cpython/heap_code.h"
#include "util/error.h"
#include "util/word.h"

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

/*
 * Finds the variables' addresses in the target by their symbols, otherwise from the code. 0;
 * -ENOTSUP: neither has them (error_set); -ENOEXEC; -ENOMEM.
 */
static int heap_symbols_find(const struct python_runtime *runtime, struct heap_head *out)
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

#define WORD           8u
#define HEADER_BYTES   16u    /* offset of the links in a pool's header */
#define SEARCH_BYTES   32768u /* of an interpreter's state, before and after the guess */
#define MAX_STATE      4096u  /* limit of the bytes that are checked */
#define LOWEST_ADDRESS 65536u
#define ADDRESS_BITS   47

static bool is_pool(const struct heap_offsets *offsets, uint64_t word)
{
	return word >= LOWEST_ADDRESS && word < 1ull << ADDRESS_BITS &&
	       !(word % offsets->pool_bytes);
}

bool heap_place_is_state(const struct heap_offsets *offsets, const uint8_t *bytes, uint64_t address)
{
	uint64_t array;
	uint32_t arenas;

	for (uint32_t at = 0; at < offsets->mgmt_arenas; at += WORD) {
		uint64_t word = u64_at(bytes + at);
		/* The same for both words of a class. */
		uint64_t list = address + at / (2 * WORD) * (2 * WORD) - HEADER_BYTES;

		if (word != list && !is_pool(offsets, word))
			return 0;
	}
	/*
	 * An address some classes further would match too, so the array of arenas must follow the
	 * lists.
	 */
	memcpy(&arenas, bytes + offsets->mgmt_maxarenas, sizeof(arenas));
	array = u64_at(bytes + offsets->mgmt_arenas);
	if (arenas > HEAP_ARENAS || !array != !arenas || array % HEADER_BYTES ||
	    array >= 1ull << ADDRESS_BITS)
		return 0;
	return 1;
}

/* Bytes of the structure that are checked. */
static uint32_t state_bytes(const struct heap_offsets *offsets)
{
	return offsets->mgmt_maxarenas + sizeof(uint32_t);
}

/* 1: the structure is at address; 0: it is not; -ESRCH, -EPERM. */
static int state_check(const struct python_runtime *runtime, uint64_t address)
{
	const struct heap_offsets *offsets = &runtime->offsets->heap;
	uint8_t bytes[MAX_STATE];

	if (address < LOWEST_ADDRESS || address % WORD || state_bytes(offsets) > sizeof(bytes))
		return 0;
	int err = runtime_read(runtime, address, bytes, state_bytes(offsets));
	if (err)
		return err == -ESRCH || err == -EPERM ? err : 0;
	return heap_place_is_state(offsets, bytes, address);
}

/* The address of an interpreter's structure, if offset is right. 0; *state may be 0; -errno. */
static int state_address(const struct python_runtime *runtime, uint64_t interp, uint32_t offset,
			 uint64_t *state)
{
	*state = interp + offset;
	return runtime->offsets->heap.obmalloc_is_pointer ? runtime_read_u64(runtime, *state, state)
							  : 0;
}

static int offset_check(const struct python_runtime *runtime, uint64_t interp, uint32_t offset)
{
	uint64_t state;
	int err = state_address(runtime, interp, offset, &state);

	if (err)
		return err == -ESRCH || err == -EPERM ? err : 0;
	return state_check(runtime, state);
}

/* Sets *guess to the nearest offset that is right. 1: found; 0: none; -errno. */
static int offset_search(const struct python_runtime *runtime, uint64_t interp, uint32_t *guess)
{
	for (uint32_t distance = 0; distance <= SEARCH_BYTES; distance += WORD) {
		int found =
			*guess < distance ? 0 : offset_check(runtime, interp, *guess - distance);

		if (found > 0)
			*guess -= distance;
		else if (!found && (found = offset_check(runtime, interp, *guess + distance)) > 0)
			*guess += distance;
		if (found)
			return found;
	}
	return 0;
}

/* Reads the list of interpreters; the last one is the oldest. */
static int interpreters_read(const struct python_runtime *runtime, uint64_t *interps,
			     uint32_t *count)
{
	const struct abi_offsets *abi = &runtime->offsets->abi;
	uint64_t interp;
	int err = runtime_read_u64(
		runtime, runtime->target.runtime + abi->runtime_interpreters_head, &interp);

	*count = 0;
	while (!err && interp) {
		if (*count == HEAP_INTERPRETERS)
			return error_set(
				-ENOTSUP,
				"it has more than %u interpreters, or a cyclic list of them",
				HEAP_INTERPRETERS);
		interps[(*count)++] = interp;
		err = runtime_read_u64(runtime, interp + abi->interp_next, &interp);
	}
	return err;
}

/*
 * Finds the offset that is right for one of the interpreters. An interpreter gets its heap before
 * its first thread state: while none has a thread state, there may be no heap. 0; -EAGAIN: no heap
 * yet, *offset is that of the table; -ENOTSUP; -errno.
 */
static int offset_find(const struct python_runtime *runtime, const uint64_t *interps,
		       uint32_t count, uint32_t *offset)
{
	const struct heap_offsets *offsets = &runtime->offsets->heap;
	uint64_t oldest = count ? interps[count - 1] : 0, thread = 0;
	int found = 0;

	*offset = offsets->interp_obmalloc;
	for (uint32_t i = count; i-- && !found;)
		found = offset_check(runtime, interps[i], *offset);
	if (found)
		return found < 0 ? found : 0;
	if (!oldest ||
	    runtime_read_u64(runtime, oldest + runtime->offsets->abi.interp_threads_head,
			     &thread) ||
	    !thread)
		return -EAGAIN;
	found = offset_search(runtime, oldest, offset);
	if (!found)
		return error_set(
			-ENOTSUP,
			"the location of its heap could not be proven: PyInterpreterState.obmalloc "
			"is not at %u as in other builds of Python %u.%u, nor near it",
			offsets->interp_obmalloc, runtime->offsets->version >> 8,
			runtime->offsets->version & 0xff);
	if (found > 0)
		log_debug("%d: PyInterpreterState.obmalloc is at %u, not at %u", (int)runtime->pid,
			  *offset, offsets->interp_obmalloc);
	return found < 0 ? found : 0;
}

/* Interpreters that share the main one's heap point to the same structure. */
static void head_add(const struct heap_offsets *offsets, uint64_t state, struct heap_head *heads,
		     uint32_t *count)
{
	uint32_t known = 0;

	while (known < *count && heads[known].arenas != state + offsets->mgmt_arenas)
		known++;
	if (state && known == *count)
		heads[(*count)++] =
			(struct heap_head){.arenas = state + offsets->mgmt_arenas,
					   .maxarenas = state + offsets->mgmt_maxarenas,
					   .raw_blocks = state + offsets->mgmt_raw_blocks};
}

/* Without the GIL the threads of an interpreter lead to its heap (heap_segments.c). */
static int interpreters_give(const struct python_runtime *runtime, struct heap_head *heads,
			     uint32_t *count)
{
	uint64_t interps[HEAP_INTERPRETERS];
	int err = interpreters_read(runtime, interps, count);

	for (uint32_t i = 0; i < *count; i++)
		heads[i] = (struct heap_head){.arenas = interps[i]};
	return err;
}

int heap_place_heads(const struct python_runtime *runtime,
		     struct heap_head heads[HEAP_INTERPRETERS], uint32_t *count)
{
	const struct heap_offsets *offsets = &runtime->offsets->heap;
	uint64_t interps[HEAP_INTERPRETERS], state;
	uint32_t interp_count, offset;
	int err;

	*count = 0;
	if (runtime->offsets->build == BUILD_FREE_THREADED)
		return interpreters_give(runtime, heads, count);
	if (!offsets->interp_obmalloc) {
		err = heap_symbols_find(runtime, heads);
		*count = !err;
		return err;
	}
	err = interpreters_read(runtime, interps, &interp_count)
		      ?: offset_find(runtime, interps, interp_count, &offset);
	if (err)
		return err == -EAGAIN ? 0 : err;
	for (uint32_t i = 0; i < interp_count && !err; i++) {
		err = state_address(runtime, interps[i], offset, &state);
		if (!err)
			head_add(offsets, state, heads, count);
	}
	return err;
}

/* As offset_find(); an interpreter whose memory is not mapped has not started. */
static int offset_describe(const struct python_runtime *runtime, uint32_t *offset)
{
	uint64_t interps[HEAP_INTERPRETERS];
	uint32_t count;
	int err = interpreters_read(runtime, interps, &count);

	err = err ?: offset_find(runtime, interps, count, offset);
	return err == -EAGAIN || err == -EFAULT ? 0 : err;
}

int heap_describe(const struct python_runtime *runtime, struct abi_heap *out)
{
	const struct heap_offsets *offsets = &runtime->offsets->heap;
	uint32_t offset = offsets->interp_obmalloc;
	struct heap_head head = {0};

	if (runtime->offsets->build == BUILD_FREE_THREADED)
		return error_set(-ENOTSUP, "without the GIL its heap is mimalloc's, which is only "
					   "read from outside");
	int err = offset ? offset_describe(runtime, &offset) : heap_symbols_find(runtime, &head);
	if (err)
		return err;
	*out = (struct abi_heap){
		.arenas = head.arenas,
		.maxarenas = head.maxarenas,
		.raw_blocks = head.raw_blocks,
		.interp_obmalloc = offset,
		.obmalloc_is_pointer = offsets->obmalloc_is_pointer,
		.mgmt_arenas = offsets->mgmt_arenas,
		.mgmt_maxarenas = offsets->mgmt_maxarenas,
		.mgmt_raw_blocks = offsets->mgmt_raw_blocks,
		.arena_object_size = offsets->arena_object_size,
		.arena_address = offsets->arena_address,
		.arena_pool_address = offsets->arena_pool_address,
		.pool_count = offsets->pool_count,
		.pool_freeblock = offsets->pool_freeblock,
		.pool_szidx = offsets->pool_szidx,
		.pool_nextoffset = offsets->pool_nextoffset,
		.pool_header_size = offsets->pool_header_size,
		.arena_bytes = offsets->arena_bytes,
		.pool_bytes = offsets->pool_bytes,
		.raw_is_total = head.raw_is_total,
	};
	return 0;
}

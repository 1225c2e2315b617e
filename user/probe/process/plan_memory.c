/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/process/plan_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "object/insn/frame.h"
#include "object/insn/insn.h"
#include "object/insn/machine.h"
#include "probe/python/plan_symbol.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/error.h"

#define NO_DEBUG "/dev/null" /* the functions are exported */

#define CODE_MAX 512 /* bytes of a function that are inspected */

#define RESULT    (1u << ABI_RESULT)
#define ARGUMENTS (1u << ABI_ARGUMENT_1 | 1u << ABI_ARGUMENT_2 | 1u << ABI_ARGUMENT_3)
/* The result of a system call replaces its first argument. */
#define FIRST_IS_LOST (ABI_RESULT == ABI_ARGUMENT_1)

static const struct libc_function {
	const char *name;
	enum abi_op op;
	/* Bit r: enum abi_register r, for the arguments and the result that are used. */
	uint32_t registers;
	int first; /* the first argument is used, too */
	/* Figures are correct without it. musl's brk is a stub that does not move the break. */
	int optional;
} functions[] = {
	{"mremap", ABI_OP_MREMAP, RESULT | ARGUMENTS, 1, 0},
	{"mprotect", ABI_OP_MPROTECT, RESULT | ARGUMENTS, 1, 1},
	{"brk", ABI_OP_BRK, RESULT, 0, 1},
	{"mmap", ABI_OP_MMAP, RESULT | ARGUMENTS | 1u << ABI_CALL_4, 0, 0},
};

/* munmap is probed at its entry: a range must be reported before its address can be reused. */
static const struct probe_spec unmap = {
	"munmap", ABI_OP_MUNMAP, EVENT_API_RAW, {ABI_REG_COUNT, ABI_REG_COUNT, ABI_REG_COUNT}, 0};

#define FUNCTIONS (ARRAY_SIZE(functions))
#define SITES_MAX (5 * FUNCTIONS) /* a function may make several system calls */

/*
 * Places the probe after a system call: on the first emulated instruction at which the registers
 * still hold, otherwise on the next instruction.
 */
static void site_choose(struct inline_decoder *decoder, const uint8_t *code, size_t bytes,
			uint64_t vaddr, uint32_t registers, struct plan_site *site)
{
	struct inline_insn insn;
	size_t at = 0;

	site->vaddr = vaddr;
	while (inline_decode(decoder, code + at, bytes - at, vaddr + at, &insn)) {
		if (insn.emulated) {
			site->vaddr = vaddr + at;
			site->emulated = 1;
			break;
		}
		if (insn.op >= INLINE_BRANCH || insn.written & registers)
			break;
		at += insn.bytes;
	}
	at = site->vaddr - vaddr;
	inline_disassemble(decoder, code + at, bytes - at, site->vaddr, site->instruction,
			   sizeof(site->instruction));
	snprintf(site->why, sizeof(site->why), "after a system call");
}

/* Adds the frame at the site to its cookie. */
static void frame_add(struct inline_decoder *decoder, const uint8_t *code, uint64_t vaddr,
		      struct plan_site *site)
{
	struct abi_frame frame;

	machine_frame_find(decoder, code, (size_t)(site->vaddr - vaddr), vaddr, &frame);
	site->cookie |= abi_frame_cookie(&frame);
	if (!abi_frame_cookie(&frame))
		snprintf(site->why, sizeof(site->why),
			 "after a system call; its caller is not known");
}

/* Adds one site for each system call in the function's code. */
static void syscalls_add(struct inline_decoder *decoder, struct plan *plan, struct elf_file *libc,
			 const struct libc_function *function, uint64_t vaddr, const uint8_t *code,
			 size_t bytes)
{
	struct inline_insn insn;
	size_t length;

	for (size_t at = 0; at < bytes && plan->count < plan->capacity; at += length) {
		struct plan_site *site = &plan->sites[plan->count];

		length = inline_decode(decoder, code + at, bytes - at, vaddr + at, &insn);
		if (!length)
			break;
		if (!decoder->machine->is_syscall(decoder->insn) || at + length == bytes)
			continue;
		*site = (struct plan_site){
			.op = function->op,
			.cookie = ABI_COOKIE(function->op, EVENT_API_RAW, 0, 0, 0)};
		site_choose(decoder, code + at + length, bytes - at - length, vaddr + at + length,
			    function->registers, site);
		frame_add(decoder, code, vaddr, site);
		site->in_function = (uint32_t)(site->vaddr - vaddr);
		snprintf(site->symbol, sizeof(site->symbol), "%s+0x%x", function->name,
			 site->in_function);
		if (!elf_file_offset(libc, site->vaddr, &site->offset))
			plan->count++;
	}
}

/* Adds the site at the function's entry, where the first argument is read. */
static void entry_add(struct plan *plan, struct elf_file *libc,
		      const struct libc_function *function, const struct elf_symbol *symbol)
{
	const struct probe_spec spec = {function->name,
					function->op,
					EVENT_API_RAW,
					{ABI_ARGUMENT_1, ABI_REG_COUNT, ABI_REG_COUNT},
					PLAN_ENTRY_STACK};
	size_t count = plan->count;

	plan_function_add(plan, libc, &spec, symbol->vaddr, symbol->size);
	if (plan->count > count)
		plan->sites[count].cookie |= ABI_COOKIE_BEFORE;
}

/* Why the sites from `first` on do not say all of the function's system calls; NULL: they do. */
static const char *sites_lack(const struct plan *plan, const struct libc_function *function,
			      size_t first)
{
	int has_entry = FIRST_IS_LOST && function->first;

	if (has_entry && (plan->count == first || !(plan->sites[first].cookie & ABI_COOKIE_BEFORE)))
		return "its entry cannot be probed";
	first += (size_t)has_entry;
	if (plan->count == first)
		return "no system call is found in it";
	/* Without the frame the entry and what follows the system call cannot be matched. */
	for (size_t i = first; has_entry && i < plan->count; i++)
		if (!(plan->sites[i].cookie & ABI_FRAME_COOKIE_BITS))
			return "its frame is not understood";
	return NULL;
}

/*
 * 0; -ENOENT the function does not exist, makes no system call or is not understood. An optional
 * one is added to plan->missing instead.
 */
static int function_add(struct inline_decoder *decoder, struct plan *plan, struct elf_file *libc,
			const struct libc_function *function)
{
	uint8_t code[CODE_MAX];
	struct elf_symbol symbol;
	const char *why = plan_function_find(libc, function->name, &symbol);
	size_t before = plan->count;

	if (!why) {
		size_t size =
			symbol.size && symbol.size < sizeof(code) ? symbol.size : sizeof(code);
		int bytes = elf_file_read(libc, symbol.vaddr, code, size);

		if (FIRST_IS_LOST && function->first)
			entry_add(plan, libc, function, &symbol);
		if (bytes > 0)
			syscalls_add(decoder, plan, libc, function, symbol.vaddr, code,
				     (size_t)bytes);
		why = sites_lack(plan, function, before);
		if (!why)
			return 0;
		plan->count = before;
	}
	if (function->optional) {
		plan_missing_add(plan, function->name, why);
		return 0;
	}
	return error_set(-ENOENT, "%s of %s: %s", function->name, elf_file_path(libc), why);
}

int plan_memory(struct elf_file *libc, struct plan *out)
{
	struct plan plan = {.mode = EVENT_MODE_GROWTH, .capacity = SITES_MAX + 1};
	struct inline_decoder decoder = {0};
	int err = inline_decoder_open(&decoder, machine_own());

	plan.sites = calloc(plan.capacity, sizeof(*plan.sites));
	if (!plan.sites)
		err = -ENOMEM;
	/* Without munmap, memory that is long gone would be reported. */
	err = err ?: plan_symbol_add(&plan, libc, &unmap);
	if (!err && plan.missing_count)
		err = error_set(-ENOENT, "%s of %s: %s", plan.missing[0].symbol,
				elf_file_path(libc), plan.missing[0].why);
	for (size_t i = 0; i < FUNCTIONS && !err; i++)
		err = function_add(&decoder, &plan, libc, &functions[i]);
	inline_decoder_close(&decoder);
	if (err)
		plan_free(&plan);
	else
		*out = plan;
	return err;
}

/*
 * Opens the C library that the process has mapped. *program_break: its break (0: it has no heap
 * yet). Returns as plan_memory_process().
 */
static int plan_libc_open(pid_t pid, struct elf_file **libc, uint64_t *program_break)
{
	const struct process_map *map = NULL;
	struct process_maps maps;
	int err = process_maps_read(pid, &maps);

	if (err)
		return err;
	*program_break = 0;
	for (size_t i = 0; i < maps.count; i++) {
		if (!map && process_map_is_libc(&maps.entries[i]))
			map = &maps.entries[i];
		if (!strcmp(maps.entries[i].path, "[heap]"))
			*program_break = maps.entries[i].end;
	}
	if (!map) {
		err = error_set(-ENOENT, "it maps no C library");
	} else {
		int fd = process_map_open(pid, map);

		err = fd < 0 ? fd : elf_file_open(libc, fd, map->path, NO_DEBUG);
		if (err && fd >= 0)
			close(fd);
	}
	process_maps_free(&maps);
	return err;
}

int plan_memory_process(pid_t pid, struct elf_file **libc, struct plan *out)
{
	struct elf_file *file = NULL;
	uint64_t program_break;
	int err = plan_libc_open(pid, &file, &program_break);

	if (err)
		return err;
	err = plan_memory(file, out);
	if (err) {
		elf_file_close(file);
		return err;
	}
	*libc = file;
	out->program_break = program_break;
	return 0;
}

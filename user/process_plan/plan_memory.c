/* SPDX-License-Identifier: Apache-2.0 */
#include "process_plan/plan_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "machine/insn.h"
#include "machine/machine.h"
#include "plan/plan_symbol.h"
#include "process/process.h"

#define NO_DEBUG "/dev/null" /* the functions are exported */

#define CODE_MAX 512 /* bytes of a function that are inspected */

#define RESULT    (1u << ABI_RESULT)
#define ARGUMENTS (1u << ABI_ARGUMENT_1 | 1u << ABI_ARGUMENT_2 | 1u << ABI_ARGUMENT_3)

static const struct libc_function {
	const char *name;
	enum abi_op op;
	/* Bit r: enum abi_register r, for the arguments and the result that are used. */
	uint32_t registers;
	/* Figures are correct without it. musl's brk is a stub that does not move the break. */
	int optional;
} functions[] = {
	{"mremap", ABI_OP_MREMAP, RESULT | ARGUMENTS, 0},
	{"mprotect", ABI_OP_MPROTECT, RESULT | ARGUMENTS, 1},
	{"brk", ABI_OP_BRK, RESULT, 1},
	{"mmap", ABI_OP_MMAP, RESULT | ARGUMENTS | 1u << ABI_REG_R10, 0},
};

/* munmap is probed at its entry: a range must be reported before its address can be reused. */
static const struct probe_spec unmap = {
	"munmap", ABI_OP_MUNMAP, EVENT_API_RAW, {ABI_REG_COUNT, ABI_REG_COUNT, ABI_REG_COUNT}, 0};

#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))
#define SITES_MAX (4 * FUNCTIONS) /* a function may make several system calls */

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
		*site = (struct plan_site){.op = function->op,
					   .cookie = ABI_COOKIE(function->op, EVENT_API_RAW,
								ABI_REG_COUNT, ABI_REG_COUNT,
								ABI_REG_COUNT)};
		site_choose(decoder, code + at + length, bytes - at - length, vaddr + at + length,
			    function->registers, site);
		site->in_function = (uint32_t)(site->vaddr - vaddr);
		snprintf(site->symbol, sizeof(site->symbol), "%s+0x%x", function->name,
			 site->in_function);
		if (!elf_file_offset(libc, site->vaddr, &site->offset))
			plan->count++;
	}
}

/*
 * 0; -ENOENT the function does not exist, or makes no system call. An optional one is added to
 * plan->missing instead.
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

		if (bytes > 0)
			syscalls_add(decoder, plan, libc, function, symbol.vaddr, code,
				     (size_t)bytes);
		if (plan->count > before)
			return 0;
		why = "no system call is found in it";
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
	int err;

	/* Elsewhere the result of a system call replaces its first argument. */
	if (machine_own() != &machine_x86)
		return error_set(-ENOTSUP, "the mmap layer is traced on x86-64 only");
	err = inline_decoder_open(&decoder, machine_own());

	plan.sites = calloc(plan.capacity, sizeof(*plan.sites));
	if (!plan.sites)
		err = -ENOMEM;
	/* Without munmap, memory that is long gone would be reported. */
	if (!err)
		err = plan_symbol_add(&plan, libc, &unmap);
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

/* Is it the C library, by its file's name: "libc.so.6", "libc-2.31.so", "ld-musl-x86_64.so.1"? */
static int is_libc(const struct process_map *map)
{
	const char *slash = strrchr(map->path, '/');

	return map->executable && map->inode && slash &&
	       (!strncmp(slash, "/libc.so", strlen("/libc.so")) ||
		!strncmp(slash, "/libc-2.", strlen("/libc-2.")) ||
		!strncmp(slash, "/ld-musl-", strlen("/ld-musl-")));
}

int plan_libc_open(pid_t pid, struct elf_file **libc, uint64_t *program_break)
{
	const struct process_map *map = NULL;
	struct process_maps maps;
	int err = process_maps_read(pid, &maps);

	if (err)
		return err;
	*program_break = 0;
	for (size_t i = 0; i < maps.count; i++) {
		if (!map && is_libc(&maps.entries[i]))
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

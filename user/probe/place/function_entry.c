/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where in a function the probe sits.
 *
 * The probe must be hit exactly once in every call. So only the entry path is inspected: the
 * instructions that run one after the other from the entry up to and including the first branch. A
 * jump target and everything after it is excluded, since it may run again. A jump to the entry
 * itself is equivalent to a call: it hits the entry as often as any later instruction, so it
 * excludes nothing.
 *
 * Along the path each argument has a set of registers that hold it: a full move adds one, a write
 * removes one. The first emulated instruction that every argument reaches is the site.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "object/insn/machine.h"
#include "probe/place/function_entry.h"
#include "util/array.h"
#include "util/error.h"

#define ARGUMENTS 3

struct function_entry_scan {
	const struct machine *machine;
	struct inline_decoder decoder;
	cs_insn *insn; /* the decoder's */
	const uint8_t *code;
	size_t bytes;
	uint64_t vaddr;
	const struct probe_spec *spec;
	uint32_t holders[ARGUMENTS]; /* bit r: enum abi_register r holds the argument */
	bool stack_moved;
};

static bool decode(struct function_entry_scan *scan, size_t offset)
{
	return inline_decode_one(&scan->decoder, scan->code + offset, scan->bytes - offset,
				 scan->vaddr + offset) > 0;
}

/* Can control continue elsewhere than at the next instruction, or is that up to the kernel? */
static bool ends_path(const struct function_entry_scan *scan)
{
	return scan->machine->leaves(scan->decoder.capstone, scan->insn);
}

/*
 * The lowest offset after the entry that a relative branch of these bytes leads to, SIZE_MAX if
 * none does. Bytes that do not decode are skipped one by one: an extra target costs a trap, a
 * missing one makes counts wrong.
 */
static size_t first_jump_target(struct function_entry_scan *scan)
{
	size_t first = SIZE_MAX;

	for (size_t offset = 0; offset < scan->bytes;) {
		uint64_t target;

		if (!decode(scan, offset)) {
			offset += scan->machine->insn_step;
			continue;
		}
		if (scan->machine->target(scan->decoder.capstone, scan->insn, &target) &&
		    target != scan->vaddr && target - scan->vaddr < first)
			first = target - scan->vaddr;
		offset += scan->insn->size;
	}
	return first;
}

/* Applies the decoded instruction. Returns the first argument that it destroys, or ARGUMENTS. */
static int step(struct function_entry_scan *scan)
{
	const struct machine *machine = scan->machine;
	uint32_t written = machine->registers_written(scan->decoder.capstone, scan->insn);
	uint32_t source = 0, copy = 0, to, from;
	int lost = ARGUMENTS;

	if (machine->copies(scan->insn, &to, &from)) {
		source = 1u << from;
		copy = 1u << to;
	}
	for (int i = ARGUMENTS - 1; i >= 0; i--) {
		uint32_t before = scan->holders[i];

		scan->holders[i] = (before & ~written) | (before & source ? copy : 0);
		if (before && !scan->holders[i])
			lost = i;
	}
	scan->stack_moved |= written >> machine->stack_pointer & 1;
	/* Once it is stored or signed, a return probe can no longer replace it. */
	scan->stack_moved |= machine->link_register < ABI_REG_COUNT &&
			     machine->register_use(scan->insn, machine->link_register);
	return lost;
}

static const char *argument_name(enum abi_op op, int argument)
{
	static const char *const names[][ARGUMENTS] = {
		[ABI_OP_MALLOC] = {"bytes"},
		[ABI_OP_CALLOC] = {"count", "bytes"},
		[ABI_OP_REALLOC] = {"address", "bytes"},
		[ABI_OP_FREE] = {"address"},
		[ABI_OP_TRACK] = {"domain", "address", "bytes"},
		[ABI_OP_UNTRACK] = {"domain", "address"},
		[ABI_OP_POSIX_MEMALIGN] = {"result", "bytes"},
		[ABI_OP_REALLOCARRAY] = {"address", "count", "bytes"},
		[ABI_OP_XALLOCX] = {"address", "bytes"},
	};

	if ((size_t)op >= ARRAY_SIZE(names) || !names[op][argument])
		return "an argument";
	return names[op][argument];
}

/* Appends to a text of size bytes; truncates. */
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t size,
							 const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + length, size - length, format, arguments);
	va_end(arguments);
}

/*
 * Walks the entry path. True, and *offset, if there is a suitable emulated instruction, which is
 * the decoded one then; otherwise false, and why has the reason.
 */
static bool find_emulated(struct function_entry_scan *scan, size_t *offset, char *why, size_t size)
{
	size_t target = first_jump_target(scan);

	append(why, size, "entry (two traps): ");
	for (*offset = 0; *offset < scan->bytes; *offset += scan->insn->size) {
		if (*offset >= target) {
			append(why, size, "no emulated instruction before +%zu, where a jump leads",
			       target);
			return false;
		}
		if (!decode(scan, *offset)) {
			append(why, size, "the code at +%zu cannot be decoded", *offset);
			return false;
		}
		if (scan->machine->is_emulated(scan->insn->bytes, scan->insn->size))
			return true;
		if (ends_path(scan)) {
			append(why, size, "no emulated instruction up to %s at +%zu",
			       scan->insn->mnemonic, *offset);
			return false;
		}
		int lost = step(scan);
		if (lost < ARGUMENTS) {
			append(why, size, "no emulated instruction before %s is lost at +%zu",
			       argument_name(scan->spec->op, lost), *offset);
			return false;
		}
		if (scan->spec->with_return && scan->stack_moved) {
			append(why, size, "no emulated instruction before the stack moves at +%zu",
			       *offset);
			return false;
		}
	}
	append(why, size, "no emulated instruction in the %zu bytes known", scan->bytes);
	return false;
}

/*
 * The register to read an argument from: the ABI's if that still holds it, otherwise another one.
 */
static uint32_t holder_of(const struct function_entry_scan *scan, int argument)
{
	uint32_t entry = scan->spec->arguments[argument], holders = scan->holders[argument];

	if (!holders)
		return ABI_REG_COUNT;
	return holders >> entry & 1 ? entry : (uint32_t)__builtin_ctz(holders);
}

static void describe_emulated(const struct function_entry_scan *scan, size_t offset, char *why,
			      size_t size)
{
	const char *separator = ";";

	append(why, size, "%s at +%zu is emulated", scan->insn->mnemonic, offset);
	for (int i = 0; i < ARGUMENTS; i++) {
		uint32_t holder = holder_of(scan, i);

		if (holder == ABI_REG_COUNT)
			continue;
		append(why, size, "%s %s %s%s%s", separator, argument_name(scan->spec->op, i),
		       holder == scan->spec->arguments[i] ? "still in " : "in ",
		       scan->machine->arch == CS_ARCH_X86 ? "%" : "",
		       scan->machine->register_name(holder));
		separator = ",";
	}
}

static void start(struct function_entry_scan *scan)
{
	for (int i = 0; i < ARGUMENTS; i++) {
		uint32_t reg = scan->spec->arguments[i];

		scan->holders[i] = reg < ABI_REG_COUNT ? 1u << reg : 0;
	}
	scan->stack_moved = false;
}

static void fill_site(struct function_entry_scan *scan, struct plan_site *site)
{
	const struct probe_spec *spec = scan->spec;
	size_t offset;

	start(scan);
	site->why[0] = site->instruction[0] = '\0';
	site->emulated = find_emulated(scan, &offset, site->why, sizeof(site->why));
	if (site->emulated) {
		site->why[0] = '\0';
		describe_emulated(scan, offset, site->why, sizeof(site->why));
	} else {
		offset = 0;
		start(scan);
	}
	site->vaddr = scan->vaddr + offset;
	site->in_function = (uint32_t)offset;
	site->cookie = ABI_COOKIE(spec->op, spec->api, holder_of(scan, 0), holder_of(scan, 1),
				  holder_of(scan, 2));
	site->op = spec->op;
	site->with_return = spec->with_return == 1;

	inline_disassemble(&scan->decoder, scan->code + offset, scan->bytes - offset, site->vaddr,
			   site->instruction, sizeof(site->instruction));
}

int function_entry_site(const struct machine *machine, const struct probe_spec *spec,
			const uint8_t *code, size_t bytes, uint64_t vaddr, struct plan_site *site)
{
	struct function_entry_scan scan = {
		.machine = machine, .code = code, .bytes = bytes, .vaddr = vaddr, .spec = spec};

	if (!bytes)
		return error_set(-EINVAL, "%s has no code", spec->symbol);
	if (scan.bytes > FUNCTION_MAX_CODE)
		scan.bytes = FUNCTION_MAX_CODE;
	int err = inline_decoder_open(&scan.decoder, machine);
	if (err)
		return err;
	scan.insn = scan.decoder.insn;
	fill_site(&scan, site);
	inline_decoder_close(&scan.decoder);
	return 0;
}

bool function_argument_is_32(const struct machine *machine, const uint8_t *code, size_t bytes,
			     uint32_t reg)
{
	struct function_entry_scan scan = {.machine = machine, .code = code, .bytes = bytes};
	struct inline_insn insn;
	int use = 0;

	if (inline_decoder_open(&scan.decoder, machine))
		return 0;
	scan.insn = scan.decoder.insn;
	for (size_t offset = 0;
	     !use && offset < bytes &&
	     inline_decode(&scan.decoder, code + offset, bytes - offset, offset, &insn);
	     offset += insn.bytes) {
		/* Registers are unchanged after a conditional branch. */
		if (ends_path(&scan) && insn.op != INLINE_BRANCH)
			break;
		use = machine->register_use(scan.insn, reg);
	}
	inline_decoder_close(&scan.decoder);
	return use == 4;
}

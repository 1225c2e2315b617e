/* SPDX-License-Identifier: Apache-2.0 */
#include "object/unwind/cfi.h"

#include <stdlib.h>

#include "object/unwind/rule.h"
#include "util/array.h"

/* The operation is in the upper two bits, or, if these are 0, in the others. */
enum cfi_op {
	OP_ADVANCE = 0x40,
	OP_OFFSET = 0x80,
	OP_RESTORE = 0xc0,
	OP_HIGH = 0xc0,
	OP_NOP = 0x00,
	OP_SET_LOC = 0x01,
	OP_ADVANCE1 = 0x02,
	OP_ADVANCE2 = 0x03,
	OP_ADVANCE4 = 0x04,
	OP_OFFSET_EXTENDED = 0x05,
	OP_RESTORE_EXTENDED = 0x06,
	OP_UNDEFINED = 0x07,
	OP_SAME_VALUE = 0x08,
	OP_REGISTER = 0x09,
	OP_REMEMBER_STATE = 0x0a,
	OP_RESTORE_STATE = 0x0b,
	OP_DEF_CFA = 0x0c,
	OP_DEF_CFA_REGISTER = 0x0d,
	OP_DEF_CFA_OFFSET = 0x0e,
	OP_DEF_CFA_EXPRESSION = 0x0f,
	OP_EXPRESSION = 0x10,
	OP_OFFSET_EXTENDED_SF = 0x11,
	OP_DEF_CFA_SF = 0x12,
	OP_DEF_CFA_OFFSET_SF = 0x13,
	OP_VAL_OFFSET = 0x14,
	OP_VAL_OFFSET_SF = 0x15,
	OP_VAL_EXPRESSION = 0x16,
	/* the address is signed with another modifier, or with none; arm64 */
	OP_NEGATE_RA_STATE_WITH_PC = 0x2c,
	OP_NEGATE_RA_STATE = 0x2d,
	OP_GNU_ARGS_SIZE = 0x2e,
	OP_GNU_NEGATIVE_OFFSET = 0x2f,
};

struct cfi_run {
	struct elf_reader reader;
	const struct elf_frame *frame;
	uint64_t section; /* its vaddr */
	uint64_t vaddr;   /* of the next row */
	struct cfi_state state, initial, remembered[CFI_REMEMBERED_MAX];
	unsigned depth;
};

static const struct abi_unwind_rule none;

static void register_set(struct cfi_run *run, uint64_t reg, struct cfi_saved saved)
{
	if (reg == run->state.registers.frame)
		run->state.rbp = saved;
	else if (reg == run->state.registers.ra)
		run->state.ra = saved;
}

static void register_at(struct cfi_run *run, uint64_t reg, uint64_t factored)
{
	uint64_t offset = factored * (uint64_t)run->frame->common.data_align;

	register_set(run, reg, (struct cfi_saved){.kind = CFI_AT_CFA, .offset = (int64_t)offset});
}

static void register_restore(struct cfi_run *run, uint64_t reg)
{
	register_set(run, reg,
		     reg == run->state.registers.frame ? run->initial.rbp : run->initial.ra);
}

static void cfa_define(struct cfi_run *run, uint64_t reg, uint64_t offset)
{
	run->state.cfa = CFI_CFA_REGISTER;
	run->state.cfa_register = reg;
	run->state.cfa_offset = (int64_t)offset;
}

/* The expression that follows. */
static const uint8_t *expression_take(struct cfi_run *run, size_t *bytes)
{
	*bytes = elf_take_uleb(&run->reader);
	const uint8_t *expression = run->reader.bytes + run->reader.at;
	elf_skip(&run->reader, *bytes);
	if (run->reader.failed)
		*bytes = 0;
	return expression;
}

/*
 * Operations on the CFA. 0: op is none of them. An expression leaves the register and the offset
 * as they were, as in gcc's unwinder: the assembly of libgcrypt sets a register after one.
 */
static int cfa_run(struct cfi_run *run, uint8_t op)
{
	int64_t align = run->frame->common.data_align;
	struct elf_reader *reader = &run->reader;
	const uint8_t *expression;
	uint64_t reg, offset;
	size_t bytes;

	switch (op) {
	case OP_DEF_CFA:
		reg = elf_take_uleb(reader);
		cfa_define(run, reg, elf_take_uleb(reader));
		return 1;
	case OP_DEF_CFA_SF:
		reg = elf_take_uleb(reader);
		cfa_define(run, reg, (uint64_t)elf_take_sleb(reader) * (uint64_t)align);
		return 1;
	case OP_DEF_CFA_REGISTER:
		cfa_define(run, elf_take_uleb(reader), (uint64_t)run->state.cfa_offset);
		return 1;
	case OP_DEF_CFA_OFFSET:
		run->state.cfa_offset = (int64_t)elf_take_uleb(reader);
		return 1;
	case OP_DEF_CFA_OFFSET_SF:
		offset = (uint64_t)elf_take_sleb(reader) * (uint64_t)align;
		run->state.cfa_offset = (int64_t)offset;
		return 1;
	case OP_DEF_CFA_EXPRESSION:
		expression = expression_take(run, &bytes);
		cfi_state_set_cfa(&run->state, expression, bytes);
		return 1;
	default:
		return 0;
	}
}

/* Operations on a register. 0: op is none of them. */
static int register_run(struct cfi_run *run, uint8_t op, uint64_t reg)
{
	struct cfi_saved other = {.kind = CFI_OTHER};
	struct elf_reader *reader = &run->reader;
	const uint8_t *expression;
	size_t bytes;

	switch (op) {
	case OP_OFFSET:
	case OP_OFFSET_EXTENDED:
		register_at(run, reg, elf_take_uleb(reader));
		return 1;
	case OP_OFFSET_EXTENDED_SF:
		register_at(run, reg, (uint64_t)elf_take_sleb(reader));
		return 1;
	case OP_GNU_NEGATIVE_OFFSET:
		register_at(run, reg, -elf_take_uleb(reader));
		return 1;
	case OP_RESTORE:
	case OP_RESTORE_EXTENDED:
		register_restore(run, reg);
		return 1;
	case OP_UNDEFINED:
	case OP_SAME_VALUE:
		other.kind = op == OP_UNDEFINED ? CFI_UNDEFINED : CFI_SAME;
		register_set(run, reg, other);
		return 1;
	case OP_REGISTER:
	case OP_VAL_OFFSET:
	case OP_VAL_OFFSET_SF:
		elf_take_uleb(reader); /* the same length if it is signed */
		register_set(run, reg, other);
		return 1;
	case OP_EXPRESSION:
	case OP_VAL_EXPRESSION:
		expression = expression_take(run, &bytes);
		register_set(run, reg,
			     op == OP_EXPRESSION ? cfi_saved_at(&run->state, expression, bytes)
						 : other);
		return 1;
	default:
		return 0;
	}
}

/* Operations on the whole state. 0: op is none of them, or is not possible. */
static int state_run(struct cfi_run *run, uint8_t op)
{
	switch (op) {
	case OP_NOP:
		return 1;
	case OP_NEGATE_RA_STATE:
	case OP_NEGATE_RA_STATE_WITH_PC:
		/* Where it is signed, it is masked when it is read. */
		return run->state.registers.ra == CFI_RA_ARM64;
	case OP_GNU_ARGS_SIZE:
		elf_take_uleb(&run->reader);
		return 1;
	case OP_REMEMBER_STATE:
		if (run->depth == CFI_REMEMBERED_MAX)
			return 0;
		run->remembered[run->depth++] = run->state;
		return 1;
	case OP_RESTORE_STATE:
		if (!run->depth)
			return 0;
		run->state = run->remembered[--run->depth];
		return 1;
	default:
		return 0;
	}
}

/* Where the next row begins, if the operation says so. 0: it says something else. */
static int location_run(struct cfi_run *run, uint8_t op, uint8_t low, uint64_t *vaddr)
{
	uint64_t align = run->frame->common.code_align;
	struct elf_reader *reader = &run->reader;

	switch (op) {
	case OP_ADVANCE:
		*vaddr = run->vaddr + low * align;
		return 1;
	case OP_ADVANCE1:
		*vaddr = run->vaddr + elf_take_byte(reader) * align;
		return 1;
	case OP_ADVANCE2:
		*vaddr = run->vaddr + elf_take(reader, 2) * align;
		return 1;
	case OP_ADVANCE4:
		*vaddr = run->vaddr + elf_take(reader, 4) * align;
		return 1;
	case OP_SET_LOC:
		*vaddr = elf_frames_address(reader, run->frame->common.encoding, run->section);
		return 1;
	default:
		return 0;
	}
}

/*
 * Runs operations until one ends the row. 1: *end is where; 0: there are no more; -1: one is
 * damaged or not known.
 */
static int row_run(struct cfi_run *run, uint64_t *end)
{
	while (run->reader.at < run->reader.end) {
		uint8_t byte = elf_take_byte(&run->reader);
		uint8_t op = byte & OP_HIGH ? byte & OP_HIGH : byte, low = byte & ~OP_HIGH;

		if (location_run(run, op, low, end))
			return run->reader.failed || *end < run->vaddr ? -1 : 1;
		if (state_run(run, op) || cfa_run(run, op)) {
			if (run->reader.failed)
				return -1;
			continue;
		}
		if (!register_run(run, op, byte & OP_HIGH ? low : elf_take_uleb(&run->reader)) ||
		    run->reader.failed)
			return -1;
	}
	return 0;
}

int cfi_rows_append(struct cfi_rows *rows, uint64_t vaddr, struct abi_unwind_rule rule)
{
	if (rows->count && rows->rows[rows->count - 1].vaddr == vaddr)
		rows->count--;
	if (rows->count ? unwind_rule_equal(rows->rows[rows->count - 1].rule, rule)
			: unwind_rule_equal(rule, none))
		return 0;
	int err = ARRAY_GROW(rows->rows, rows->capacity, rows->count);
	if (!err)
		rows->rows[rows->count++] = (struct cfi_row){.vaddr = vaddr, .rule = rule};
	return err;
}

/* Sets the state in which an entry begins. 0; -1: damaged. */
static int run_begin(struct cfi_run *run)
{
	const struct elf_frame_common *common = &run->frame->common;
	uint64_t end;

	const struct cfi_registers x86 = {CFI_RBP_X86, CFI_RSP_X86, CFI_RA_X86},
				   arm64 = {29, 31, CFI_RA_ARM64};
	int is_arm64 = common->return_register == CFI_RA_ARM64;

	if ((common->return_register != CFI_RA_X86 && !is_arm64) || !run->frame->bytes ||
	    run->frame->bytes > UINT64_MAX - run->frame->vaddr ||
	    common->code_end - common->code > CFI_COMMON_BYTES_MAX)
		return -1;
	run->reader.at = common->code;
	run->reader.end = common->code_end;
	run->reader.failed = 0;
	run->depth = 0;
	run->state = (struct cfi_state){.ra.kind = CFI_OTHER, .registers = is_arm64 ? arm64 : x86};
	run->initial = run->state;
	if (row_run(run, &end))
		return -1;
	run->initial = run->state;
	run->depth = 0;
	run->reader.at = run->frame->code;
	run->reader.end = run->frame->code_end;
	run->vaddr = run->frame->vaddr;
	return 0;
}

static struct abi_unwind_rule run_rule(const struct cfi_run *run)
{
	const struct abi_unwind_rule signal = {.kind = ABI_UNWIND_SIGNAL};

	return run->frame->common.signal ? signal : cfi_state_rule(&run->state);
}

/* The rows of an entry from *covered on, which moves on. 1: some are missing; 0; -ENOMEM. */
static int frame_append(struct cfi_rows *rows, struct cfi_run *run, uint64_t *covered)
{
	uint64_t last = run->frame->vaddr + run->frame->bytes, end;
	int more = 1, err;

	if (run_begin(run))
		return 1;
	while (more > 0 && run->vaddr < last) {
		more = row_run(run, &end);
		if (more < 0 || rows->count >= CFI_ROWS_MAX)
			return 1;
		if (!more || end > last)
			end = last;
		struct abi_unwind_rule rule = run_rule(run);
		if (end > *covered && end > run->vaddr) {
			err = cfi_rows_append(rows, run->vaddr > *covered ? run->vaddr : *covered,
					      rule);
			if (err)
				return err;
			*covered = end;
		}
		run->vaddr = end;
	}
	return 0;
}

int cfi_rows_read(struct cfi_rows *out, const uint8_t *bytes, uint64_t vaddr,
		  const struct elf_frame *frames, size_t count)
{
	struct cfi_run run = {.reader.bytes = bytes, .section = vaddr};
	uint64_t covered = 0;
	/* Most functions have no more; growing copies. */
	int err = array_reserve(&out->rows, &out->capacity, out->count, 4 * count,
				sizeof(*out->rows));

	for (size_t i = 0; i < count && err >= 0; i++) {
		run.frame = &frames[i];
		/* Nothing is known of what lies between the entries. */
		if (frames[i].vaddr > covered)
			err = cfi_rows_append(out, covered, none);
		if (err >= 0)
			err = frame_append(out, &run, &covered);
		if (err > 0)
			out->cut++;
	}
	return err < 0 ? err : cfi_rows_append(out, covered, none);
}

void cfi_rows_free(struct cfi_rows *rows)
{
	free(rows->rows);
	*rows = (struct cfi_rows){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state before an instruction says where the CFA and the caller's rbp are, if all paths from
 * there to a return agree. It follows from the states after it, so the instructions are visited
 * from the last to the first, until no state changes.
 */
#include "object/unwind/unwind_flow.h"

#include <capstone/capstone.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "object/unwind/rule.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/sorted.h"

/* --- flow insn -------------------------------------------------------------------------------- */

/* Instructions as the rules need them: what they do to rsp and rbp, and where control goes. */

enum flow_op {
	FLOW_OTHER = 0,
	FLOW_NOP,  /* padding, or the alignment of a loop */
	FLOW_PUSH, /* 8 bytes, of another register than rbp */
	FLOW_PUSH_RBP,
	FLOW_POP, /* 8 bytes, into another register than rbp */
	FLOW_POP_RBP,
	FLOW_LEAVE,     /* rsp = rbp, then pop rbp */
	FLOW_ADD_RSP,   /* rsp += value */
	FLOW_RSP_RBP,   /* rsp = rbp + value */
	FLOW_RBP_RSP,   /* rbp = rsp + value */
	FLOW_WRITE_RBP, /* an unknown value */
	FLOW_WRITE_RSP,
	FLOW_CALL,
	FLOW_BRANCH, /* to target or on */
	FLOW_JUMP,   /* to target */
	FLOW_RETURN,
	FLOW_JUMP_ANY, /* to a computed address */
	FLOW_STOP,     /* the program ends, or it is no instruction */
};

struct flow_insn {
	uint64_t vaddr;
	uint64_t target; /* of a call (0: computed), a branch or a jump */
	int32_t value;
	uint8_t bytes;
	uint8_t op; /* enum flow_op */
	/* a function begins here; number of the instruction at target */
	uint8_t starts;
	uint32_t target_index;
};

static bool is_rsp(unsigned reg)
{
	return reg == X86_REG_RSP || reg == X86_REG_ESP || reg == X86_REG_SP || reg == X86_REG_SPL;
}

static bool is_rbp(unsigned reg)
{
	return reg == X86_REG_RBP || reg == X86_REG_EBP || reg == X86_REG_BP || reg == X86_REG_BPL;
}

/* Does it write rsp, rbp? */
static enum flow_op written(csh capstone, const cs_insn *insn)
{
	uint8_t read_count, write_count;
	enum flow_op op = FLOW_OTHER;
	cs_regs reads, writes;

	if (cs_regs_access(capstone, insn, reads, &read_count, writes, &write_count))
		return FLOW_STOP;
	for (uint8_t i = 0; i < write_count; i++) {
		if (is_rsp(writes[i]))
			return FLOW_WRITE_RSP;
		if (is_rbp(writes[i]))
			op = FLOW_WRITE_RBP;
	}
	return op;
}

static bool is_register(const cs_x86_op *operand, unsigned reg)
{
	return operand->type == X86_OP_REG && operand->reg == (x86_reg)reg;
}

static int set_value(struct flow_insn *out, enum flow_op op, int64_t value)
{
	out->op = op;
	out->value = (int32_t)value;
	return value == out->value;
}

/* add, sub, mov and lea between rsp, rbp and a number. 0: it is none of them. */
static int decode_arithmetic(const cs_insn *insn, struct flow_insn *out)
{
	const cs_x86 *x86 = &insn->detail->x86;
	const cs_x86_op *to = &x86->operands[0], *from = &x86->operands[1];
	int to_rsp = is_register(to, X86_REG_RSP), to_rbp = is_register(to, X86_REG_RBP);
	const x86_op_mem *memory = &from->mem;

	if (x86->op_count != 2 || (!to_rsp && !to_rbp))
		return 0;
	switch (insn->id) {
	case X86_INS_ADD:
	case X86_INS_SUB:
		return to_rsp && from->type == X86_OP_IMM &&
		       set_value(out, FLOW_ADD_RSP,
				 insn->id == X86_INS_ADD ? from->imm : -from->imm);
	case X86_INS_MOV:
		if (is_register(from, to_rsp ? X86_REG_RBP : X86_REG_RSP))
			return set_value(out, to_rsp ? FLOW_RSP_RBP : FLOW_RBP_RSP, 0);
		return 0;
	case X86_INS_LEA:
		if (memory->index != X86_REG_INVALID || memory->segment != X86_REG_INVALID)
			return 0;
		if (memory->base == X86_REG_RSP)
			return set_value(out, to_rsp ? FLOW_ADD_RSP : FLOW_RBP_RSP, memory->disp);
		return to_rsp && memory->base == X86_REG_RBP &&
		       set_value(out, FLOW_RSP_RBP, memory->disp);
	default:
		return 0;
	}
}

static enum flow_op decode_stack(const cs_insn *insn)
{
	const cs_x86_op *operand = &insn->detail->x86.operands[0];

	if (insn->id == X86_INS_LEAVE)
		return FLOW_LEAVE;
	if (insn->id != X86_INS_PUSH && insn->id != X86_INS_POP)
		return FLOW_OTHER;
	if (operand->size != 8 && operand->type != X86_OP_IMM)
		return FLOW_WRITE_RSP;
	if (insn->id == X86_INS_PUSH)
		return is_register(operand, X86_REG_RBP) ? FLOW_PUSH_RBP : FLOW_PUSH;
	if (is_register(operand, X86_REG_RBP))
		return FLOW_POP_RBP;
	return is_register(operand, X86_REG_RSP) ? FLOW_WRITE_RSP : FLOW_POP;
}

static enum flow_op decode_jump(const cs_insn *insn, int is_direct)
{
	if (!is_direct)
		return FLOW_JUMP_ANY;
	return insn->id == X86_INS_JMP ? FLOW_JUMP : FLOW_BRANCH;
}

static int decode_control(csh capstone, const cs_insn *insn, struct flow_insn *out)
{
	const cs_x86 *x86 = &insn->detail->x86;
	int is_direct = x86->op_count == 1 && x86->operands[0].type == X86_OP_IMM;

	if (is_direct)
		out->target = (uint64_t)x86->operands[0].imm;
	if (cs_insn_group(capstone, insn, CS_GRP_CALL))
		out->op = FLOW_CALL;
	else if (cs_insn_group(capstone, insn, CS_GRP_RET))
		/* C code does not remove its arguments. */
		out->op = insn->id == X86_INS_RET && !x86->op_count ? FLOW_RETURN : FLOW_JUMP_ANY;
	else if (cs_insn_group(capstone, insn, CS_GRP_JUMP))
		out->op = decode_jump(insn, is_direct);
	else if (insn->id == X86_INS_HLT || insn->id == X86_INS_UD2 || insn->id == X86_INS_INT3)
		out->op = FLOW_STOP;
	else if (insn->id == X86_INS_NOP)
		out->op = FLOW_NOP;
	return out->op != FLOW_OTHER;
}

/* Decodes the first instruction of code; insn is memory for it. One byte that is none is a stop. */
static struct flow_insn flow_decode(csh capstone, cs_insn *insn, const uint8_t *code, size_t bytes,
				    uint64_t vaddr)
{
	struct flow_insn out = {.vaddr = vaddr, .bytes = 1, .op = FLOW_STOP};

	if (!cs_disasm_iter(capstone, &code, &bytes, &vaddr, insn))
		return out;
	out.bytes = (uint8_t)insn->size;
	out.op = FLOW_OTHER;
	if (decode_control(capstone, insn, &out))
		return out;
	out.op = (uint8_t)decode_stack(insn);
	if (out.op == FLOW_OTHER && !decode_arithmetic(insn, &out))
		out.op = (uint8_t)written(capstone, insn);
	return out;
}

/* --- unwind flow ------------------------------------------------------------------------------ */

#define PASSES_MAX 64 /* each loop within a loop needs one more */
#define CFA_MAX    (1 << 24)
#define OUTSIDE    UINT32_MAX

struct flow_state {
	/* no path returns; some may; the known ones agree; they do not */
	enum { PATH_NONE, PATH_UNKNOWN, PATH_KNOWN, PATH_CONFLICT } path;
	int by_rbp;    /* CFA = rbp + cfa; else rsp + cfa */
	int rbp_saved; /* the caller's rbp is at CFA + rbp; else it is in rbp */
	int32_t cfa, rbp;
};

struct flow_function {
	struct flow_insn *insns; /* ascending */
	struct flow_state *states;
	size_t count, capacity;
	csh capstone;
	cs_insn *insn;
};

static const struct flow_state none;
static const struct flow_state unknown = {.path = PATH_UNKNOWN};
static const struct flow_state conflict = {.path = PATH_CONFLICT};
static const struct flow_state returned = {.path = PATH_KNOWN, .cfa = 8};

static bool is_equal(struct flow_state a, struct flow_state b)
{
	return a.path == b.path && a.by_rbp == b.by_rbp && a.rbp_saved == b.rbp_saved &&
	       a.cfa == b.cfa && a.rbp == b.rbp;
}

static struct flow_state meet(struct flow_state a, struct flow_state b)
{
	if (a.path < PATH_KNOWN || b.path < PATH_KNOWN)
		return a.path < b.path ? b : a;
	return is_equal(a, b) ? a : conflict;
}

/* rsp += value */
static struct flow_state before_add(struct flow_state after, int64_t value)
{
	if (after.by_rbp)
		return after;
	if (value > CFA_MAX || value < -CFA_MAX || after.cfa + value > CFA_MAX ||
	    after.cfa + value < -CFA_MAX)
		return conflict;
	after.cfa += (int32_t)value;
	return after;
}

/* rsp = rbp + value */
static struct flow_state before_rsp_rbp(struct flow_state after, int32_t value)
{
	after = before_add(after, value);
	if (after.path == PATH_KNOWN)
		after.by_rbp = 1;
	return after;
}

/* pop rbp */
static struct flow_state before_pop_rbp(struct flow_state after)
{
	if (after.by_rbp)
		return conflict;
	after = before_add(after, 8);
	if (after.path == PATH_KNOWN && !after.rbp_saved) {
		after.rbp_saved = 1;
		after.rbp = -after.cfa;
	}
	return after;
}

/* push */
static struct flow_state before_push(struct flow_state after, int is_rbp)
{
	/* It fills the place from which the caller's rbp is restored. */
	if (!after.by_rbp && after.rbp_saved && after.cfa + after.rbp == 0) {
		if (!is_rbp)
			return conflict;
		after.rbp_saved = 0;
		after.rbp = 0;
	}
	return before_add(after, -8);
}

static struct flow_state before(const struct flow_insn *insn, struct flow_state after)
{
	if (after.path != PATH_KNOWN)
		return after;
	switch (insn->op) {
	case FLOW_PUSH:
	case FLOW_PUSH_RBP:
		return before_push(after, insn->op == FLOW_PUSH_RBP);
	case FLOW_POP:
		return before_add(after, 8);
	case FLOW_POP_RBP:
		return before_pop_rbp(after);
	case FLOW_LEAVE:
		return before_rsp_rbp(before_pop_rbp(after), 0);
	case FLOW_ADD_RSP:
		return before_add(after, insn->value);
	case FLOW_RSP_RBP:
		return before_rsp_rbp(after, insn->value);
	case FLOW_RBP_RSP:
		if (!after.rbp_saved)
			return conflict;
		if (after.by_rbp) {
			after.by_rbp = 0;
			after = before_add(after, insn->value);
		}
		return after;
	case FLOW_WRITE_RBP:
		return after.rbp_saved && !after.by_rbp ? after : conflict;
	case FLOW_WRITE_RSP:
		return after.by_rbp ? after : conflict;
	default:
		return after;
	}
}

/* Index of the instruction at an address; OUTSIDE: none begins there. */
static uint32_t index_of(const struct flow_function *flow, uint64_t vaddr)
{
	size_t above = SORTED_ABOVE(flow->insns, flow->count, vaddr, vaddr);

	return above && flow->insns[above - 1].vaddr == vaddr ? (uint32_t)(above - 1) : OUTSIDE;
}

/* The state after an instruction from which control goes on to the next one. */
static struct flow_state next_state(const struct flow_function *flow, size_t index)
{
	const struct flow_insn *insn = &flow->insns[index], *next = insn + 1;

	if (index + 1 == flow->count || next->vaddr != insn->vaddr + insn->bytes || next->starts)
		return none;
	/* What follows a call that does not return is padding. */
	if (insn->op == FLOW_CALL && next->op == FLOW_NOP)
		return none;
	return flow->states[index + 1];
}

/* Code that is covered or in another file is another function: it returns to our caller. */
static struct flow_state target_state(const struct flow_function *flow,
				      const struct flow_insn *insn)
{
	return insn->target_index == OUTSIDE ? returned : flow->states[insn->target_index];
}

/*
 * The state after a call. A function from which no path returns is not returned from. The ABI
 * aligns rsp at calls: a path on which it is not has run on, after a call that does not return,
 * into the begin of another function.
 */
static struct flow_state call_state(const struct flow_function *flow, size_t index)
{
	struct flow_state state = next_state(flow, index);

	if (target_state(flow, &flow->insns[index]).path == PATH_NONE)
		return none;
	return state.path == PATH_KNOWN && !state.by_rbp && state.cfa % 16 ? none : state;
}

static struct flow_state state_of(const struct flow_function *flow, size_t index)
{
	const struct flow_insn *insn = &flow->insns[index];

	switch (insn->op) {
	case FLOW_RETURN:
		return returned;
	case FLOW_STOP:
		return none;
	case FLOW_JUMP_ANY:
		return unknown;
	case FLOW_CALL:
		return call_state(flow, index);
	case FLOW_JUMP:
		return target_state(flow, insn);
	case FLOW_BRANCH:
		return meet(next_state(flow, index), target_state(flow, insn));
	default:
		return before(insn, next_state(flow, index));
	}
}

/* 0: the states do not settle. */
static int states_solve(struct flow_function *flow)
{
	int changed = 1;

	for (int pass = 0; pass < PASSES_MAX && changed; pass++) {
		changed = 0;
		for (size_t i = flow->count; i--;) {
			struct flow_state state = state_of(flow, i);

			/* A state only ever loses: this ends. */
			state = meet(flow->states[i], state);
			changed |= !is_equal(state, flow->states[i]);
			flow->states[i] = state;
		}
	}
	return !changed;
}

static struct abi_unwind_rule state_rule(struct flow_state state)
{
	struct cfi_state cfi = {
		.cfa = CFI_CFA_REGISTER,
		.cfa_register = state.by_rbp ? CFI_RBP_X86 : CFI_RSP_X86,
		.cfa_offset = state.cfa,
		.registers = {CFI_RBP_X86, CFI_RSP_X86, CFI_RA_X86},
		.ra = {.kind = CFI_AT_CFA, .offset = -8},
		.rbp = {.kind = state.rbp_saved ? CFI_AT_CFA : CFI_SAME, .offset = state.rbp}};
	struct abi_unwind_rule nothing = {0}, rule;

	if (state.path != PATH_KNOWN || state.cfa < 16 || state.cfa % 8 ||
	    (state.by_rbp && !state.rbp_saved))
		return nothing;
	rule = cfi_state_rule(&cfi);
	return unwind_rule_equal(rule, UNWIND_RULE_ODD) ? nothing : rule;
}

static int range_decode(struct flow_function *flow, const struct unwind_code *part, uint64_t start,
			uint64_t end)
{
	while (start < end) {
		int err = ARRAY_GROW(flow->insns, flow->capacity, flow->count);

		if (err)
			return err;
		flow->insns[flow->count] =
			flow_decode(flow->capstone, flow->insn, part->bytes + (start - part->vaddr),
				    end - start, start);
		start += flow->insns[flow->count++].bytes;
	}
	return 0;
}

/* Counts or decodes the uncovered ranges of a part that hold calls. Returns bytes; -ENOMEM. */
static int64_t ranges_visit(struct flow_function *flow, const struct cfi_rows *rows,
			    const struct unwind_codes *codes, const struct unwind_code *part,
			    int decode)
{
	static const struct abi_unwind_rule nothing;
	uint64_t last = part->vaddr + part->size;
	int64_t bytes = 0;

	for (size_t i = SORTED_ABOVE(rows->rows, rows->count, vaddr, part->vaddr);
	     i <= rows->count && (!i || rows->rows[i - 1].vaddr < last); i++) {
		uint64_t start = i ? rows->rows[i - 1].vaddr : 0;
		uint64_t end = i < rows->count ? rows->rows[i].vaddr : UINT64_MAX;
		int err = 0;

		if (i && !unwind_rule_equal(rows->rows[i - 1].rule, nothing))
			continue;
		start = start > part->vaddr ? start : part->vaddr;
		end = end < last ? end : last;
		if (start >= end || !unwind_calls_within(codes, part, start, end))
			continue;
		bytes += (int64_t)(end - start);
		if (decode)
			err = range_decode(flow, part, start, end);
		if (err)
			return err;
	}
	return bytes;
}

static void targets_find(struct flow_function *flow)
{
	for (size_t i = 0; i < flow->count; i++) {
		struct flow_insn *insn = &flow->insns[i];

		insn->target_index = insn->target ? index_of(flow, insn->target) : OUTSIDE;
		if (insn->op == FLOW_CALL && insn->target_index != OUTSIDE)
			flow->insns[insn->target_index].starts = 1;
	}
}

/* Rows from the calls, each up to the next call, in vaddr order between those of rows. */
static int rows_merge(struct cfi_rows *rows, const struct flow_function *flow, uint32_t *derived)
{
	_cleanup_(cfi_rows_free) struct cfi_rows merged = {.cut = rows->cut};
	size_t at = 0;

	for (size_t i = 0; i < flow->count; i++) {
		const struct flow_insn *insn = &flow->insns[i];
		int err = 0;

		if (insn->op != FLOW_CALL)
			continue;
		struct abi_unwind_rule rule = state_rule(call_state(flow, i));
		*derived += rule.kind != ABI_UNWIND_NONE;
		for (; at < rows->count && rows->rows[at].vaddr <= insn->vaddr && !err; at++)
			err = cfi_rows_append(&merged, rows->rows[at].vaddr, rows->rows[at].rule);
		err = err ?: cfi_rows_append(&merged, insn->vaddr, rule);
		if (err)
			return err;
	}
	for (; at < rows->count; at++)
		if (cfi_rows_append(&merged, rows->rows[at].vaddr, rows->rows[at].rule))
			return -ENOMEM;
	cfi_rows_free(rows);
	*rows = merged;
	merged = (struct cfi_rows){0};
	return 0;
}

static int flow_run(struct flow_function *flow, struct cfi_rows *rows,
		    const struct unwind_codes *codes, uint32_t *derived)
{
	for (size_t i = 0; i < codes->count; i++)
		if (ranges_visit(flow, rows, codes, &codes->parts[i], 1) < 0)
			return -ENOMEM;
	SORT_BY(flow->insns, flow->count, vaddr);
	flow->states = calloc(flow->count + 1, sizeof(*flow->states));
	if (!flow->states)
		return -ENOMEM;
	targets_find(flow);
	return states_solve(flow) ? rows_merge(rows, flow, derived) : 0;
}

uint32_t unwind_flow_uncovered(const struct cfi_rows *rows, const struct unwind_codes *codes)
{
	int64_t bytes = 0;

	for (size_t i = 0; i < codes->count; i++)
		bytes += ranges_visit(NULL, rows, codes, &codes->parts[i], 0);
	return bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
}

int unwind_flow_add(struct cfi_rows *rows, const struct unwind_codes *codes, uint32_t bytes,
		    uint32_t *derived)
{
	struct flow_function flow = {0};
	int err = -ENOMEM;

	*derived = 0;
	/* The code that is understood is x86-64's. */
	if (!bytes || bytes > FLOW_BYTES_MAX || codes->is_arm64)
		return 0;
	if (cs_open(CS_ARCH_X86, CS_MODE_64, &flow.capstone) == CS_ERR_OK) {
		cs_option(flow.capstone, CS_OPT_DETAIL, CS_OPT_ON);
		flow.insn = cs_malloc(flow.capstone);
		if (flow.insn)
			err = flow_run(&flow, rows, codes, derived);
		if (flow.insn)
			cs_free(flow.insn, 1);
		cs_close(&flow.capstone);
	}
	free(flow.states);
	free(flow.insns);
	return err;
}

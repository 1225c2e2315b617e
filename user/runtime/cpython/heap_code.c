/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stripped file has no symbols for pymalloc's static variables, but it exports a function that
 * reads exactly these three:
 *
 * 	n = raw_allocated_blocks;                                            64 bits
 * 	for (i = 0; i < maxarenas; i++)                                      32 bits
 * 		for (pool = arenas[i].address …; pool < …; pool += POOL_SIZE)    64 bits
 * 			n += pool->ref.count;                                    32 bits
 * 	return n;
 *
 * A data-flow analysis follows the possible values of each register along every path of the code to
 * a fixed point. A value is a set of bits: one per variable read, ADDRESS for what was loaded
 * through one of them, and COUNT for a 32-bit word loaded through an ADDRESS. The variable that is
 * loaded through is arenas; the one that a COUNT is added to is raw_allocated_blocks. Code that
 * does anything else is refused. On arm64 a variable's address is the sum of two instructions'
 * constants, so that constants are followed, too.
 */
#include "runtime/cpython/heap_code.h"

#include <capstone/capstone.h>
#include <errno.h>
#include <stdlib.h>

#include "abi/target.h"
#include "object/insn/insn.h"
#include "object/insn/machine.h"
#include "util/error.h"

#define MAX_INSTRUCTIONS 256u
#define MAX_ROUNDS       32u /* each round follows the loops once more */
#define VARIABLES        3u

enum {
	VARIABLE = 1u << 0, /* the first of VARIABLES */
	ANY_VARIABLE = (1u << VARIABLES) - 1,
	ADDRESS = 1u << VARIABLES,
	COUNT = 1u << (VARIABLES + 1),
};

struct heap_code_values {
	uint8_t reached;
	uint8_t in[ABI_REG_COUNT]; /* before the instruction */
	uint32_t known;            /* bit r: register r holds the constant */
	uint64_t constant[ABI_REG_COUNT];
};

struct decoding {
	const struct machine *machine;
	struct inline_decoder decoder;
	cs_insn *insns;
	size_t count;
	struct inline_insn effects[MAX_INSTRUCTIONS];
	struct heap_code_values values[MAX_INSTRUCTIONS];
	struct {
		uint64_t vaddr;
		uint8_t bytes;
	} variables[VARIABLES];
	uint32_t variable_count;
	uint8_t loaded_through, added_to; /* variables */
};

/* enum abi_register; -1: not tracked (the stack pointer, the flags, parts of registers). */
static int x86_number(unsigned int reg)
{
	static const uint16_t names[ABI_REG_R15 + 1][2] = {
		{X86_REG_RAX, X86_REG_EAX},
		{X86_REG_RCX, X86_REG_ECX},
		{X86_REG_RDX, X86_REG_EDX},
		{X86_REG_RBX, X86_REG_EBX},
		{0, 0},
		{X86_REG_RBP, X86_REG_EBP},
		{X86_REG_RSI, X86_REG_ESI},
		{X86_REG_RDI, X86_REG_EDI},
		{X86_REG_R8, X86_REG_R8D},
		{X86_REG_R9, X86_REG_R9D},
		{X86_REG_R10, X86_REG_R10D},
		{X86_REG_R11, X86_REG_R11D},
		{X86_REG_R12, X86_REG_R12D},
		{X86_REG_R13, X86_REG_R13D},
		{X86_REG_R14, X86_REG_R14D},
		{X86_REG_R15, X86_REG_R15D},
	};

	for (int i = 0; reg && i <= ABI_REG_R15; i++)
		if (names[i][0] == reg || names[i][1] == reg)
			return i;
	return -1;
}

static int arm64_number(unsigned int reg)
{
	if (reg >= ARM64_REG_X0 && reg <= ARM64_REG_X28)
		return (int)(ABI_REG_X0 + reg - ARM64_REG_X0);
	if (reg >= ARM64_REG_W0 && reg <= ARM64_REG_W30)
		return (int)(ABI_REG_X0 + reg - ARM64_REG_W0);
	return reg == ARM64_REG_X29 ? ABI_REG_X29 : reg == ARM64_REG_X30 ? ABI_REG_X30 : -1;
}

static int register_number(const struct decoding *decoding, unsigned int reg)
{
	return decoding->machine == &machine_arm64 ? arm64_number(reg) : x86_number(reg);
}

static uint8_t value_of(const struct heap_code_values *values, int number)
{
	return number < 0 || number >= ABI_REG_COUNT ? 0 : values->in[number];
}

/*
 * The bit of a variable that the code reads; 0: too many variables, or another width than before.
 */
static uint8_t variable_bit(struct decoding *decoding, uint64_t vaddr, uint8_t bytes)
{
	uint32_t i = 0;

	while (i < decoding->variable_count && decoding->variables[i].vaddr != vaddr)
		i++;
	if (i == VARIABLES || (bytes != 4 && bytes != 8) || vaddr % bytes)
		return 0;
	if (i == decoding->variable_count) {
		decoding->variables[i].vaddr = vaddr;
		decoding->variables[i].bytes = bytes;
		decoding->variable_count++;
	}
	return decoding->variables[i].bytes == bytes ? (uint8_t)(VARIABLE << i) : 0;
}

/* What is loaded through registers with that value. */
static uint8_t load_through(struct decoding *decoding, uint8_t through, uint8_t bytes)
{
	decoding->loaded_through |= through & ANY_VARIABLE;
	return (through & ANY_VARIABLE && bytes == 8 ? ADDRESS : 0) |
	       (through & ADDRESS && bytes == 4 ? COUNT : 0);
}

/* Adds the value of a memory operand to *result. */
static int x86_operand(struct decoding *decoding, const cs_insn *insn, const cs_x86_op *operand,
		       const struct heap_code_values *values, uint8_t *result)
{
	const x86_op_mem *memory = &operand->mem;
	uint8_t through = value_of(values, x86_number(memory->base)) |
			  value_of(values, x86_number(memory->index));
	uint64_t vaddr = (uint64_t)memory->disp;

	if (insn->id == X86_INS_LEA) {
		*result |= through;
		return 0;
	}
	if (memory->segment != X86_REG_INVALID || operand->access != CS_AC_READ)
		return -ENOTSUP;
	if (memory->index == X86_REG_INVALID &&
	    (memory->base == X86_REG_RIP || memory->base == X86_REG_INVALID)) {
		if (memory->base == X86_REG_RIP)
			vaddr += insn->address + insn->size;
		uint8_t bit = variable_bit(decoding, vaddr, operand->size);
		*result |= bit;
		return bit ? 0 : -ENOTSUP;
	}
	*result |= load_through(decoding, through, operand->size);
	return 0;
}

/* The value that an instruction computes. */
static int x86_step(struct decoding *decoding, const cs_insn *insn,
		    const struct heap_code_values *values, uint8_t *result)
{
	const cs_x86 *x86 = &insn->detail->x86;

	for (uint8_t i = 0; i < x86->op_count; i++) {
		const cs_x86_op *operand = &x86->operands[i];

		if (operand->type == X86_OP_MEM &&
		    x86_operand(decoding, insn, operand, values, result))
			return -ENOTSUP;
		if (operand->type == X86_OP_REG && operand->access & CS_AC_READ)
			*result |= value_of(values, x86_number(operand->reg));
	}
	if (insn->id == X86_INS_XOR && x86->op_count == 2 && x86->operands[0].type == X86_OP_REG &&
	    x86->operands[1].type == X86_OP_REG && x86->operands[0].reg == x86->operands[1].reg)
		*result = 0;
	if ((insn->id == X86_INS_ADD || insn->id == X86_INS_LEA) && *result & COUNT)
		decoding->added_to |= *result & ANY_VARIABLE;
	return 0;
}

/* The same; *constant, *known: whether it is a constant, and which. */
static int arm64_step(struct decoding *decoding, const cs_insn *insn,
		      const struct inline_insn *effect, const struct heap_code_values *values,
		      uint8_t *result, uint64_t *constant, int *known)
{
	const cs_arm64 *arm64 = &insn->detail->arm64;
	int is_load = effect->op == INLINE_LOAD || effect->op == INLINE_LOAD_32;
	int base = is_load ? effect->base : effect->src;
	int of_constant = base < ABI_REG_COUNT && values->known >> base & 1;

	if (decoding->machine->stores(insn))
		return -ENOTSUP;
	*constant = (uint64_t)effect->value;
	if (is_load) {
		uint8_t bytes = effect->op == INLINE_LOAD ? 8 : 4;

		if (!of_constant) {
			*result = load_through(decoding, value_of(values, base), bytes);
			return 0;
		}
		*result = variable_bit(decoding, values->constant[base] + *constant, bytes);
		return *result ? 0 : -ENOTSUP;
	}
	if (effect->op == INLINE_CONST || effect->op == INLINE_COPY || effect->op == INLINE_ADD) {
		*known = effect->op == INLINE_CONST || of_constant;
		*constant +=
			effect->op == INLINE_CONST || !of_constant ? 0 : values->constant[base];
	}
	for (uint8_t i = 0; i < arm64->op_count; i++) {
		if (arm64->operands[i].type == ARM64_OP_MEM)
			return -ENOTSUP;
		if (arm64->operands[i].type == ARM64_OP_REG &&
		    arm64->operands[i].access & CS_AC_READ)
			*result |= value_of(values, arm64_number(arm64->operands[i].reg));
	}
	if (insn->id == ARM64_INS_ADD && *result & COUNT)
		decoding->added_to |= *result & ANY_VARIABLE;
	return 0;
}

/* Executes one instruction on values. */
static int step(struct decoding *decoding, size_t at, struct heap_code_values *values)
{
	const cs_insn *insn = &decoding->insns[at];
	const struct inline_insn *effect = &decoding->effects[at];
	uint8_t result = 0, read_count, write_count;
	uint64_t constant = 0;
	cs_regs read, written;
	int known = 0, err;

	if (insn->id == (decoding->machine == &machine_arm64 ? (unsigned int)ARM64_INS_NOP
							     : (unsigned int)X86_INS_NOP))
		return 0;
	if (effect->op == INLINE_CALL || effect->op == INLINE_CALL_SLOT ||
	    cs_regs_access(decoding->decoder.capstone, insn, read, &read_count, written,
			   &write_count))
		return -ENOTSUP;
	err = decoding->machine == &machine_arm64
		      ? arm64_step(decoding, insn, effect, values, &result, &constant, &known)
		      : x86_step(decoding, insn, values, &result);
	for (uint8_t i = 0; i < write_count && !err; i++) {
		int number = register_number(decoding, written[i]);

		if (number < 0)
			continue;
		values->in[number] = result;
		values->constant[number] = constant;
		values->known &= ~(1u << number);
		values->known |= (uint32_t)known << number;
	}
	return err;
}

/* Merges values into the state before the instruction at vaddr. 1: the state has changed. */
static int reach(struct decoding *decoding, uint64_t vaddr, const struct heap_code_values *values)
{
	size_t i = 0;

	while (i < decoding->count && decoding->insns[i].address != vaddr)
		i++;
	if (i == decoding->count) /* the cold part of the function */
		return 0;
	struct heap_code_values *target = &decoding->values[i];
	int changed = !target->reached;
	if (changed)
		*target = *values;
	target->reached = 1;
	uint32_t known = target->known & values->known;
	for (uint32_t number = 0; number < ABI_REG_COUNT; number++) {
		changed |= (values->in[number] & ~target->in[number]) != 0;
		target->in[number] |= values->in[number];
		if (target->constant[number] != values->constant[number])
			known &= ~(1u << number);
	}
	changed |= target->known != known;
	target->known = known;
	return changed;
}

/* One pass over the code. 1: a state has changed; 0: none has; -ENOTSUP. */
static int follow(struct decoding *decoding)
{
	int changed = 0;

	for (size_t i = 0; i < decoding->count; i++) {
		const struct inline_insn *effect = &decoding->effects[i];
		struct heap_code_values after = decoding->values[i];

		if (!after.reached)
			continue;
		if (step(decoding, i, &after))
			return -ENOTSUP;
		if (effect->op == INLINE_BRANCH || effect->op == INLINE_JUMP)
			changed |= reach(decoding, effect->target, &after);
		if (effect->op != INLINE_JUMP && effect->op != INLINE_JUMP_SLOT &&
		    effect->op != INLINE_END)
			changed |= reach(decoding, effect->vaddr + effect->bytes, &after);
	}
	return changed;
}

/* Identifies the variables. */
static int conclude(const struct decoding *decoding, struct heap_code *out)
{
	struct heap_code head = {0};

	if (decoding->variable_count != VARIABLES)
		return -ENOTSUP;
	for (uint32_t i = 0; i < VARIABLES; i++) {
		uint64_t vaddr = decoding->variables[i].vaddr;
		int through = decoding->loaded_through >> i & 1, sum = decoding->added_to >> i & 1;

		if (decoding->variables[i].bytes == 4)
			head.maxarenas = vaddr;
		else if (through && !sum)
			head.arenas = vaddr;
		else if (sum && !through)
			head.raw_blocks = vaddr;
	}
	if (!head.arenas || !head.maxarenas || !head.raw_blocks)
		return -ENOTSUP;
	*out = head;
	return 0;
}

static int decode(struct decoding *decoding, const uint8_t *code, size_t bytes, uint64_t vaddr,
		  struct heap_code *out)
{
	int changed = 1;

	decoding->count = cs_disasm(decoding->decoder.capstone, code, bytes, vaddr,
				    MAX_INSTRUCTIONS, &decoding->insns);
	if (!decoding->count)
		return -ENOTSUP;
	for (size_t i = 0; i < decoding->count; i++) {
		const cs_insn *insn = &decoding->insns[i];

		inline_decode(&decoding->decoder, code + (insn->address - vaddr), insn->size,
			      insn->address, &decoding->effects[i]);
	}
	decoding->values[0].reached = 1;
	for (uint32_t i = 0; changed > 0 && i < MAX_ROUNDS; i++)
		changed = follow(decoding);
	return changed ? -ENOTSUP : conclude(decoding, out);
}

int heap_code_decode(const struct machine *machine, const uint8_t *code, size_t bytes,
		     uint64_t vaddr, struct heap_code *out)
{
	struct decoding *decoding = calloc(1, sizeof(*decoding));

	if (!decoding)
		return error_set(-ENOMEM, "no memory for the instruction decoder");
	decoding->machine = machine;
	int err = inline_decoder_open(&decoding->decoder, machine);
	if (!err)
		err = bytes > HEAP_CODE_BYTES_MAX ? -ENOTSUP
						  : decode(decoding, code, bytes, vaddr, out);
	if (decoding->insns)
		cs_free(decoding->insns, decoding->count);
	inline_decoder_close(&decoding->decoder);
	free(decoding);
	return err == -ENOTSUP ? error_set(err, "the code of the function is not understood") : err;
}

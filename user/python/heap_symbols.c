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
 * does anything else is refused.
 */
#include "python/heap_symbols.h"

#include <capstone/capstone.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "machine/machine.h"

#define FUNCTION         "_Py_GetAllocatedBlocks"
#define MAX_CODE_BYTES   1024u
#define MAX_INSTRUCTIONS 256u
#define MAX_ROUNDS       32u /* each round follows the loops once more */
#define REGISTERS        15u
#define VARIABLES        3u

enum {
	VARIABLE = 1u << 0, /* the first of VARIABLES */
	ANY_VARIABLE = (1u << VARIABLES) - 1,
	ADDRESS = 1u << VARIABLES,
	COUNT = 1u << (VARIABLES + 1),
};

struct values {
	uint8_t reached;
	uint8_t in[REGISTERS]; /* before the instruction */
};

struct decoding {
	csh capstone;
	cs_insn *insns;
	size_t count;
	struct values values[MAX_INSTRUCTIONS];
	struct {
		uint64_t vaddr;
		uint8_t bytes;
	} variables[VARIABLES];
	uint32_t variable_count;
	uint8_t loaded_through, added_to; /* variables */
};

/* -1: not tracked (the stack pointer, the flags, parts of registers). */
static int register_number(unsigned int reg)
{
	static const uint16_t names[REGISTERS][2] = {
		{X86_REG_RAX, X86_REG_EAX},  {X86_REG_RBX, X86_REG_EBX},
		{X86_REG_RCX, X86_REG_ECX},  {X86_REG_RDX, X86_REG_EDX},
		{X86_REG_RSI, X86_REG_ESI},  {X86_REG_RDI, X86_REG_EDI},
		{X86_REG_RBP, X86_REG_EBP},  {X86_REG_R8, X86_REG_R8D},
		{X86_REG_R9, X86_REG_R9D},   {X86_REG_R10, X86_REG_R10D},
		{X86_REG_R11, X86_REG_R11D}, {X86_REG_R12, X86_REG_R12D},
		{X86_REG_R13, X86_REG_R13D}, {X86_REG_R14, X86_REG_R14D},
		{X86_REG_R15, X86_REG_R15D},
	};

	for (int i = 0; i < (int)REGISTERS; i++)
		if (names[i][0] == reg || names[i][1] == reg)
			return i;
	return -1;
}

static uint8_t value_of(const uint8_t *values, unsigned int reg)
{
	int number = register_number(reg);

	return number < 0 ? 0 : values[number];
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

/* Adds the value of a load to *result. */
static int load(struct decoding *decoding, const cs_insn *insn, const cs_x86_op *operand,
		const uint8_t *values, uint8_t *result)
{
	const x86_op_mem *memory = &operand->mem;
	uint8_t through = value_of(values, memory->base) | value_of(values, memory->index);
	uint64_t vaddr = (uint64_t)memory->disp;
	uint8_t bit;

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
		bit = variable_bit(decoding, vaddr, operand->size);
		*result |= bit;
		return bit ? 0 : -ENOTSUP;
	}
	decoding->loaded_through |= through & ANY_VARIABLE;
	if (through & ANY_VARIABLE && operand->size == 8)
		*result |= ADDRESS;
	if (through & ADDRESS && operand->size == 4)
		*result |= COUNT;
	return 0;
}

/* Executes one instruction on values. */
static int step(struct decoding *decoding, const cs_insn *insn, uint8_t *values)
{
	const cs_x86 *x86 = &insn->detail->x86;
	uint8_t result = 0, read_count, write_count;
	cs_regs read, written;

	if (insn->id == X86_INS_NOP)
		return 0;
	if (cs_insn_group(decoding->capstone, insn, CS_GRP_CALL) ||
	    cs_regs_access(decoding->capstone, insn, read, &read_count, written, &write_count))
		return -ENOTSUP;
	for (uint8_t i = 0; i < x86->op_count; i++) {
		const cs_x86_op *operand = &x86->operands[i];

		if (operand->type == X86_OP_MEM && load(decoding, insn, operand, values, &result))
			return -ENOTSUP;
		if (operand->type == X86_OP_REG && operand->access & CS_AC_READ)
			result |= value_of(values, operand->reg);
	}
	if (insn->id == X86_INS_XOR && x86->op_count == 2 && x86->operands[0].type == X86_OP_REG &&
	    x86->operands[1].type == X86_OP_REG && x86->operands[0].reg == x86->operands[1].reg)
		result = 0;
	if ((insn->id == X86_INS_ADD || insn->id == X86_INS_LEA) && result & COUNT)
		decoding->added_to |= result & ANY_VARIABLE;
	for (uint8_t i = 0; i < write_count; i++) {
		int number = register_number(written[i]);

		if (number >= 0)
			values[number] = result;
	}
	return 0;
}

/* Merges values into the state before the instruction at vaddr. 1: the state has changed. */
static int reach(struct decoding *decoding, uint64_t vaddr, const uint8_t *values)
{
	struct values *target;
	size_t i = 0;
	int changed;

	while (i < decoding->count && decoding->insns[i].address != vaddr)
		i++;
	if (i == decoding->count) /* the cold part of the function */
		return 0;
	target = &decoding->values[i];
	changed = !target->reached;
	target->reached = 1;
	for (uint32_t number = 0; number < REGISTERS; number++) {
		changed |= (values[number] & ~target->in[number]) != 0;
		target->in[number] |= values[number];
	}
	return changed;
}

/* One pass over the code. 1: a state has changed; 0: none has; -ENOTSUP. */
static int follow(struct decoding *decoding)
{
	int changed = 0;

	for (size_t i = 0; i < decoding->count; i++) {
		const cs_insn *insn = &decoding->insns[i];
		const cs_x86_op *target = &insn->detail->x86.operands[0];
		struct values after = decoding->values[i];

		if (!after.reached)
			continue;
		if (step(decoding, insn, after.in))
			return -ENOTSUP;
		if (cs_insn_group(decoding->capstone, insn, CS_GRP_JUMP) &&
		    target->type == X86_OP_IMM)
			changed |= reach(decoding, (uint64_t)target->imm, after.in);
		if (insn->id != X86_INS_JMP && !cs_insn_group(decoding->capstone, insn, CS_GRP_RET))
			changed |= reach(decoding, insn->address + insn->size, after.in);
	}
	return changed;
}

/* Identifies the variables. */
static int conclude(const struct decoding *decoding, struct heap_head *out)
{
	struct heap_head head = {0};

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
		  struct heap_head *out)
{
	int changed = 1;

	decoding->count = cs_disasm(decoding->capstone, code, bytes, vaddr, MAX_INSTRUCTIONS,
				    &decoding->insns);
	if (!decoding->count)
		return -ENOTSUP;
	decoding->values[0].reached = 1;
	for (uint32_t i = 0; changed > 0 && i < MAX_ROUNDS; i++)
		changed = follow(decoding);
	return changed ? -ENOTSUP : conclude(decoding, out);
}

int heap_symbols_decode(const uint8_t *code, size_t bytes, uint64_t vaddr, struct heap_head *out)
{
	struct decoding *decoding = calloc(1, sizeof(*decoding));
	int err;

	if (!decoding || cs_open(CS_ARCH_X86, CS_MODE_64, &decoding->capstone) != CS_ERR_OK) {
		free(decoding);
		return error_set(-ENOMEM, "no memory for the instruction decoder");
	}
	cs_option(decoding->capstone, CS_OPT_DETAIL, CS_OPT_ON);
	err = bytes > MAX_CODE_BYTES || machine_own() != &machine_x86
		      ? -ENOTSUP
		      : decode(decoding, code, bytes, vaddr, out);
	if (decoding->insns)
		cs_free(decoding->insns, decoding->count);
	cs_close(&decoding->capstone);
	free(decoding);
	return err ? error_set(err, "the code of " FUNCTION "() is not understood") : 0;
}

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

	if (!err)
		err = variable_find(runtime, "maxarenas", "maxarenas.lto_priv.0", &head->maxarenas);
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
	uint8_t code[MAX_CODE_BYTES];
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
	else if ((got = heap_symbols_decode(code, (size_t)got, symbol.vaddr, head)) != -ENOTSUP)
		return got;
	else
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
	int err;

	if (!runtime->file) {
		*out = (struct heap_head){.arenas = runtime->found.arenas,
					  .maxarenas = runtime->found.maxarenas};
		return 0;
	}
	err = from_symbols(runtime, &head);
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

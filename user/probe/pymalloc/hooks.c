/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (Objects/obmalloc.c). For each of the three domains, in the function itself or in one that
 * it calls:
 *
 * 	if (slot.malloc == hook_malloc) return;
 * 	…; slot.ctx = …; slot.malloc = hook_malloc; slot.calloc = …; slot.realloc = …; slot.free = …
 *
 * All of these are constants, which the compiler moves in pairs through vector registers, maybe
 * through the stack. The analysis executes the instructions in order, ignoring branches, and tracks
 * constants only. A slot that is both compared with a constant and set to it, followed by three
 * more, holds four hooks. There must be three such slots, and two of them, those of mem and obj,
 * must be equal.
 */
#include "probe/pymalloc/hooks.h"

#include <capstone/capstone.h>
#include <errno.h>
#include <string.h>

#include "abi/target.h"
#include "object/insn/x86_decode.h"
#include "util/error.h"

#define MAX_FUNCTIONS 64u
#define MAX_DEPTH     2u
#define CODE_BYTES    512u /* of a function */
#define MAX_WORDS     256u
#define MAX_GUARDS    16u
#define DOMAINS       3u
#define VECTORS       16u

struct word {
	uint64_t address, value; /* value 0: not a constant */
};

struct hooks_machine {
	csh capstone;
	cs_insn *insn;
	hooks_read_fn read;
	void *context;
	uint64_t registers[ABI_REG_COUNT];
	uint64_t vectors[VECTORS][2];
	struct word words[MAX_WORDS]; /* stores */
	size_t word_count;
	struct word guards[MAX_GUARDS]; /* comparisons */
	size_t guard_count;
	struct {
		uint64_t vaddr;
		size_t bytes;
		unsigned int depth;
	} functions[MAX_FUNCTIONS];
	size_t function_count;
};

/* The address of a memory operand. A stack slot gets a number that is no address. 0: unknown. */
static uint64_t address_of(const struct hooks_machine *machine, const x86_op_mem *memory)
{
	if (memory->segment != X86_REG_INVALID || memory->index != X86_REG_INVALID)
		return 0;
	if (memory->base == X86_REG_RIP)
		return machine->insn->address + machine->insn->size + (uint64_t)memory->disp;
	if (memory->base == X86_REG_INVALID)
		return (uint64_t)memory->disp;
	if (memory->base == X86_REG_RSP || memory->base == X86_REG_RBP)
		return 1ull << 63 | (uint64_t)(memory->base == X86_REG_RBP) << 62 |
		       ((uint64_t)memory->disp & UINT32_MAX);
	return 0;
}

static struct word *word_find(struct hooks_machine *machine, uint64_t address)
{
	for (size_t i = 0; i < machine->word_count; i++)
		if (machine->words[i].address == address)
			return &machine->words[i];
	return NULL;
}

static void word_store(struct hooks_machine *machine, uint64_t address, uint64_t value)
{
	struct word *word = word_find(machine, address);

	if (!address || (!word && machine->word_count == MAX_WORDS))
		return;
	if (!word)
		word = &machine->words[machine->word_count++];
	*word = (struct word){address, value};
}

static uint64_t word_load(struct hooks_machine *machine, uint64_t address)
{
	const struct word *word = word_find(machine, address);
	uint64_t value = 0;

	if (word)
		return word->value;
	if (!address || address >> 63 ||
	    machine->read(machine->context, address, &value, sizeof(value)) != (int)sizeof(value))
		return 0;
	return value;
}

static uint64_t *vector_of(struct hooks_machine *machine, unsigned int reg)
{
	return reg >= X86_REG_XMM0 && reg < X86_REG_XMM0 + VECTORS
		       ? machine->vectors[reg - X86_REG_XMM0]
		       : NULL;
}

/* The 8 bytes of an operand; 0: unknown. */
static uint64_t value_of(struct hooks_machine *machine, const cs_x86_op *operand)
{
	if (operand->type == X86_OP_IMM)
		return (uint64_t)operand->imm;
	if (operand->type == X86_OP_MEM)
		return word_load(machine, address_of(machine, &operand->mem));
	const uint64_t *vector = vector_of(machine, operand->reg);
	if (vector)
		return vector[0];
	uint32_t reg = x86_register_of(operand->reg);
	return reg < ABI_REG_COUNT ? machine->registers[reg] : 0;
}

static void move(struct hooks_machine *machine, const cs_x86_op *to, uint64_t value)
{
	if (to->type == X86_OP_MEM) {
		if (to->size == 8)
			word_store(machine, address_of(machine, &to->mem), value);
		return;
	}
	uint64_t *vector = vector_of(machine, to->reg);
	if (vector) {
		vector[0] = value;
		vector[1] = 0;
	}
	uint32_t reg = x86_register_of(to->reg);
	if (!vector && reg < ABI_REG_COUNT)
		machine->registers[reg] = value;
}

/* Moves sixteen bytes. */
static void move_vector(struct hooks_machine *machine, const cs_x86_op *to, const cs_x86_op *from)
{
	uint64_t *target = to->type == X86_OP_REG ? vector_of(machine, to->reg) : NULL;
	const uint64_t *source = from->type == X86_OP_REG ? vector_of(machine, from->reg) : NULL;
	uint64_t address = address_of(machine, to->type == X86_OP_MEM ? &to->mem : &from->mem);

	if (target && source) {
		memcpy(target, source, sizeof(machine->vectors[0]));
	} else if (target) {
		target[0] = word_load(machine, address);
		target[1] = word_load(machine, address ? address + 8 : 0);
	} else if (source && address) {
		word_store(machine, address, source[0]);
		word_store(machine, address + 8, source[1]);
	}
}

/* bytes: its size, or where that is unknown the most to inspect. */
static void function_add(struct hooks_machine *machine, uint64_t vaddr, size_t bytes,
			 unsigned int depth)
{
	for (size_t i = 0; i < machine->function_count; i++)
		if (machine->functions[i].vaddr == vaddr)
			return;
	if (machine->function_count == MAX_FUNCTIONS || depth > MAX_DEPTH)
		return;
	machine->functions[machine->function_count].vaddr = vaddr;
	machine->functions[machine->function_count].bytes =
		bytes && bytes < CODE_BYTES ? bytes : CODE_BYTES;
	machine->functions[machine->function_count++].depth = depth;
}

static void guard_add(struct hooks_machine *machine, const cs_x86_op *left, const cs_x86_op *right)
{
	uint64_t address = left->type == X86_OP_MEM ? address_of(machine, &left->mem) : 0;
	uint64_t value = value_of(machine, right);

	if (address && value && left->size == 8 && machine->guard_count < MAX_GUARDS)
		machine->guards[machine->guard_count++] = (struct word){address, value};
}

static void step(struct hooks_machine *machine, unsigned int depth)
{
	const cs_x86_op *operands = machine->insn->detail->x86.operands;

	switch (machine->insn->id) {
	case X86_INS_CALL:
	case X86_INS_JMP:
		if (operands[0].type == X86_OP_IMM)
			function_add(machine, (uint64_t)operands[0].imm, 0, depth + 1);
		break;
	case X86_INS_MOV:
	case X86_INS_MOVABS:
	case X86_INS_MOVQ:
		move(machine, &operands[0], value_of(machine, &operands[1]));
		break;
	case X86_INS_LEA:
		move(machine, &operands[0], address_of(machine, &operands[1].mem));
		break;
	case X86_INS_MOVHPS:
		if (operands[0].type == X86_OP_REG && vector_of(machine, operands[0].reg))
			vector_of(machine, operands[0].reg)[1] = value_of(machine, &operands[1]);
		break;
	case X86_INS_PUNPCKLQDQ:
		if (vector_of(machine, operands[0].reg))
			vector_of(machine, operands[0].reg)[1] = value_of(machine, &operands[1]);
		break;
	case X86_INS_MOVAPS:
	case X86_INS_MOVUPS:
	case X86_INS_MOVDQA:
	case X86_INS_MOVDQU:
		move_vector(machine, &operands[0], &operands[1]);
		break;
	case X86_INS_CMP:
		guard_add(machine, &operands[0], &operands[1]);
		break;
	default:
		break;
	}
}

static void function_run(struct hooks_machine *machine, uint64_t vaddr, size_t size,
			 unsigned int depth)
{
	uint8_t bytes[CODE_BYTES];
	int got = machine->read(machine->context, vaddr, bytes, size);
	const uint8_t *code = bytes;
	size_t left = got > 0 ? (size_t)got : 0;
	uint64_t address = vaddr;

	while (left && cs_disasm_iter(machine->capstone, &code, &left, &address, machine->insn))
		step(machine, depth);
}

/* Finds the three slots that were compared with a constant and set to it. */
static int conclude(struct hooks_machine *machine, struct hooks *out)
{
	uint64_t found[DOMAINS][HOOKS_FUNCTIONS];
	uint64_t slots[DOMAINS];
	size_t count = 0, other = DOMAINS;

	for (size_t i = 0; i < machine->guard_count; i++) {
		const struct word *guard = &machine->guards[i];
		uint64_t four[HOOKS_FUNCTIONS];
		size_t known = 0;

		while (known < HOOKS_FUNCTIONS) {
			const struct word *word = word_find(machine, guard->address + 8 * known);

			four[known] = word ? word->value : 0;
			if (!four[known++])
				break;
		}
		if (!four[known - 1] || known < HOOKS_FUNCTIONS ||
		    four[HOOKS_MALLOC] != guard->value)
			continue;
		for (size_t k = 0; k < count; k++)
			if (slots[k] == guard->address)
				known = 0;
		if (!known)
			continue;
		if (count == DOMAINS)
			return -ENOENT;
		slots[count] = guard->address;
		memcpy(found[count++], four, sizeof(four));
	}
	if (count != DOMAINS)
		return -ENOENT;
	for (size_t i = 0; i < DOMAINS; i++)
		if (!memcmp(found[(i + 1) % DOMAINS], found[(i + 2) % DOMAINS], sizeof(found[0])))
			other = other == DOMAINS ? i : DOMAINS + 1;
	if (other >= DOMAINS)
		return -ENOENT;
	memcpy(out->raw, found[other], sizeof(out->raw));
	memcpy(out->obj, found[(other + 1) % DOMAINS], sizeof(out->obj));
	return 0;
}

int hooks_find(hooks_read_fn read, void *context, uint64_t setup, uint64_t bytes, struct hooks *out)
{
	struct hooks_machine machine = {.read = read, .context = context};
	int err = -ENOENT;

	if (cs_open(CS_ARCH_X86, CS_MODE_64, &machine.capstone) != CS_ERR_OK)
		return error_set(-ENOMEM, "no memory for the instruction decoder");
	cs_option(machine.capstone, CS_OPT_DETAIL, CS_OPT_ON);
	machine.insn = cs_malloc(machine.capstone);
	if (machine.insn) {
		function_add(&machine, setup, bytes, 0);
		for (size_t i = 0; i < machine.function_count; i++)
			function_run(&machine, machine.functions[i].vaddr,
				     machine.functions[i].bytes, machine.functions[i].depth);
		err = conclude(&machine, out);
		cs_free(machine.insn, 1);
	}
	cs_close(&machine.capstone);
	return machine.insn ? err : error_set(-ENOMEM, "no memory for the instruction decoder");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/holders/code_scan.h"

#include <stdbool.h>
#include <string.h>

static const struct scan_value nothing = {0};

static void push(struct scan *scan, struct scan_value value)
{
	if (scan->depth == SCAN_STACK) {
		memmove(scan->stack, scan->stack + 1, (SCAN_STACK - 1) * sizeof(*scan->stack));
		scan->depth--;
	}
	scan->stack[scan->depth++] = value;
}

static struct scan_value pop(struct scan *scan)
{
	return scan->depth ? scan->stack[--scan->depth] : nothing;
}

/* 1: the top */
static struct scan_value peek(const struct scan *scan, size_t depth)
{
	return depth && depth <= scan->depth ? scan->stack[scan->depth - depth] : nothing;
}

static void poke(struct scan *scan, size_t depth, struct scan_value value)
{
	if (depth && depth <= scan->depth)
		scan->stack[scan->depth - depth] = value;
}

static bool is_container(struct scan_value value)
{
	return value.kind >= SCAN_OBJECT && value.kind <= SCAN_ATTRIBUTE && !value.is_computed &&
	       !value.gives_item;
}

/* What is computed with two values is told by the first one that is known. */
static struct scan_value computed(struct scan_value a, struct scan_value b)
{
	struct scan_value value = a.kind == SCAN_OBJECT || a.kind == SCAN_ATTRIBUTE ? a : b;

	if (value.kind != SCAN_OBJECT && value.kind != SCAN_ATTRIBUTE)
		return nothing;
	value.is_computed = 1;
	return value;
}

static struct scan_value item_of(struct scan_value value)
{
	if (!is_container(value) || value.is_item)
		return nothing;
	value.is_item = 1;
	value.gives_item = 0;
	return value;
}

/* Words that an instruction takes, all of which make the one that it puts there. */
static struct scan_value words_take(struct scan *scan, int64_t count)
{
	struct scan_value made = nothing;

	for (; count > 0 && scan->depth; count--)
		made = computed(pop(scan), made);
	return made;
}

static void words_change(struct scan *scan, const struct instruction *instruction)
{
	int effect = opcode_effect(instruction);

	if (instruction->effect->code == OP_POP) {
		words_take(scan, -effect);
		return;
	}
	if (effect < 1) {
		push(scan, words_take(scan, 1 - (int64_t)effect));
		return;
	}
	if (instruction->effect->code == OP_OTHER)
		poke(scan, 1, nothing);
	for (int i = 0; i < effect && i < (int)SCAN_STACK; i++)
		push(scan, nothing);
}

static void call_follow(struct scan *scan, const struct instruction *instruction)
{
	struct scan_value result = nothing, added = nothing;
	int64_t count = 1 - (int64_t)opcode_effect(instruction);
	int pushes = 0;

	/* From the last argument to the function; of a method the object is no argument. */
	for (; count > 0 && scan->depth; count--) {
		struct scan_value value = pop(scan);

		pushes |= value.kind == SCAN_PUSHER;
		if (value.gives_item) {
			value.gives_item = 0;
			result = item_of(value);
			continue;
		}
		if (is_container(value))
			added = value;
		if (!is_container(result) && !value.is_callable)
			result = computed(value, result);
	}
	if (pushes && added.kind)
		scan->calls->write(scan, added, SCAN_PUSH);
	push(scan, result);
}

static void item_load(struct scan *scan)
{
	struct scan_value key = pop(scan), value = pop(scan), found = nothing;

	if (is_container(value))
		scan->calls->write(scan, value, SCAN_READ_ITEM);
	if (key.kind == SCAN_CONSTANT)
		found = scan->calls->key(scan, value, key.name);
	push(scan, found.kind == SCAN_NOTHING ? item_of(value) : found);
}

static void inplace(struct scan *scan)
{
	struct scan_value by = pop(scan), to = pop(scan);

	if (is_container(to))
		scan->calls->write(scan, to, SCAN_INPLACE);
	push(scan, computed(to, by));
}

static void item_store(struct scan *scan)
{
	pop(scan);
	struct scan_value to = pop(scan);
	pop(scan);
	if (is_container(to))
		scan->calls->write(scan, to, SCAN_STORE_ITEM);
}

static void binary(struct scan *scan, const struct instruction *instruction)
{
	uint32_t which = instruction->argument;

	if (which == scan->opcodes->item)
		item_load(scan);
	else if (which == scan->opcodes->inplace_add || which == scan->opcodes->inplace_or)
		inplace(scan);
	else
		words_change(scan, instruction);
}

static void fast_load(struct scan *scan, uint32_t slot)
{
	if (slot < SCAN_LOCALS && scan->is_set[slot])
		push(scan, scan->locals[slot]);
	else
		push(scan, scan->calls->local(scan, slot));
}

static void fast_store(struct scan *scan, uint32_t slot)
{
	struct scan_value value = pop(scan);

	if (slot >= SCAN_LOCALS)
		return;
	/* A holder that is a variable of a frame is that after any assignment. */
	scan->is_set[slot] = !scan->calls->local(scan, slot).kind;
	scan->locals[slot] = value;
}

static void load(struct scan *scan, const struct instruction *instruction)
{
	uint32_t argument = instruction->argument;
	uint32_t index = argument >> (instruction->effect->mask != 0);

	switch (instruction->effect->code) {
	case OP_LOAD_CONSTANT:
		push(scan, (struct scan_value){.kind = SCAN_CONSTANT, .name = argument});
		break;
	case OP_LOAD_FAST:
		fast_load(scan, argument);
		break;
	case OP_LOAD_FAST_PAIR:
		fast_load(scan, argument >> 4);
		fast_load(scan, argument & 15);
		break;
	case OP_LOAD_DEREF:
		push(scan, scan->calls->cell(scan, argument));
		break;
	case OP_LOAD_GLOBAL:
	case OP_LOAD_NAME:
		if (opcode_effect(instruction) > 1 && scan->opcodes->null_first)
			push(scan, nothing);
		push(scan, scan->calls->global(scan, index));
		if (opcode_effect(instruction) > 1 && !scan->opcodes->null_first)
			push(scan, nothing);
		break;
	case OP_IMPORT_FROM:
		push(scan, scan->calls->attribute(scan, peek(scan, 1), argument));
		break;
	default: /* OP_LOAD_ATTRIBUTE, OP_LOAD_METHOD */
		push(scan, scan->calls->attribute(scan, pop(scan), index));
		if (opcode_effect(instruction))
			push(scan, nothing);
	}
}

static void store(struct scan *scan, const struct instruction *instruction)
{
	uint32_t argument = instruction->argument;
	struct scan_value of;

	switch (instruction->effect->code) {
	case OP_STORE_FAST:
		fast_store(scan, argument);
		break;
	case OP_STORE_FAST_PAIR:
		fast_store(scan, argument >> 4);
		fast_store(scan, argument & 15);
		break;
	case OP_STORE_LOAD_FAST:
		fast_store(scan, argument >> 4);
		fast_load(scan, argument & 15);
		break;
	case OP_STORE_ATTRIBUTE:
		of = pop(scan);
		scan->calls->replace_attribute(scan, of, argument, pop(scan));
		break;
	case OP_STORE_ITEM:
		item_store(scan);
		break;
	default: /* OP_STORE_GLOBAL, OP_STORE_NAME */
		scan->calls->replace_global(scan, argument, pop(scan));
	}
}

/* The top goes below that many words; those move up. */
static void rotate(struct scan *scan, size_t below)
{
	struct scan_value top = peek(scan, 1);

	for (size_t i = 1; i <= below; i++)
		poke(scan, i, i == below ? top : peek(scan, i + 1));
}

static void stack_move(struct scan *scan, const struct instruction *instruction)
{
	struct scan_value top = peek(scan, 1), other;
	uint32_t depth = instruction->argument;

	switch (instruction->effect->code) {
	case OP_SWAP:
		other = peek(scan, depth);
		poke(scan, depth, top);
		poke(scan, 1, other);
		break;
	case OP_COPY:
		push(scan, peek(scan, depth));
		break;
	case OP_DUP_TOP:
		push(scan, top);
		break;
	case OP_DUP_TOP_TWO:
		other = peek(scan, 2);
		push(scan, other);
		push(scan, top);
		break;
	default:
		rotate(scan, 2u + (instruction->effect->code - OP_ROT_TWO));
	}
}

static void extend(struct scan *scan, const struct instruction *instruction)
{
	struct scan_value by = pop(scan), made;

	made = computed(by, peek(scan, instruction->argument));
	if (made.kind)
		poke(scan, instruction->argument, made);
}

static void iterate(struct scan *scan, const struct instruction *instruction)
{
	if (instruction->effect->code == OP_FOR)
		push(scan, item_of(peek(scan, 1u + instruction->effect->mask)));
	else if (opcode_effect(instruction) > 0)
		push(scan, nothing);
}

static void instruction_follow(struct scan *scan, const struct instruction *instruction)
{
	switch (instruction->effect->code) {
	case OP_NOTHING:
	case OP_JUMP:
		break;
	case OP_LOAD_CONSTANT ... OP_LOAD_FAST_PAIR:
	case OP_LOAD_GLOBAL ... OP_IMPORT_FROM:
		load(scan, instruction);
		break;
	case OP_STORE_FAST ... OP_STORE_LOAD_FAST:
	case OP_STORE_ATTRIBUTE ... OP_STORE_ITEM:
		store(scan, instruction);
		break;
	case OP_ITEM:
		item_load(scan);
		break;
	case OP_BINARY:
		binary(scan, instruction);
		break;
	case OP_INPLACE:
		inplace(scan);
		break;
	case OP_EXTEND:
		extend(scan, instruction);
		break;
	case OP_CALL:
		call_follow(scan, instruction);
		break;
	case OP_ITERATE:
	case OP_FOR:
		iterate(scan, instruction);
		break;
	case OP_SWAP ... OP_DUP_TOP_TWO:
		stack_move(scan, instruction);
		break;
	default:
		words_change(scan, instruction);
	}
}

/* Keeps the state that a jump takes to its target; of several jumps there the first one's. */
static void branch_keep(struct scan *scan, const struct instruction *instruction)
{
	struct scan_branch *branch = NULL;
	int taken = instruction->effect->taken;

	for (size_t i = 0; i < SCAN_BRANCHES; i++) {
		if (scan->branches[i].target == instruction->target)
			return;
		if (!scan->branches[i].target)
			branch = &scan->branches[i];
	}
	if (!branch)
		return;
	branch->target = instruction->target;
	branch->depth = scan->depth;
	memcpy(branch->stack, scan->stack, scan->depth * sizeof(*scan->stack));
	for (; taken < 0 && branch->depth; taken++)
		branch->depth--;
	for (; taken > 0 && branch->depth < SCAN_STACK; taken--)
		branch->stack[branch->depth++] = nothing;
}

/* Takes the state that a jump has brought here, if nothing else has. */
static void branch_join(struct scan *scan)
{
	for (size_t i = 0; i < SCAN_BRANCHES; i++) {
		struct scan_branch *branch = &scan->branches[i];

		if (!branch->target || branch->target > scan->at)
			continue;
		if (branch->target == scan->at && scan->is_dead) {
			scan->depth = branch->depth;
			memcpy(scan->stack, branch->stack, branch->depth * sizeof(*scan->stack));
			scan->is_dead = 0;
		}
		branch->target = 0;
	}
	if (scan->is_dead)
		scan->depth = 0;
	scan->is_dead = 0;
}

void code_scan(struct scan *scan)
{
	struct instruction instruction;

	for (size_t at = 0; opcode_decode(scan->opcodes, scan->code, scan->bytes, at, &instruction);
	     at = instruction.next) {
		scan->at = at;
		branch_join(scan);
		scan->at = instruction.at;
		if (instruction.target)
			branch_keep(scan, &instruction);
		instruction_follow(scan, &instruction);
		scan->is_dead =
			instruction.effect->code == OP_END || instruction.effect->code == OP_JUMP;
	}
}

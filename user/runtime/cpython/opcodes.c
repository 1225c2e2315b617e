/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpython/opcodes.h"

#include "util/array.h"

#define UNIT       2u /* bytes of an instruction */
#define EFFECT_MAX (1 << 20)

enum { NO = -1 }; /* the version has no such instruction */

#include "runtime/cpython/opcodes_table.inc"

int opcodes_for(uint32_t version, struct opcodes *out)
{
	size_t column = 0;

	while (column < ARRAY_SIZE(versions) && versions[column].version != version)
		column++;
	if (column == ARRAY_SIZE(versions))
		return 0;
	*out = versions[column];
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].numbers[column] != NO)
			out->of[rows[i].numbers[column]] = rows[i].effect;
	return 1;
}

static size_t jump_target(const struct opcodes *opcodes, const struct instruction *instruction)
{
	size_t distance = (size_t)instruction->argument * opcodes->jump_unit;
	size_t target = instruction->effect->jumps == 1 ? instruction->next + distance : distance;

	return instruction->effect->jumps && target > instruction->at ? target : 0;
}

int opcode_decode(const struct opcodes *opcodes, const uint8_t *code, size_t bytes, size_t at,
		  struct instruction *out)
{
	uint32_t argument = 0;

	for (; at + UNIT <= bytes; at += UNIT) {
		const struct opcode_effect *effect = &opcodes->of[code[at]];

		argument = argument << 8 | code[at + 1];
		if (effect->code == OP_EXTENDED)
			continue;
		*out = (struct instruction){.effect = effect,
					    .argument = argument,
					    .at = at,
					    .next = at + UNIT + effect->caches * UNIT};
		out->target = jump_target(opcodes, out);
		return effect->code != OP_UNKNOWN;
	}
	return 0;
}

int opcode_effect(const struct instruction *instruction)
{
	const struct opcode_effect *effect = instruction->effect;
	int64_t units = effect->mask ? __builtin_popcount(instruction->argument & effect->mask)
				     : (int64_t)instruction->argument;
	int64_t sum = effect->base + effect->per * units;

	return sum > EFFECT_MAX ? EFFECT_MAX : sum < -EFFECT_MAX ? -EFFECT_MAX : (int)sum;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "object/insn/code.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "object/insn/machine.h"
#include "util/sorted.h"

#define SHORT_JUMP_BYTES 2
#define THUNKS_MAX       4          /* consecutive ones, at most */
#define KEPT_MAX         (1u << 18) /* instructions: 11 MiB; one function more may be kept */

/* A decoded function: count of the kept instructions, from first on. */
struct inline_function {
	size_t first, count;
};

/* first_from() reads the keys there. */
_Static_assert(!offsetof(struct inline_insn, vaddr) && !offsetof(struct inline_jump, target),
	       "their keys come first");

/*
 * Finds jumps into a function from elsewhere (from its cold part, for example) as bytes. Bytes that
 * only look like a jump do little harm: an instruction seems to be reached from more places.
 */
static int jumps_find(struct inline_code *code)
{
	const struct machine *machine = code->image->machine;
	const struct inline_range *text = &code->image->text;
	struct machine_found found;
	size_t capacity = 0;

	for (size_t i = 0; (i = machine->look(MACHINE_JUMP, text, i, NULL, &found));) {
		if (found.target - text->vaddr >= text->bytes)
			continue;
		if (code->jump_count == capacity) {
			struct inline_jump *jumps;

			capacity = capacity ? 2 * capacity : 1024;
			jumps = realloc(code->jumps, capacity * sizeof(*jumps));
			if (!jumps)
				return -ENOMEM;
			code->jumps = jumps;
		}
		code->jumps[code->jump_count++] = (struct inline_jump){found.target, found.vaddr};
	}
	SORT_BY(code->jumps, code->jump_count, target);
	return 0;
}

int inline_code_open(struct inline_code *code, const struct inline_image *image)
{
	memset(code, 0, sizeof(*code));
	code->image = image;
	return inline_decoder_open(&code->decoder, image->machine) ?: jumps_find(code);
}

void inline_code_close(struct inline_code *code)
{
	inline_decoder_close(&code->decoder);
	free(code->jumps);
	inline_code_part_free(code);
	memset(code, 0, sizeof(*code));
}

size_t inline_code_window(struct inline_code *code, uint64_t vaddr, struct inline_insn *out,
			  size_t capacity)
{
	const struct inline_range *text = &code->image->text;
	uint64_t offset = vaddr - text->vaddr;
	size_t count = 0;

	while (count < capacity && offset < text->bytes) {
		size_t bytes =
			inline_decode(&code->decoder, text->code + offset, text->bytes - offset,
				      text->vaddr + offset, &out[count]);

		if (!bytes)
			break;
		offset += bytes;
		count++;
	}
	return count;
}

/*
 * Index of the first entry whose address is vaddr or above. Each of count entries has stride bytes,
 * begins with its address, and the entries are sorted by it.
 */
static size_t first_from(const void *entries, size_t stride, size_t count, uint64_t vaddr)
{
	return vaddr ? sorted_above(entries, count, stride, 0, vaddr - 1) : 0;
}

size_t inline_code_start_above(const struct inline_image *image, uint64_t vaddr)
{
	if (vaddr == UINT64_MAX)
		return image->start_count;
	return first_from(image->starts, sizeof(*image->starts), image->start_count, vaddr + 1);
}

bool inline_code_is_start(const struct inline_code *code, uint64_t vaddr)
{
	size_t above = inline_code_start_above(code->image, vaddr);

	return above && code->image->starts[above - 1] == vaddr;
}

size_t inline_code_index(const struct inline_code *code, uint64_t vaddr)
{
	size_t index = first_from(code->insns, sizeof(*code->insns), code->count, vaddr);

	return index < code->count && code->insns[index].vaddr == vaddr ? index : code->count;
}

uint64_t inline_code_body(struct inline_code *code, uint64_t vaddr)
{
	static const uint8_t landings[][4] = {
		{0xf3, 0x0f, 0x1e, 0xfa}, /* endbr64 */
		{0x5f, 0x24, 0x03, 0xd5}, /* bti c */
	};
	const uint8_t *landing = landings[code->image->machine == &machine_arm64];
	const struct inline_range *text = &code->image->text;

	for (int i = 0; i < THUNKS_MAX; i++) {
		uint64_t offset = vaddr - text->vaddr;
		struct inline_insn insn;

		if (offset < text->bytes && text->bytes - offset > sizeof(landings[0]) &&
		    !memcmp(text->code + offset, landing, sizeof(landings[0])))
			offset += sizeof(landings[0]);
		if (!inline_code_window(code, text->vaddr + offset, &insn, 1) ||
		    insn.op != INLINE_JUMP)
			break;
		vaddr = insn.target;
	}
	return vaddr;
}

/* Makes room for an instruction after those of the function that is being decoded. */
static int capacity_make(struct inline_code *code)
{
	size_t capacity = code->kept_capacity ? 2 * code->kept_capacity : 4096;
	struct inline_insn *insns;
	uint32_t *source;

	if (code->kept_count + code->count < code->kept_capacity)
		return 0;
	insns = realloc(code->kept, capacity * sizeof(*insns));
	if (!insns)
		return -ENOMEM;
	code->kept = insns;
	source = realloc(code->kept_source, capacity * sizeof(*source));
	if (!source)
		return -ENOMEM;
	code->kept_source = source;
	code->kept_capacity = capacity;
	return 0;
}

/*
 * Records that control comes to the instruction of that index from another one. reached: 1 for each
 * instruction that has such a record.
 */
static void source_add(struct inline_code *code, uint8_t *reached, size_t index, uint32_t from)
{
	if (index >= code->count)
		return;
	code->kept_source[code->kept_count + index] = reached[index] ? INLINE_NO_SOURCE : from;
	reached[index] = 1;
}

size_t inline_code_jump(const struct inline_code *code, uint64_t vaddr)
{
	return first_from(code->jumps, sizeof(*code->jumps), code->jump_count, vaddr);
}

/* Bytes that only look like a short jump, inside another instruction, count too. */
static bool is_short_target(const struct inline_range *text, uint64_t offset)
{
	for (int distance = INT8_MIN; distance <= INT8_MAX; distance++) {
		uint64_t at = offset - SHORT_JUMP_BYTES - (uint64_t)(int64_t)distance;

		if (at >= text->bytes - 1 || (int8_t)text->code[at + 1] != distance)
			continue;
		uint8_t op = text->code[at];
		if (op == 0xeb || (op & 0xf0) == 0x70 || (op & 0xfc) == 0xe0)
			return 1;
	}
	return 0;
}

bool inline_code_is_jumped_to(struct inline_code *code, uint64_t vaddr)
{
	const struct inline_range *text = &code->image->text;
	uint64_t offset = vaddr - text->vaddr;
	uint8_t long_jump = code->image->machine->long_jump;
	struct inline_insn before;

	if (offset >= text->bytes || offset < long_jump ||
	    (code->image->machine == &machine_x86 && is_short_target(text, offset)))
		return 0;
	return inline_code_window(code, vaddr - long_jump, &before, 1) &&
	       before.op == INLINE_JUMP && before.bytes == long_jump;
}

size_t inline_code_sources(const struct inline_code *code, size_t index, uint64_t *out,
			   size_t capacity)
{
	uint64_t vaddr = code->insns[index].vaddr;
	size_t count = 0;

	if (!index)
		return 0;
	for (size_t i = 0; i < code->count && count <= capacity; i++) {
		const struct inline_insn *insn = &code->insns[i];
		int goes_on = insn->op != INLINE_JUMP && insn->op != INLINE_JUMP_SLOT &&
			      insn->op != INLINE_END;
		int jumps = insn->op == INLINE_BRANCH || insn->op == INLINE_JUMP;

		if (!(jumps && insn->target == vaddr) && !(goes_on && i + 1 == index))
			continue;
		if (count < capacity)
			out[count] = insn->vaddr;
		count++;
	}
	for (size_t i = inline_code_jump(code, vaddr);
	     i < code->jump_count && code->jumps[i].target == vaddr && count <= capacity; i++) {
		if (code->jumps[i].source >= code->start && code->jumps[i].source < code->end)
			continue;
		if (count < capacity)
			out[count] = code->jumps[i].source;
		count++;
	}
	return count <= capacity ? count : 0;
}

static int sources_find(struct inline_code *code)
{
	uint8_t *reached = calloc(code->count + 1, 1);

	if (!reached)
		return -ENOMEM;
	for (size_t i = 0; i < code->count; i++)
		code->kept_source[code->kept_count + i] = INLINE_NO_SOURCE;
	source_add(code, reached, 0, INLINE_NO_SOURCE);
	for (size_t i = 0; i < code->count; i++) {
		const struct inline_insn *insn = &code->insns[i];

		if (insn->op == INLINE_BRANCH || insn->op == INLINE_JUMP)
			source_add(code, reached, inline_code_index(code, insn->target),
				   (uint32_t)i);
		if (insn->op != INLINE_JUMP && insn->op != INLINE_JUMP_SLOT &&
		    insn->op != INLINE_END)
			source_add(code, reached, i + 1, (uint32_t)i);
	}
	for (size_t i = inline_code_jump(code, code->start);
	     i < code->jump_count && code->jumps[i].target < code->end; i++)
		if (code->jumps[i].source < code->start || code->jumps[i].source >= code->end)
			source_add(code, reached, inline_code_index(code, code->jumps[i].target),
				   INLINE_NO_SOURCE);
	free(reached);
	return 0;
}

int inline_code_range(const struct inline_image *image, uint64_t vaddr, uint64_t *start,
		      uint64_t *end)
{
	size_t above = inline_code_start_above(image, vaddr);
	uint64_t last = image->text.vaddr + image->text.bytes;

	if (!above || image->starts[above - 1] < image->text.vaddr || vaddr >= last)
		return -ENOENT;
	*start = image->starts[above - 1];
	if (above < image->start_count && image->starts[above] < last)
		last = image->starts[above];
	*end = last - *start > INLINE_FUNCTION_MAX ? *start + INLINE_FUNCTION_MAX : last;
	return 0;
}

static void kept_forget(struct inline_code *code)
{
	code->kept_count = code->function_count = 0;
	id_map_free(&code->by_start);
}

/* Decodes the function from code->start to code->end, after those that are kept. */
static int function_decode(struct inline_code *code)
{
	const struct inline_range *text = &code->image->text;
	int err;

	for (uint64_t at = code->start; at < code->end;) {
		err = capacity_make(code);
		if (err)
			return err;
		struct inline_insn *insn = &code->kept[code->kept_count + code->count];
		if (!inline_decode(&code->decoder, text->code + (at - text->vaddr), code->end - at,
				   at, insn))
			break;
		at += insn->bytes;
		code->count++;
	}
	/* Of a function without one, too, there is a place to point to. */
	err = capacity_make(code);
	if (err)
		return err;
	code->insns = code->kept + code->kept_count;
	code->source = code->kept_source + code->kept_count;
	return sources_find(code);
}

static int function_keep(struct inline_code *code)
{
	int err = id_map_append(&code->by_start, code->start, &code->functions,
				&code->function_capacity, code->function_count,
				sizeof(*code->functions));

	if (err)
		return err;
	code->functions[code->function_count++] = (struct inline_function){
		.first = code->kept_count,
		.count = code->count,
	};
	code->kept_count += code->count;
	return 0;
}

int inline_code_function(struct inline_code *code, uint64_t vaddr)
{
	if (code->count && vaddr >= code->start && vaddr < code->end)
		return 0;
	code->count = 0;
	int err = inline_code_range(code->image, vaddr, &code->start, &code->end);
	if (err)
		return err;
	uint32_t found = id_map_find(&code->by_start, code->start);
	if (found != ID_MAP_NONE) {
		const struct inline_function *function = &code->functions[found];

		code->insns = code->kept + function->first;
		code->source = code->kept_source + function->first;
		code->count = function->count;
		return 0;
	}
	if (code->kept_count > KEPT_MAX)
		kept_forget(code);
	err = function_decode(code) ?: function_keep(code);
	if (err)
		code->count = 0;
	return err;
}

int inline_code_part(const struct inline_code *code, uint64_t vaddr, struct inline_code *out)
{
	*out = (struct inline_code){.image = code->image,
				    .decoder = code->decoder,
				    .jumps = code->jumps,
				    .jump_count = code->jump_count};
	return inline_code_function(out, vaddr);
}

void inline_code_part_free(struct inline_code *part)
{
	free(part->kept);
	free(part->kept_source);
	free(part->functions);
	id_map_free(&part->by_start);
}

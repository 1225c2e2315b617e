/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and generators. */
#include <string.h>

#include "graph/references.h"

#define MAX_SLOTS    65536u /* variables, or stack, of one frame */
#define TAG_MASK     7u     /* of a tagged reference, 3.14+ */
#define TAG_BORROWED 1u     /* it has no count of its own */

static int32_t i32_at(const struct image *image, uint64_t address)
{
	const uint8_t *at = image_at(image, address, 4);
	int32_t value = 0;

	if (at)
		memcpy(&value, at, sizeof(value));
	return value;
}

/* A reference of a frame, which from 3.14 on has a tag. */
static void give_tagged(struct walk *walk, uint64_t word, enum reference_kind kind, uint64_t slot)
{
	if (walk->references->image->offsets.abi.frame_code_tagged) {
		if (word & TAG_BORROWED)
			kind = REFERENCE_WEAK;
		word &= ~(uint64_t)TAG_MASK;
	}
	walk_give(walk, word, kind, slot);
}

static void give_slots(struct walk *walk, uint64_t from, uint64_t count, enum reference_kind kind)
{
	const uint8_t *bytes =
		count > MAX_SLOTS ? NULL : image_at(walk->references->image, from, count * 8);

	if (!bytes || !walk_works(walk, count))
		return;
	for (uint64_t i = 0; i < count; i++)
		give_tagged(walk, word_at(bytes + i * 8), kind, i);
}

/* The number of words from the frame's variables to the top of its stack; -1: not known. */
static int64_t frame_height(const struct walk *walk, uint64_t frame)
{
	const struct image *image = walk->references->image;
	uint64_t top;

	if (image->offsets.version < 0x030e)
		return i32_at(image, frame + walk->at->inner_stack_top);
	top = image_u64(image, frame + walk->at->inner_stack_top);
	if (top < frame + walk->at->inner_slots)
		return -1;
	return (int64_t)((top - frame - walk->at->inner_slots) / 8);
}

static void inner_frame(struct walk *walk, uint64_t frame, int cleared)
{
	const struct image *image = walk->references->image;
	const struct object_offsets *at = walk->at;
	uint64_t code = image_u64(image, frame + image->offsets.abi.frame_code);
	int64_t height = frame_height(walk, frame);
	uint64_t slots, stack;

	if (!cleared || image->offsets.version >= 0x030c)
		give_tagged(walk, code, REFERENCE_FRAME, FRAME_CODE);
	if (cleared)
		return;
	give_tagged(walk, image_u64(image, frame + at->inner_function), REFERENCE_FRAME,
		    FRAME_FUNCTION);
	walk_give(walk, image_u64(image, frame + at->inner_locals), REFERENCE_FRAME, FRAME_LOCALS);
	walk_give(walk, image_u64(image, frame + at->inner_object), REFERENCE_FRAME, FRAME_OBJECT);
	if (image->offsets.abi.frame_code_tagged)
		code &= ~(uint64_t)TAG_MASK;
	slots = (uint32_t)i32_at(image, code + at->code_slots);
	stack = (uint32_t)i32_at(image, code + at->code_stack);
	if (slots > MAX_SLOTS || stack > MAX_SLOTS)
		return;
	give_slots(walk, frame + at->inner_slots, slots, REFERENCE_LOCAL);
	if (height >= (int64_t)slots)
		give_slots(walk, frame + at->inner_slots + slots * 8, (uint64_t)height - slots,
			   REFERENCE_STACK);
	else
		give_slots(walk, frame + at->inner_slots + slots * 8, stack, REFERENCE_MAYBE);
}

/* Up to 3.10 a frame is an object with its variables and stack in it. */
static void old_frame(struct walk *walk)
{
	const struct image *image = walk->references->image;
	const struct object_offsets *at = walk->at;
	uint64_t stack = image_u64(image, walk->object + at->frame_stack_base);
	uint64_t slots = walk->object + at->frame_locals, height, top;

	/* f_gen is borrowed; numbers follow, and the blocks, which are not initialised. */
	for (uint32_t offset = walk_header(walk) + 8; offset < at->frame_generator; offset += 8)
		if (offset != at->frame_stack_base && offset != at->frame_stack_top)
			walk_field(walk, offset);
	if (stack < slots || (stack - slots) / 8 > MAX_SLOTS)
		return;
	give_slots(walk, slots, (stack - slots) / 8, REFERENCE_LOCAL);
	top = image_u64(image, walk->object + at->frame_stack_top);
	if (image->offsets.version == 0x030a)
		height = (uint64_t)i32_at(image, walk->object + at->frame_stack_top);
	else
		height = top >= stack ? (top - stack) / 8 : UINT64_MAX;
	if (height <= MAX_SLOTS) {
		give_slots(walk, stack, height, REFERENCE_STACK);
	} else {
		uint64_t code = image_u64(image, walk->object + image->offsets.abi.frame_code);

		give_slots(walk, stack, (uint32_t)i32_at(image, code + at->code_stack),
			   REFERENCE_MAYBE);
	}
}

void walk_frame(struct walk *walk)
{
	const struct object_offsets *at = walk->at;
	uint64_t inner;

	if (at->frame_inner == ABI_NONE) {
		old_frame(walk);
		return;
	}
	for (uint32_t offset = walk_header(walk); offset < at->frame_locals; offset += 8)
		if (offset != at->frame_inner)
			walk_field(walk, offset);
	inner = image_u64(walk->references->image, walk->object + at->frame_inner);
	/* Otherwise the thread or the generator that runs it has the frame. */
	if (inner == walk->object + at->frame_locals)
		inner_frame(walk, inner, 0);
}

void walk_generator(struct walk *walk)
{
	const struct image *image = walk->references->image;
	const struct object_offsets *at = walk->at;
	const uint8_t *state;

	if (at->generator_frame == ABI_NONE) {
		walk_words(walk, walk_header(walk), walk->type->basic_bytes, 0);
		return;
	}
	walk_words(walk, walk_header(walk), at->generator_frame, 0);
	state = image_at(image, walk->object + at->generator_state, 1);
	if (state)
		inner_frame(walk, walk->object + at->generator_frame,
			    *state == at->generator_cleared);
}

void references_inner_frame(struct references *references, uint64_t address, uint64_t own,
			    reference_fn visit, void *context)
{
	struct walk walk = {.references = references,
			    .at = &references->image->offsets.objects,
			    .object = own,
			    .visit = visit,
			    .context = context};

	inner_frame(&walk, address, 0);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large the block is that was asked for, at the point where a pool gives it.
 *
 * On the way there pymalloc has found that the size is one of 1 to 512: less one it is not above
 * 511, and compilers have other ways to ask that. Where it did not, the size is a constant, and the
 * way not taken at the guard of the slot passes it, in the second argument, to whatever is in the
 * slot. Where ways meet behind that, the size class is still to be made of the size, (size - 1) >>
 * 4, to find the pool.
 *
 * So the way is followed back as long as there is only one, and then carried out forward: what each
 * register holds is kept as "a value that came up at some point, plus so much" or as a constant.
 * The size is known if at the site some register holds it, but for a constant difference. Where
 * that tells nothing the ways that meet are carried out each: what holds on all of them holds
 * behind.
 */
#include <errno.h>
#include <string.h>

#include "abi/target.h"
#include "pymalloc/match.h"
#include "x86/value.h"

#define WAY_MAX      96  /* instructions followed back */
#define WAYS_MAX     4   /* that meet in one place */
#define MEETINGS_MAX 2   /* of ways, one behind the other */
#define SLOW_MAX     24  /* and along the slow path */
#define LARGEST      512 /* that pymalloc serves */
/* instructions from the branch of a realloc to where the size becomes what was asked for */
#define ASKED_MAX  8
#define CLASS_BITS 4  /* of a size less one, that are not in its size class */
#define CLASS_NEAR 12 /* instructions from making the size class to the site */

/*
 * What is passed as the second argument to the function in the slot, where this way leads to one.
 */
static struct inline_value slow_size(struct inline_code *code, uint64_t vaddr,
				     const struct inline_state *from)
{
	struct inline_state state = *from;
	struct inline_insn insn;

	for (int i = 0; i < SLOW_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		if (insn.op == INLINE_CALL_SLOT || insn.op == INLINE_JUMP_SLOT)
			return state.of[ABI_REG_SI].base < from->next
				       ? state.of[ABI_REG_SI]
				       : (struct inline_value){.base = INLINE_UNKNOWN};
		if (insn.op == INLINE_CALL || insn.op == INLINE_END || insn.op == INLINE_BRANCH)
			break;
		inline_state_step(&state, &insn);
		vaddr = insn.op == INLINE_JUMP ? insn.target : vaddr + insn.bytes;
	}
	return (struct inline_value){.base = INLINE_UNKNOWN};
}

/* Does it compare with the address of code, as the guard of a slot does? */
static int compares_code(const struct inline_code *code, const struct inline_state *state,
			 const struct inline_insn *insn)
{
	const struct inline_range *text = &code->image->text;
	struct inline_value other = {.base = INLINE_UNKNOWN};

	if (insn->op == INLINE_COMPARE_CONST)
		other = (struct inline_value){INLINE_CONSTANT, insn->value};
	else if (insn->op == INLINE_COMPARE && insn->dst < ABI_REG_COUNT &&
		 state->of[insn->dst].base == INLINE_CONSTANT)
		other = state->of[insn->dst];
	else if (insn->op == INLINE_COMPARE && insn->src < ABI_REG_COUNT)
		other = state->of[insn->src];
	return other.base == INLINE_CONSTANT && (uint64_t)other.addend - text->vaddr < text->bytes;
}

/* The indexes of the instructions that lead to that of index site, the last one first. */
static size_t way_find(const struct inline_code *code, size_t site, uint32_t *way)
{
	size_t count = 0;

	for (uint32_t at = code->source[site]; at != INLINE_NO_SOURCE && count < WAY_MAX;
	     at = code->source[at])
		way[count++] = at;
	return count;
}

/*
 * What the way from a comparison on says of a register: it is not more than last, and not less than
 * first.
 */
struct bounds {
	struct inline_value of; /* UNKNOWN: nothing was compared last */
	uint64_t with;
};

/*
 * The size, if the branch, taken or not, leaves no value but those of the sizes that pymalloc
 * serves, perhaps with 0.
 */
static struct inline_value bounded_size(const struct bounds *bounds,
					const struct inline_insn *branch, int taken)
{
	static const uint8_t others[] = {[INLINE_BELOW] = INLINE_ABOVE_EQUAL,
					 [INLINE_ABOVE_EQUAL] = INLINE_BELOW,
					 [INLINE_ABOVE] = INLINE_BELOW_EQUAL,
					 [INLINE_BELOW_EQUAL] = INLINE_ABOVE};
	uint8_t order = taken ? branch->order : others[branch->order];
	struct inline_value size = bounds->of;
	uint64_t first = 0, last = UINT64_MAX;

	if (order == INLINE_BELOW || order == INLINE_BELOW_EQUAL)
		last = bounds->with - (order == INLINE_BELOW);
	else if (order == INLINE_ABOVE || order == INLINE_ABOVE_EQUAL)
		first = bounds->with + (order == INLINE_ABOVE);
	if (size.base == INLINE_UNKNOWN || (last - first != LARGEST - 1 && last - first != LARGEST))
		return (struct inline_value){.base = INLINE_UNKNOWN};
	size.addend = (int64_t)((uint64_t)size.addend + LARGEST - last);
	return size;
}

/* Of what a size class is made: what is a size less one. */
static struct inline_value classed_size(const struct inline_state *state,
					const struct inline_insn *insn)
{
	struct inline_value size = {.base = INLINE_UNKNOWN};

	if (insn->dst < ABI_REG_COUNT &&
	    ((insn->op == INLINE_SHIFT && insn->value == CLASS_BITS) ||
	     (insn->op == INLINE_MASK && (int32_t)insn->value == -(1 << CLASS_BITS)))) {
		size = state->of[insn->dst];
		size.addend++;
	}
	return size;
}

/* Where the size is once the way is gone. 0; -ENOENT. */
static int size_locate(const struct inline_state *state, const struct inline_value *size,
		       uint8_t *reg, int64_t *addend)
{
	if (size->base == INLINE_CONSTANT && size->addend > 0 && size->addend <= LARGEST) {
		*reg = ABI_REG_COUNT;
		*addend = size->addend;
		return 0;
	}
	for (uint8_t r = 0; size->base >= INLINE_NEW && r < ABI_REG_COUNT; r++) {
		int64_t difference =
			(int64_t)((uint64_t)size->addend - (uint64_t)state->of[r].addend);

		if (state->of[r].base != size->base || difference < INT16_MIN ||
		    difference > INT16_MAX)
			continue;
		*reg = r;
		*addend = difference;
		return 0;
	}
	return -ENOENT;
}

/* What is known of the size on the way to a site. */
struct way_size {
	struct inline_state state;
	struct inline_value size; /* by what was compared, or passed */
	struct inline_value
		/* by the size class that was made last, of a few instructions before the site */
		classed;
	struct bounds bounds;
	int guarded;
};

/* next: the address that control goes on to. */
static void way_step(struct inline_code *code, struct way_size *way, const struct inline_insn *insn,
		     uint64_t next)
{
	struct inline_value found = {.base = INLINE_UNKNOWN};
	int taken = next == insn->target;

	if (insn->op == INLINE_COMPARE || insn->op == INLINE_COMPARE_CONST ||
	    insn->op == INLINE_TEST) {
		way->guarded = compares_code(code, &way->state, insn);
		way->bounds.of.base = INLINE_UNKNOWN;
	}
	if (insn->op == INLINE_COMPARE_CONST && insn->width == 8 && insn->dst < ABI_REG_COUNT)
		way->bounds = (struct bounds){way->state.of[insn->dst], (uint64_t)insn->value};
	else if (insn->op == INLINE_BRANCH && insn->order)
		found = bounded_size(&way->bounds, insn, taken);
	else if (insn->op == INLINE_BRANCH && way->guarded)
		found = slow_size(code, taken ? insn->vaddr + insn->bytes : insn->target,
				  &way->state);
	if (found.base != INLINE_UNKNOWN)
		way->size = found;
	found = classed_size(&way->state, insn);
	if (found.base != INLINE_UNKNOWN)
		way->classed = found;
	inline_state_step(&way->state, insn);
}

/* What a way has in each register, and behind them the size. */
#define WAY_VALUES (ABI_REG_COUNT + 1)

static struct inline_value way_value(const struct way_size *way, size_t which)
{
	if (which < ABI_REG_COUNT)
		return way->state.of[which];
	return way->size.base != INLINE_UNKNOWN ? way->size : way->classed;
}

/* Is the one so much more than the other on every way? */
static int differ_by(const struct way_size *ways, size_t count, size_t one, size_t other,
		     int64_t *addend)
{
	for (size_t i = 0; i < count; i++) {
		struct inline_value a = way_value(&ways[i], one), b = way_value(&ways[i], other);
		int64_t difference = (int64_t)((uint64_t)a.addend - (uint64_t)b.addend);

		if (a.base != b.base || a.base == INLINE_UNKNOWN || (i && difference != *addend))
			return 0;
		*addend = difference;
	}
	return 1;
}

/* Has every way the same constant there? */
static int is_constant(const struct way_size *ways, size_t count, size_t which)
{
	struct inline_value first = way_value(&ways[0], which);

	for (size_t i = 0; i < count; i++) {
		struct inline_value value = way_value(&ways[i], which);

		if (value.base != INLINE_CONSTANT || value.addend != first.addend)
			return 0;
	}
	return 1;
}

static void way_init(struct way_size *way)
{
	*way = (struct way_size){.size = {.base = INLINE_UNKNOWN},
				 .classed = {.base = INLINE_UNKNOWN},
				 .bounds = {.of = {.base = INLINE_UNKNOWN}}};
	inline_state_init(&way->state);
}

/*
 * What is known where ways meet: constants that all of them have, and what differs by as much on
 * all of them.
 */
static void ways_meet(const struct way_size *ways, size_t count, struct way_size *out)
{
	struct inline_value values[WAY_VALUES];

	way_init(out);
	for (size_t which = 0; which < WAY_VALUES; which++) {
		int64_t addend = 0;
		size_t other = 0;

		values[which] = which < ABI_REG_COUNT
					? out->state.of[which]
					: (struct inline_value){.base = INLINE_UNKNOWN};
		while (other < which && !differ_by(ways, count, which, other, &addend))
			other++;
		if (is_constant(ways, count, which))
			values[which] = way_value(&ways[0], which);
		else if (other < which)
			values[which] = (struct inline_value){
				values[other].base,
				(int64_t)((uint64_t)values[other].addend + (uint64_t)addend)};
	}
	memcpy(out->state.of, values, sizeof(out->state.of));
	out->size = values[ABI_REG_COUNT];
}

static void way_follow(struct inline_code *code, size_t index, int meetings, struct way_size *way);

/*
 * What is known behind the instruction at source, from where control goes to vaddr. 0: nothing
 * comes from there; 1; -1: not known.
 */
static int source_follow(struct inline_code *code, uint64_t source, uint64_t vaddr, int meetings,
			 struct way_size *way)
{
	struct inline_code part = {0}, *in = code;
	int outside = source < code->start || source >= code->end, found = -1;
	size_t index;

	if (outside) {
		in = &part;
		if (inline_code_part(code, source, &part))
			goto out;
	}
	index = inline_code_index(in, source);
	found = index < in->count;
	if (found) {
		way_follow(in, index, meetings, way);
		way_step(in, way, &in->insns[index], vaddr);
	}
out:
	if (outside)
		inline_code_part_free(&part);
	return found;
}

/* What is known where several ways meet, at the instruction of that index. */
static void way_begin(struct inline_code *code, size_t index, int meetings, struct way_size *out)
{
	uint64_t sources[WAYS_MAX], vaddr = code->insns[index].vaddr;
	size_t count = meetings ? inline_code_sources(code, index, sources, WAYS_MAX) : 0,
	       known = 0;
	struct way_size ways[WAYS_MAX];

	for (size_t i = 0; i < count; i++) {
		int found = source_follow(code, sources[i], vaddr, meetings - 1, &ways[known]);

		if (found < 0) {
			known = 0;
			break;
		}
		known += (size_t)found;
	}
	if (known)
		ways_meet(ways, known, out);
	else
		way_init(out);
}

/* What is known before the instruction of that index, at most so many meetings of ways back. */
static void way_follow(struct inline_code *code, size_t index, int meetings, struct way_size *way)
{
	uint32_t at[WAY_MAX];
	size_t count = way_find(code, index, at);

	way_begin(code, count ? at[count - 1] : index, meetings, way);
	for (size_t i = count; i-- > 0;) {
		if (i == CLASS_NEAR)
			way->classed.base = INLINE_UNKNOWN;
		way_step(code, way, &code->insns[at[i]], code->insns[i ? at[i - 1] : index].vaddr);
	}
}

static int size_follow(struct inline_code *code, size_t index, int meetings, uint8_t *reg,
		       int64_t *addend)
{
	struct way_size way;

	way_follow(code, index, meetings, &way);
	/*
	 * The class is what the pool was found by; what was compared may have been something else.
	 */
	if (way.classed.base >= INLINE_NEW && !size_locate(&way.state, &way.classed, reg, addend))
		return 0;
	return size_locate(&way.state, &way.size, reg, addend);
}

int inline_size_find(struct inline_code *code, uint64_t site, uint8_t *reg, int64_t *addend)
{
	size_t index = inline_code_index(code, site);

	if (index == code->count)
		return -ENOENT;
	/* Most need not be followed over a meeting of ways, which takes longer. */
	if (!size_follow(code, index, 0, reg, addend))
		return 0;
	return size_follow(code, index, MEETINGS_MAX, reg, addend);
}

uint8_t inline_block_find(const struct inline_code *code, uint64_t site)
{
	struct inline_value block = {.base = INLINE_UNKNOWN};
	size_t index = inline_code_index(code, site), count;
	struct inline_state state;
	uint32_t way[WAY_MAX];

	if (index == code->count)
		return ABI_REG_COUNT;
	inline_state_init(&state);
	count = way_find(code, index, way);
	for (size_t i = count; i-- > 0;) {
		const struct inline_insn *insn = &code->insns[way[i]];

		if (insn->op == INLINE_MASK && insn->dst < ABI_REG_COUNT &&
		    (insn->value == -16384 || insn->value == -4096))
			block = state.of[insn->dst];
		inline_state_step(&state, insn);
	}
	for (uint8_t r = 0; block.base >= INLINE_NEW && r < ABI_REG_COUNT; r++)
		if (state.of[r].base == block.base && state.of[r].addend == block.addend)
			return r;
	return ABI_REG_COUNT;
}

/*
 * What of the registers at vaddr is passed as the second argument to the second function that is
 * called from there on: a realloc that moves a block asks for a new one and copies the old one to
 * it.
 */
static uint8_t copied_from(struct inline_code *code, uint64_t vaddr)
{
	struct inline_state state;
	struct inline_insn insn;
	int calls = 0;

	inline_state_init(&state);
	for (int i = 0; i < SLOW_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		struct inline_value from = state.of[ABI_REG_SI];

		if (insn.op == INLINE_CALL && ++calls == 2)
			return from.base >= INLINE_NEW && from.base < INLINE_NEW + ABI_REG_COUNT &&
					       !from.addend
				       ? (uint8_t)(from.base - INLINE_NEW)
				       : ABI_REG_COUNT;
		if (insn.op == INLINE_END || insn.op == INLINE_JUMP_SLOT ||
		    insn.op == INLINE_CALL_SLOT)
			break;
		inline_state_step(&state, &insn);
		vaddr = insn.op == INLINE_JUMP ? insn.target : vaddr + insn.bytes;
	}
	return ABI_REG_COUNT;
}

/*
 * The register that holds what was asked for: if the block moves, that becomes the size, in the
 * register of it, behind the branch or on the way to it.
 */
static uint8_t asked_find(struct inline_code *code, uint64_t moved,
			  const struct inline_insn *before, size_t count, uint8_t size)
{
	struct inline_insn insn;
	uint8_t asked = ABI_REG_COUNT;

	for (size_t i = 0; i < count; i++) {
		if (before[i].op == INLINE_COPY && before[i].width == 8 && before[i].dst == size)
			asked = before[i].src;
		else if (asked < ABI_REG_COUNT && before[i].written >> asked & 1)
			asked = ABI_REG_COUNT;
	}
	for (int i = 0;
	     i < ASKED_MAX && asked == ABI_REG_COUNT && inline_code_window(code, moved, &insn, 1);
	     i++) {
		if (insn.op == INLINE_COPY && insn.width == 8 && insn.dst == size)
			asked = insn.src;
		if (insn.op >= INLINE_JUMP || insn.written >> size & 1)
			break;
		moved += insn.bytes;
	}
	return asked;
}

int inline_match_resize(struct inline_code *code, uint64_t vaddr, struct inline_match *out)
{
	struct inline_insn insns[8];
	size_t count = inline_code_window(code, vaddr, insns, 8), i = 1;
	const struct inline_insn *compared = NULL, *branch;
	uint64_t moved;

	if (!count || insns[0].op != INLINE_TRIPLE)
		return 0;
	for (; i < count && insns[i].op < INLINE_BRANCH; i++)
		if (insns[i].op == INLINE_COMPARE)
			compared = &insns[i];
	if (i == count || insns[i].op != INLINE_BRANCH || !insns[i].order || !compared ||
	    compared->width != 8 || compared->base != ABI_REG_COUNT)
		return 0;
	branch = &insns[i];
	*out = (struct inline_match){.site = branch->vaddr, .above = compared->src == insns[0].dst};
	/*
	 * Three times the size below what was asked for, taken four times: the one way or the
	 * other.
	 */
	if ((compared->dst != insns[0].dst && !out->above) ||
	    (branch->order != (out->above ? INLINE_ABOVE : INLINE_BELOW) &&
	     branch->order != (out->above ? INLINE_BELOW_EQUAL : INLINE_ABOVE_EQUAL)))
		return 0;
	moved = branch->order == INLINE_BELOW || branch->order == INLINE_ABOVE
			? branch->vaddr + branch->bytes
			: branch->target;
	out->size_reg = asked_find(code, moved, insns + 1, i - 1, insns[0].src);
	out->reg = copied_from(code, moved);
	return out->size_reg < ABI_REG_COUNT;
}

int inline_match_classed(const struct inline_code *code, uint64_t vaddr)
{
	size_t index = inline_code_index(code, vaddr);
	uint32_t at;

	if (index == code->count)
		return 0;
	at = code->source[index];
	for (int i = 0; i < CLASS_NEAR && at != INLINE_NO_SOURCE; i++, at = code->source[at])
		if (code->insns[at].op == INLINE_SHIFT_LEFT &&
		    code->insns[at].value == CLASS_BITS &&
		    code->insns[at].dst == code->insns[index].src)
			return 1;
	return 0;
}

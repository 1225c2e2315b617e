/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requested size of a block, at the point where a pool gives it.
 *
 * Before that point pymalloc has checked that the size is one of 1 to 512: size - 1 is not above
 * 511, or another form that compilers generate. Where it has not, the size is a constant, and the
 * path not taken at the guard of the slot passes it to the function in the slot. Where paths join
 * after that, the size class is still to be computed, (size - 1) >> 4, to find the pool.
 *
 * So the path is followed back as long as there is only one, and then executed forward. Each
 * register holds a constant, or "a value first seen at some point, plus a constant". The size is
 * known if at the site some register holds it, but for a constant difference. If that fails, each
 * of the joining paths is executed, and what holds on all of them holds after the join.
 */
#include <errno.h>
#include <string.h>

#include "abi/target.h"
#include "object/insn/machine.h"
#include "object/insn/value.h"
#include "probe/pymalloc/size.h"

/* --- resize ----------------------------------------------------------------------------------- */

/*
 * Where a realloc decides whether the block stays where it is: a comparison of four times the new
 * size with three times the size of the block's class.
 */

#define MOVE_MAX 24 /* instructions followed on the path that moves the block */
/* instructions from the branch of a realloc to where the size becomes the requested one */
#define ASKED_MAX 8

/*
 * The register at vaddr whose value is passed as the second argument to the second function called
 * from there: a realloc that moves a block allocates a new one and copies the old one to it.
 */
static uint8_t copied_from(struct inline_code *code, uint64_t vaddr)
{
	struct inline_state state;
	struct inline_insn insn;
	int calls = 0;

	inline_state_init(&state);
	for (int i = 0; i < MOVE_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		struct inline_value from = state.of[code->image->machine->arguments[1]];

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
 * The register that holds the requested size. If the block moves, that is copied to the register of
 * the old size, after the branch or before it.
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
	/* Compares 3 * size with 4 * requested, in either order. */
	if ((compared->dst != insns[0].dst && !out->above) ||
	    (branch->order != (out->above ? INLINE_ABOVE : INLINE_BELOW) &&
	     branch->order != (out->above ? INLINE_BELOW_EQUAL : INLINE_ABOVE_EQUAL)))
		return 0;
	uint64_t moved = branch->order == INLINE_BELOW || branch->order == INLINE_ABOVE
				 ? branch->vaddr + branch->bytes
				 : branch->target;
	/* A comparison that multiplies by four itself has the requested size. */
	out->size_reg = compared->value == 2 && !out->above
				? compared->src
				: asked_find(code, moved, insns + 1, i - 1, insns[0].src);
	out->reg = copied_from(code, moved);
	return out->size_reg < ABI_REG_COUNT;
}

/* Is it a register that the multiplication reads? */
static bool is_factor(const struct inline_insn *triple, uint8_t reg)
{
	return reg < ABI_REG_COUNT && (reg == triple->src || reg == triple->base);
}

int inline_match_classed(const struct inline_code *code, uint64_t vaddr)
{
	size_t index = inline_code_index(code, vaddr);
	int is_class = 0, is_three;

	if (index == code->count)
		return 0;
	is_three = code->insns[index].base == ABI_REG_COUNT;
	uint32_t at = code->source[index];
	for (int i = 0; i < INLINE_CLASS_NEAR && at != INLINE_NO_SOURCE;
	     i++, at = code->source[at]) {
		const struct inline_insn *insn = &code->insns[at];

		if (!is_factor(&code->insns[index], insn->dst))
			continue;
		is_class |= insn->op == INLINE_SHIFT_LEFT && insn->value == INLINE_CLASS_BITS;
		is_three |= insn->op == INLINE_CONST && insn->value == 3;
	}
	return is_class && is_three;
}

/* --- size ------------------------------------------------------------------------------------- */

#define PATH_INSNS_MAX 96  /* instructions followed back */
#define PATHS_MAX      4   /* paths that join at one instruction */
#define JOINS_MAX      2   /* consecutive joins */
#define SLOW_MAX       24  /* instructions followed on the slow path */
#define LARGEST        512 /* the largest size that pymalloc serves */

#define ALLOCATOR_CALLOC 16 /* calloc in struct PyMemAllocatorEx (Include/cpython/pymem.h) */

/* The address of the slot whose function is called; 0: unknown. */
static uint64_t called_slot(const struct inline_state *state, const struct inline_insn *call)
{
	struct inline_address at;

	if (call->src < ABI_REG_COUNT)
		return inline_state_slot(state, call->src);
	return inline_state_reads(state, call, &at) && !at.slot ? (uint64_t)at.offset : 0;
}

static struct inline_value product(const struct inline_value *a, const struct inline_value *b)
{
	bool constant = a->base == INLINE_CONSTANT && b->base == INLINE_CONSTANT;

	if (a->base == INLINE_CONSTANT && a->addend == 1)
		return *b;
	if (b->base == INLINE_CONSTANT && b->addend == 1)
		return *a;
	if (constant && a->addend > 0 && a->addend <= LARGEST && b->addend > 0 &&
	    b->addend <= LARGEST)
		return (struct inline_value){INLINE_CONSTANT, a->addend * b->addend};
	return (struct inline_value){.base = INLINE_UNKNOWN};
}

/*
 * The size that is passed to the function in the slot: malloc's second argument; of calloc the
 * product of the second and the third. The slot is calloc's if the first argument is what is at the
 * beginning of the slot's struct PyMemAllocatorEx.
 */
static struct inline_value called_size(const struct machine *machine,
				       const struct inline_state *state,
				       const struct inline_insn *call)
{
	const uint8_t *arguments = machine->arguments;
	uint64_t slot = called_slot(state, call), context = inline_state_slot(state, arguments[0]);

	return slot && context && slot - context == ALLOCATOR_CALLOC
		       ? product(&state->of[arguments[1]], &state->of[arguments[2]])
		       : state->of[arguments[1]];
}

/* The size that is passed to the function in the slot, if this path leads to it. */
static struct inline_value slow_size(struct inline_code *code, uint64_t vaddr,
				     const struct inline_state *from)
{
	struct inline_value size = {.base = INLINE_UNKNOWN};
	struct inline_state state = *from;
	struct inline_insn insn;

	for (int i = 0; i < SLOW_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		if (insn.op == INLINE_CALL_SLOT || insn.op == INLINE_JUMP_SLOT) {
			size = called_size(code->image->machine, &state, &insn);
			break;
		}
		if (insn.op == INLINE_CALL || insn.op == INLINE_END || insn.op == INLINE_BRANCH)
			break;
		inline_state_step(&state, &insn);
		vaddr = insn.op == INLINE_JUMP ? insn.target : vaddr + insn.bytes;
	}
	/* What is known on that path only says nothing of this one. */
	return size.base < from->next ? size : (struct inline_value){.base = INLINE_UNKNOWN};
}

/* Does it compare with an address of code, as the guard of a slot does? */
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

/* The indexes of the instructions on the path to instruction site, the last one first. */
static size_t path_find(const struct inline_code *code, size_t site, uint32_t *path)
{
	size_t count = 0;

	for (uint32_t at = code->source[site]; at != INLINE_NO_SOURCE && count < PATH_INSNS_MAX;
	     at = code->source[at])
		path[count++] = at;
	return count;
}

/* The last comparison on the path: the value, and what it was compared with. */
struct bounds {
	struct inline_value of; /* UNKNOWN: no comparison */
	uint64_t with;
};

/*
 * The size, if the branch, taken or not, leaves exactly the sizes that pymalloc serves, perhaps
 * with 0.
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

/* The size from which a size class is computed: the operand is size - 1. */
static struct inline_value classed_size(const struct inline_state *state,
					const struct inline_insn *insn)
{
	struct inline_value size = {.base = INLINE_UNKNOWN};

	if (insn->src < ABI_REG_COUNT &&
	    ((insn->op == INLINE_SHIFT && insn->value == INLINE_CLASS_BITS) ||
	     (insn->op == INLINE_MASK && (int32_t)insn->value == -(1 << INLINE_CLASS_BITS)))) {
		size = state->of[insn->src];
		size.addend++;
	}
	return size;
}

/* Where the size is after the path. 0; -ENOENT. */
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

/* What is known of the size on the path to a site. */
struct path_size {
	struct inline_state state;
	struct inline_value size; /* from comparisons, or the slow path's argument */
	/* from the size class that was computed last, a few instructions before the site */
	struct inline_value classed;
	struct bounds bounds;
	int guarded;
};

/* next: the address that runs next. */
static void path_step(struct inline_code *code, struct path_size *path,
		      const struct inline_insn *insn, uint64_t next)
{
	struct inline_value found = {.base = INLINE_UNKNOWN};
	int taken = next == insn->target;

	if (insn->op == INLINE_COMPARE || insn->op == INLINE_COMPARE_CONST ||
	    insn->op == INLINE_TEST) {
		path->guarded = compares_code(code, &path->state, insn);
		path->bounds.of.base = INLINE_UNKNOWN;
	}
	if (insn->op == INLINE_COMPARE_CONST && insn->width == 8 && insn->dst < ABI_REG_COUNT)
		path->bounds = (struct bounds){path->state.of[insn->dst], (uint64_t)insn->value};
	else if (insn->op == INLINE_BRANCH && insn->order)
		found = bounded_size(&path->bounds, insn, taken);
	else if (insn->op == INLINE_BRANCH && path->guarded)
		found = slow_size(code, taken ? insn->vaddr + insn->bytes : insn->target,
				  &path->state);
	if (found.base != INLINE_UNKNOWN)
		path->size = found;
	found = classed_size(&path->state, insn);
	if (found.base != INLINE_UNKNOWN)
		path->classed = found;
	inline_state_step(&path->state, insn);
}

/* The values of a path: each register's, then the size. */
#define PATH_VALUES (ABI_REG_COUNT + 1)

static struct inline_value path_value(const struct path_size *path, size_t which)
{
	if (which < ABI_REG_COUNT)
		return path->state.of[which];
	return path->size.base != INLINE_UNKNOWN ? path->size : path->classed;
}

/* Does value one differ from value other by the same addend on every path? */
static int differ_by(const struct path_size *paths, size_t count, size_t one, size_t other,
		     int64_t *addend)
{
	for (size_t i = 0; i < count; i++) {
		struct inline_value a = path_value(&paths[i], one),
				    b = path_value(&paths[i], other);
		int64_t difference = (int64_t)((uint64_t)a.addend - (uint64_t)b.addend);

		if (a.base != b.base || a.base == INLINE_UNKNOWN || (i && difference != *addend))
			return 0;
		*addend = difference;
	}
	return 1;
}

/* Is the value the same constant on every path? */
static bool is_constant(const struct path_size *paths, size_t count, size_t which)
{
	struct inline_value first = path_value(&paths[0], which);

	for (size_t i = 0; i < count; i++) {
		struct inline_value value = path_value(&paths[i], which);

		if (value.base != INLINE_CONSTANT || value.addend != first.addend)
			return 0;
	}
	return 1;
}

static void path_init(struct path_size *path)
{
	*path = (struct path_size){.size = {.base = INLINE_UNKNOWN},
				   .classed = {.base = INLINE_UNKNOWN},
				   .bounds = {.of = {.base = INLINE_UNKNOWN}}};
	inline_state_init(&path->state);
}

/*
 * What is known where paths join: values that are the same constant on all of them, and pairs that
 * differ by the same constant on all of them.
 */
static void paths_join(const struct path_size *paths, size_t count, struct path_size *out)
{
	struct inline_value values[PATH_VALUES];

	path_init(out);
	for (size_t which = 0; which < PATH_VALUES; which++) {
		int64_t addend = 0;
		size_t other = 0;

		values[which] = which < ABI_REG_COUNT
					? out->state.of[which]
					: (struct inline_value){.base = INLINE_UNKNOWN};
		while (other < which && !differ_by(paths, count, which, other, &addend))
			other++;
		if (is_constant(paths, count, which))
			values[which] = path_value(&paths[0], which);
		else if (other < which)
			values[which] = (struct inline_value){
				values[other].base,
				(int64_t)((uint64_t)values[other].addend + (uint64_t)addend)};
	}
	memcpy(out->state.of, values, sizeof(out->state.of));
	out->size = values[ABI_REG_COUNT];
}

static void path_follow(struct inline_code *code, size_t index, int joins, struct path_size *path);

/*
 * What is known after the instruction at source, from which control goes to vaddr. 0: nothing comes
 * from there; 1; -1: unknown.
 */
static int source_follow(struct inline_code *code, uint64_t source, uint64_t vaddr, int joins,
			 struct path_size *path)
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
		path_follow(in, index, joins, path);
		path_step(in, path, &in->insns[index], vaddr);
	}
out:
	if (outside)
		inline_code_part_free(&part);
	return found;
}

/* What is known where several paths join, at the instruction of that index. */
static void path_begin(struct inline_code *code, size_t index, int joins, struct path_size *out)
{
	uint64_t sources[PATHS_MAX], vaddr = code->insns[index].vaddr;
	size_t count = joins ? inline_code_sources(code, index, sources, PATHS_MAX) : 0, known = 0;
	struct path_size paths[PATHS_MAX];

	for (size_t i = 0; i < count; i++) {
		int found = source_follow(code, sources[i], vaddr, joins - 1, &paths[known]);

		if (found < 0) {
			known = 0;
			break;
		}
		known += (size_t)found;
	}
	if (known)
		paths_join(paths, known, out);
	else
		path_init(out);
}

/*
 * What is known before the instruction of that index, following paths back over at most joins
 * joins.
 */
static void path_follow(struct inline_code *code, size_t index, int joins, struct path_size *path)
{
	uint32_t at[PATH_INSNS_MAX];
	size_t count = path_find(code, index, at);

	path_begin(code, count ? at[count - 1] : index, joins, path);
	for (size_t i = count; i-- > 0;) {
		if (i == INLINE_CLASS_NEAR)
			path->classed.base = INLINE_UNKNOWN;
		path_step(code, path, &code->insns[at[i]],
			  code->insns[i ? at[i - 1] : index].vaddr);
	}
}

static int size_follow(struct inline_code *code, size_t index, int joins, uint8_t *reg,
		       int64_t *addend)
{
	struct path_size path;

	path_follow(code, index, joins, &path);
	/* The pool was found by the class; a comparison may have been of something else. */
	if (path.classed.base >= INLINE_NEW &&
	    !size_locate(&path.state, &path.classed, reg, addend))
		return 0;
	return size_locate(&path.state, &path.size, reg, addend);
}

int inline_size_find(struct inline_code *code, uint64_t site, uint8_t *reg, int64_t *addend)
{
	size_t index = inline_code_index(code, site);

	if (index == code->count)
		return -ENOENT;
	/* Most sizes are found without following paths over a join, which takes longer. */
	if (!size_follow(code, index, 0, reg, addend))
		return 0;
	return size_follow(code, index, JOINS_MAX, reg, addend);
}

uint8_t inline_block_find(const struct inline_code *code, uint64_t site)
{
	struct inline_value block = {.base = INLINE_UNKNOWN};
	size_t index = inline_code_index(code, site), count;
	struct inline_state state;
	uint32_t path[PATH_INSNS_MAX];

	if (index == code->count)
		return ABI_REG_COUNT;
	inline_state_init(&state);
	count = path_find(code, index, path);
	for (size_t i = count; i-- > 0;) {
		const struct inline_insn *insn = &code->insns[path[i]];

		if (insn->op == INLINE_MASK && insn->src < ABI_REG_COUNT &&
		    (insn->value == -16384 || insn->value == -4096))
			block = state.of[insn->src];
		inline_state_step(&state, insn);
	}
	for (uint8_t r = 0; block.base >= INLINE_NEW && r < ABI_REG_COUNT; r++)
		if (state.of[r].base == block.base && state.of[r].addend == block.addend)
			return r;
	return ABI_REG_COUNT;
}

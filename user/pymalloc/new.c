/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sites where objects begin to live that never come from a free list: those of types without one,
 * recognised because their type is stored into the object just before, and those in functions that
 * only allocate. Their block was seen when it was allocated, so a probe would cost a trap for
 * nothing.
 */
#include "abi/target.h"
#include "machine/machine.h"
#include "pymalloc/search.h"

#define PATH_INSNS_MAX 32  /* instructions followed back from the site, on each path */
#define STEPS_MAX      512 /* on all paths */
#define PATHS_MAX      8   /* paths to one instruction */
#define NEAR_BYTES     144 /* span of a short jump with its prefixes, at most */
#define DETOUR_MIN     6   /* mov %eax,type(%rip) */
/* add $1,%r8d; mov %r8d,type(%rip); shorter up to 3.11: addq $1,type(%rip) */
#define DETOUR_MAX      11
#define OBJECT_TYPE     8 /* ob_type */
#define IS_IN(set, reg) ((reg) < ABI_REG_COUNT && (set) >> (reg)&1)

static int is_new_type(const struct inline_image *image, uint64_t type)
{
	for (size_t i = 0; i < INLINE_NEW_TYPES; i++)
		if (type && image->new_types[i] == type)
			return 1;
	return 0;
}

static int is_in_new_function(const struct inline_image *image, uint64_t site)
{
	for (size_t i = 0; i < INLINE_NEW_FUNCTIONS; i++)
		if (site - image->new_functions[i].vaddr < image->new_functions[i].bytes)
			return 1;
	return 0;
}

/* Does the slot, which the dynamic linker fills, hold the address of such a type? */
static int is_new_slot(const struct inline_image *image, uint64_t slot)
{
	for (size_t i = 0; i < INLINE_NEW_TYPES; i++)
		if (slot && image->new_slots[i] == slot)
			return 1;
	return 0;
}

/* The paths to an instruction: indices of the instructions that control comes from. */
struct paths {
	uint32_t from[PATHS_MAX];
	size_t count;
	uint32_t written; /* registers that detours on the paths may change */
};

/* Is the address in the function? */
static int is_within(const struct inline_code *code, uint64_t vaddr)
{
	return vaddr - code->start < code->end - code->start;
}

static int path_add(struct paths *paths, size_t from)
{
	if (paths->count == PATHS_MAX)
		return 0;
	paths->from[paths->count++] = (uint32_t)from;
	return 1;
}

static int is_path(const struct inline_code *code, size_t at, uint64_t vaddr)
{
	return at < code->count &&
	       (code->insns[at].op == INLINE_BRANCH || code->insns[at].op == INLINE_JUMP) &&
	       code->insns[at].target == vaddr;
}

/*
 * Adds all long jumps and branches to vaddr within the function. 0: there are too many, or bytes
 * that only look like one.
 */
static int paths_within(const struct inline_code *code, uint64_t vaddr, struct paths *paths)
{
	for (size_t i = inline_code_jump(code, vaddr);
	     i < code->jump_count && code->jumps[i].target == vaddr; i++) {
		uint64_t source = code->jumps[i].source;
		size_t at = inline_code_index(code, source);

		if (!is_within(code, source))
			continue;
		if (!is_path(code, at, vaddr) || !path_add(paths, at))
			return 0;
	}
	return 1;
}

/* Adds all short ones to the instruction at that index. 0: there are too many. */
static int paths_near(const struct inline_code *code, uint32_t index, struct paths *paths)
{
	uint64_t vaddr = code->insns[index].vaddr;
	size_t at = index;

	while (at && vaddr - code->insns[at - 1].vaddr <= NEAR_BYTES)
		at--;
	for (; at < code->count && (at <= index || code->insns[at].vaddr - vaddr <= NEAR_BYTES);
	     at++)
		if (code->insns[at].bytes < code->image->machine->long_jump &&
		    is_path(code, at, vaddr) && !path_add(paths, at))
			return 0;
	return 1;
}

/* Does it store a type's reference count, or increment it in memory? */
static int is_count_stored(const struct inline_image *image, const struct inline_insn *insn)
{
	int is_store = insn->op == INLINE_STORE_32 || (insn->op == INLINE_BUMP && insn->width == 8);

	return is_store && insn->base == ABI_REG_COUNT && is_new_type(image, (uint64_t)insn->value);
}

/*
 * Does a detour through the function's cold part that only increments or stores a type's reference
 * count end with the jump at that address? *begin: its start; *written: the register that it
 * writes.
 */
static int detour_match(struct inline_code *code, uint64_t jump, uint64_t *begin, uint32_t *written)
{
	for (uint64_t bytes = DETOUR_MIN; bytes <= DETOUR_MAX; bytes++) {
		struct inline_insn insns[3];
		size_t count = inline_code_window(code, jump - bytes, insns, 3);
		size_t store = count && insns[0].op == INLINE_ADD && insns[0].value == 1;

		if (store + 1 < count && is_count_stored(code->image, &insns[store]) &&
		    insns[store + 1].vaddr == jump && insns[store + 1].op == INLINE_JUMP &&
		    inline_code_is_jumped_to(code, jump - bytes)) {
			*begin = jump - bytes;
			*written = store ? insns[0].written : 0;
			return 1;
		}
	}
	return 0;
}

/* Adds all detours to vaddr. 0: there are other jumps to it from outside the function. */
static int paths_around(struct inline_code *code, uint64_t vaddr, struct paths *paths)
{
	for (size_t i = inline_code_jump(code, vaddr);
	     i < code->jump_count && code->jumps[i].target == vaddr; i++) {
		uint64_t begin;
		uint32_t written;

		if (is_within(code, code->jumps[i].source))
			continue;
		if (!detour_match(code, code->jumps[i].source, &begin, &written) ||
		    !paths_within(code, begin, paths))
			return 0;
		for (size_t j = inline_code_jump(code, begin);
		     j < code->jump_count && code->jumps[j].target == begin; j++)
			if (!is_within(code, code->jumps[j].source))
				return 0;
		paths->written |= written;
	}
	return 1;
}

/* Collects all paths to the instruction. 0: some are unknown. */
static int paths_back(struct inline_code *code, uint32_t at, struct paths *out)
{
	const struct inline_insn *before = at ? &code->insns[at - 1] : NULL;

	*out = (struct paths){.count = 0};
	if (code->source[at] != INLINE_NO_SOURCE)
		return path_add(out, code->source[at]);
	if (!before)
		return 0;
	if (before->op != INLINE_JUMP && before->op != INLINE_JUMP_SLOT && before->op != INLINE_END)
		path_add(out, at - 1);
	return paths_near(code, at, out) && paths_within(code, code->insns[at].vaddr, out) &&
	       paths_around(code, code->insns[at].vaddr, out) && out->count;
}

/*
 * Does the register plus addend hold a type without a free list before the instruction at that
 * index, on every path to it?
 */
static int is_new_held(struct inline_code *code, uint32_t at, uint8_t reg, uint64_t addend,
		       int capacity, int *steps)
{
	struct paths paths;

	if (!capacity || !paths_back(code, at, &paths) || IS_IN(paths.written, reg))
		return 0;
	for (size_t i = 0; i < paths.count; i++) {
		const struct inline_insn *insn = &code->insns[paths.from[i]];
		uint64_t more = addend;
		uint8_t held = reg;

		if (--*steps < 0)
			return 0;
		if (IS_IN(insn->written, reg)) {
			if (insn->op == INLINE_CONST &&
			    is_new_type(code->image, (uint64_t)insn->value + addend))
				continue;
			if (insn->op == INLINE_LOAD && insn->base == ABI_REG_COUNT && !addend &&
			    is_new_slot(code->image, (uint64_t)insn->value))
				continue;
			if ((insn->op != INLINE_COPY && insn->op != INLINE_ADD) ||
			    insn->src >= ABI_REG_COUNT)
				return 0;
			held = insn->src;
			if (insn->op == INLINE_ADD)
				more += (uint64_t)insn->value;
		}
		if (!is_new_held(code, paths.from[i], held, more, capacity - 1, steps))
			return 0;
	}
	return 1;
}

/* The path from where the object is in reg to the site, the last instruction first. */
struct path {
	uint32_t at[PATH_INSNS_MAX];
	int count;
};

/* Is a type without a free list stored into the object on that path, and no other type after it? */
static int is_new_on(struct inline_code *code, const struct path *path, uint8_t reg, int *steps)
{
	uint32_t objects = 1u << reg; /* the registers that hold it */
	int is_new = 0;

	for (int i = path->count; i-- > 0;) {
		const struct inline_insn *insn = &code->insns[path->at[i]];
		int is_type = IS_IN(objects, insn->base) && insn->value == OBJECT_TYPE;

		if (insn->op == INLINE_STORE_CONST && insn->width == 8 && is_type)
			is_new = is_new_type(code->image, insn->target);
		else if (insn->op == INLINE_STORE && is_type)
			is_new =
				insn->src < ABI_REG_COUNT &&
				is_new_held(code, path->at[i], insn->src, 0, PATH_INSNS_MAX, steps);
		if (insn->op == INLINE_COPY && IS_IN(objects, insn->src))
			objects |= 1u << insn->dst;
		else
			objects &= ~insn->written;
	}
	return is_new;
}

/*
 * Is the object, which reg holds before the instruction at that index, new on every path to it?
 * path: the path from there to the site.
 */
static int is_new_before(struct inline_code *code, uint32_t at, uint8_t reg, struct path *path,
			 int *steps)
{
	struct paths paths;
	int count = path->count;

	if (is_new_on(code, path, reg, steps))
		return 1;
	if (count == PATH_INSNS_MAX || !paths_back(code, at, &paths) || IS_IN(paths.written, reg))
		return 0;
	for (size_t i = 0; i < paths.count; i++) {
		const struct inline_insn *insn = &code->insns[paths.from[i]];
		uint8_t object = reg;

		if (--*steps < 0)
			return 0;
		if (IS_IN(insn->written, reg)) {
			if (insn->op != INLINE_COPY || insn->src >= ABI_REG_COUNT)
				return 0;
			object = insn->src;
		}
		path->count = count;
		path->at[path->count++] = paths.from[i];
		if (!is_new_before(code, paths.from[i], object, path, steps))
			return 0;
	}
	return 1;
}

int inline_is_new(struct inline_code *code, uint64_t site, uint8_t reg)
{
	size_t index = inline_code_index(code, site);
	struct path path = {.count = 0};
	int steps = STEPS_MAX;

	if (is_in_new_function(code->image, site))
		return 1;
	return index < code->count && is_new_before(code, (uint32_t)index, reg, &path, &steps);
}

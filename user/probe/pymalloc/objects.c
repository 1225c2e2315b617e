/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sites where objects begin to live: the copies of _Py_NewReference, each found by its check
 * (probe/pymalloc/objects.c).
 *
 * The function itself, which is exported, shows the flag that it checks and the function that it
 * calls. Where it is always inlined (3.8), the flag has a symbol, and the callee is the one that
 * most checks call. Other code checks the flag, too: only a check that makes the same call with an
 * object is a copy. (_Py_Dealloc calls the tracer with DESTROY.)
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "abi/events.h"
#include "abi/target.h"
#include "object/insn/code.h"
#include "object/insn/machine.h"
#include "object/insn/value.h"
#include "probe/pymalloc/search.h"

/* --- new -------------------------------------------------------------------------------------- */

/*
 * Sites where objects begin to live that never come from a free list: those of types without one,
 * recognised because their type is stored into the object just before, and those in functions that
 * only allocate. Their block was seen when it was allocated, so a probe would cost a trap for
 * nothing.
 */

#define PATH_INSNS_MAX 32  /* instructions followed back from the site, on each path */
#define STEPS_MAX      512 /* on all paths */
#define PATHS_MAX      8   /* paths to one instruction */
#define NEAR_BYTES     144 /* span of a short jump with its prefixes, at most */
#define DETOUR_MIN     6   /* mov %eax,type(%rip) */
/* add $1,%r8d; mov %r8d,type(%rip); shorter up to 3.11: addq $1,type(%rip) */
#define DETOUR_MAX      11
#define OBJECT_TYPE     8 /* ob_type */
#define IS_IN(set, reg) ((reg) < ABI_REG_COUNT && (set) >> (reg)&1)

static bool is_new_type(const struct inline_image *image, uint64_t type)
{
	for (size_t i = 0; i < INLINE_NEW_TYPES; i++)
		if (type && image->new_types[i] == type)
			return 1;
	return 0;
}

static bool is_in_new_function(const struct inline_image *image, uint64_t site)
{
	for (size_t i = 0; i < INLINE_NEW_FUNCTIONS; i++)
		if (site - image->new_functions[i].vaddr < image->new_functions[i].bytes)
			return 1;
	return 0;
}

/* Does the slot, which the dynamic linker fills, hold the address of such a type? */
static bool is_new_slot(const struct inline_image *image, uint64_t slot)
{
	for (size_t i = 0; i < INLINE_NEW_TYPES; i++)
		if (slot && image->new_slots[i] == slot)
			return 1;
	return 0;
}

/* The paths to an instruction: indices of the instructions that control comes from. */
struct new_paths {
	uint32_t from[PATHS_MAX];
	size_t count;
	uint32_t written; /* registers that detours on the paths may change */
};

/* Is the address in the function? */
static bool is_within(const struct inline_code *code, uint64_t vaddr)
{
	return vaddr - code->start < code->end - code->start;
}

static int path_add(struct new_paths *paths, size_t from)
{
	if (paths->count == PATHS_MAX)
		return 0;
	paths->from[paths->count++] = (uint32_t)from;
	return 1;
}

static bool is_path(const struct inline_code *code, size_t at, uint64_t vaddr)
{
	return at < code->count &&
	       (code->insns[at].op == INLINE_BRANCH || code->insns[at].op == INLINE_JUMP) &&
	       code->insns[at].target == vaddr;
}

/*
 * Adds all long jumps and branches to vaddr within the function. 0: there are too many, or bytes
 * that only look like one.
 */
static int paths_within(const struct inline_code *code, uint64_t vaddr, struct new_paths *paths)
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
static int paths_near(const struct inline_code *code, uint32_t index, struct new_paths *paths)
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
static bool is_count_stored(const struct inline_image *image, const struct inline_insn *insn)
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
static int paths_around(struct inline_code *code, uint64_t vaddr, struct new_paths *paths)
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
static int paths_back(struct inline_code *code, uint32_t at, struct new_paths *out)
{
	const struct inline_insn *before = at ? &code->insns[at - 1] : NULL;

	*out = (struct new_paths){.count = 0};
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
static bool is_new_held(struct inline_code *code, uint32_t at, uint8_t reg, uint64_t addend,
			int capacity, int *steps)
{
	struct new_paths paths;

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
struct new_path {
	uint32_t at[PATH_INSNS_MAX];
	int count;
};

/* Is a type without a free list stored into the object on that path, and no other type after it? */
static bool is_new_on(struct inline_code *code, const struct new_path *path, uint8_t reg,
		      int *steps)
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
static bool is_new_before(struct inline_code *code, uint32_t at, uint8_t reg, struct new_path *path,
			  int *steps)
{
	struct new_paths paths;
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

/*
 * Is every object that begins to live at site in a new block? Its function was decoded last. reg:
 * holds the object.
 */
static bool inline_is_new(struct inline_code *code, uint64_t site, uint8_t reg)
{
	size_t index = inline_code_index(code, site);
	struct new_path path = {.count = 0};
	int steps = STEPS_MAX;

	if (is_in_new_function(code->image, site))
		return 1;
	return index < code->count && is_new_before(code, (uint32_t)index, reg, &path, &steps);
}

/* --- object calls ----------------------------------------------------------------------------- */

/*
 * Builds without link-time optimisation call _Py_NewReference from about 70 places, and most
 * objects that pass there are new str and int objects. Probes at only those calls that may be of
 * another object save a trap for each of these. It must be all calls: if the file refers to the
 * function in any other way, the function's own site stays.
 */

#define CALLS_MAX 512

struct calls {
	uint64_t of[CALLS_MAX];
	size_t count;
};

/*
 * Is it a slot through which the file calls the function? If the exported function only jumps to
 * the body, such calls pass through the jump.
 */
static bool is_slot(const struct inline_search *search, uint64_t vaddr)
{
	const struct inline_image *image = search->code.image;

	if (search->new_reference != image->new_reference)
		return 0;
	for (size_t i = 0; i < INLINE_TRACING_SLOTS; i++)
		if (vaddr && image->new_reference_slots[i] == vaddr)
			return 1;
	return 0;
}

/*
 * Finds every reference to the function. 0; -ENOENT one is neither a call nor a jump, or there are
 * too many; -ENOMEM.
 */
static int calls_find(struct inline_search *search, struct calls *calls)
{
	const struct inline_image *image = search->code.image;
	const struct inline_range *text = &image->text;
	int err = 0;

	for (size_t i = 2; i + 4 <= text->bytes; i++) {
		const uint8_t *code = text->code + i;
		uint64_t target, vaddr = text->vaddr + i;
		int32_t distance;

		memcpy(&distance, code, sizeof(distance));
		target = vaddr + 4 + (uint64_t)(int64_t)distance;
		int direct = target == search->new_reference ||
			     is_slot(search, inline_stub_slot(image, target));
		if (direct && (code[-1] == 0xe8 || code[-1] == 0xe9))
			vaddr -= 1;
		else if (is_slot(search, target) && code[-2] == 0xff &&
			 (code[-1] == 0x15 || code[-1] == 0x25))
			vaddr -= 2;
		else if (distance &&
			 /* 0: padding between functions */
			 (direct || is_slot(search, target)))
			return -ENOENT;
		else
			continue;
		if (calls->count == CALLS_MAX || !inline_is_instruction(search, vaddr, &err))
			return err ?: -ENOENT;
		calls->of[calls->count++] = vaddr;
	}
	return 0;
}

/* Is the site in the function itself? */
static bool is_own(const struct inline_search *search, const struct plan_site *site)
{
	const struct inline_image *image = search->code.image;
	size_t above = inline_code_start_above(image, search->new_reference);
	uint64_t end = image->text.vaddr + image->text.bytes;

	if (above < image->start_count && image->starts[above] < end)
		end = image->starts[above];
	return site->op == ABI_OP_REUSE &&
	       site->vaddr - search->new_reference < end - search->new_reference;
}

/* Removes the function's own site. */
static void own_remove(struct inline_search *search)
{
	struct inline_sites *sites = search->out;

	for (size_t i = sites->count; i-- > 0;) {
		if (!is_own(search, &sites->sites[i]))
			continue;
		sites->count--;
		sites->found[INLINE_OBJECT]--;
		memmove(&sites->sites[i], &sites->sites[i + 1],
			(sites->count - i) * sizeof(sites->sites[0]));
	}
}

/* Is the exported function only a jump to the function that the site is in? */
static bool is_seen_behind(const struct inline_search *search)
{
	for (size_t i = 0; i < search->out->count; i++)
		if (is_own(search, &search->out->sites[i]))
			return search->new_reference != search->code.image->new_reference;
	return 0;
}

/*
 * If _Py_NewReference is called rather than inlined, replaces its own site by sites at its calls,
 * but for those where only new objects come (probe/pymalloc/objects.c). 0, also if nothing
 * changes; or as inline_site_add().
 */
static int inline_object_calls(struct inline_search *search)
{
	struct inline_sites *sites = search->out;
	struct plan_site site = {.op = ABI_OP_REUSE};
	struct calls calls = {0};

	if (!search->new_reference)
		return 0;
	sites->object_sites = is_seen_behind(search);
	/* References are recognised on x86-64. */
	if (search->code.image->machine != &machine_x86)
		return 0;
	int err = calls_find(search, &calls);
	sites->reference_calls = calls.count;
	if (err || calls.count <= sites->found[INLINE_OBJECT] + sites->always_new)
		return err == -ENOENT ? 0 : err;
	own_remove(search);
	sites->object_sites = 1;
	site.cookie =
		ABI_COOKIE(ABI_OP_REUSE, EVENT_API_OBJ, ABI_REG_DI, ABI_REG_COUNT, ABI_REG_COUNT);
	snprintf(site.why, sizeof(site.why), "object is rdi, begins to live by a call");
	for (size_t i = 0; i < calls.count && !err; i++) {
		site.vaddr = calls.of[i];
		if (!inline_is_instruction(search, site.vaddr, &err))
			continue;
		if (inline_is_new(&search->code, site.vaddr, ABI_REG_DI)) {
			sites->always_new++;
			continue;
		}
		sites->found[INLINE_OBJECT]++;
		err = inline_site_add(search, &site);
	}
	return err;
}

/* --- guard ------------------------------------------------------------------------------------ */

/*
 * The check in _Py_NewReference whether objects are traced. Each copy of it begins with
 *
 * 	up to 3.12	if (tracemalloc's config.tracing) _PyTraceMalloc_NewReference(object);
 * 	from 3.13 on	if (_PyRuntime.ref_tracer.tracer_func)
 * 				tracer_func(object, CREATE, tracer_data);
 *
 * The branch of this check is the site: its rarely taken path passes the object to the tracer.
 */

#define INLINE_GUARD_ANY UINT64_MAX

#define INLINE_GUARD_TRACER 0 /* instead of a callee: the function that the flag holds */

struct inline_guard {
	uint64_t site, callee;
	int64_t event; /* of INLINE_GUARD_TRACER: the event argument */
	uint8_t reg;   /* the object is in reg plus addend; ABI_REG_COUNT: in no register */
	int64_t addend;
};

/* Where code begins to read the flag, and a register that holds a known value there. */
struct inline_reader {
	uint64_t vaddr;
	uint8_t base; /* ABI_REG_COUNT: none */
	struct inline_value held;
};

#define ENTRY_MAX 12 /* instructions of _Py_NewReference before it reads the flag */
#define TEST_MAX  16 /* from reading the flag to the branch */
#define SLOW_MAX  32 /* from there to the call */

static bool is_same(const struct inline_address *a, const struct inline_address *b)
{
	return a->slot == b->slot && a->offset == b->offset;
}

/* Does it compare the flag with 0, or load it? */
static int reads_flag(const struct inline_state *state, const struct inline_insn *insn,
		      const struct inline_address *flag)
{
	struct inline_address at;

	return insn->op != INLINE_COMPARE && !(insn->op == INLINE_COMPARE_CONST && insn->value) &&
	       inline_state_reads(state, insn, &at) && is_same(&at, flag);
}

/* The path on which the tracer is called with the object. */
struct slow_path {
	struct inline_state objects; /* the registers, from the branch on */
	struct inline_state reading; /* the same, with what was known before the branch */
	uint64_t tracers[2];         /* values loaded from the flag */
	uint64_t wanted;             /* the callee, or INLINE_GUARD_ANY */
};

/*
 * A jump to a function's start is a tail call, unless it leads to a part that was split off. If the
 * callee is known (wanted), only a jump to it is a tail call.
 */
static bool is_tail_call(const struct inline_code *code, const struct inline_insn *insn,
			 uint64_t wanted)
{
	return insn->op == INLINE_JUMP && inline_code_is_start(code, insn->target) &&
	       (wanted == INLINE_GUARD_ANY || wanted == insn->target);
}

/*
 * Does the instruction call, directly or by the flag? 0; 1, and the guard's callee is set; -ENOENT
 * it calls something else.
 */
static int slow_call(struct inline_code *code, const struct slow_path *path,
		     const struct inline_insn *insn, const struct inline_address *flag,
		     struct inline_guard *guard)
{
	if (insn->op == INLINE_CALL || is_tail_call(code, insn, path->wanted)) {
		guard->callee = insn->target;
		guard->event = 0;
		return 1;
	}
	if (insn->op == INLINE_CALL_SLOT || insn->op == INLINE_JUMP_SLOT) {
		uint64_t called = insn->src < ABI_REG_COUNT ? path->objects.of[insn->src].base
							    : INLINE_UNKNOWN;
		uint8_t event = code->image->machine->arguments[1];

		if (!reads_flag(&path->reading, insn, flag) &&
		    (called < INLINE_NEW ||
		     (called != path->tracers[0] && called != path->tracers[1])))
			return -ENOENT;
		if (path->objects.of[event].base != INLINE_CONSTANT)
			return -ENOENT;
		guard->callee = INLINE_GUARD_TRACER;
		guard->event = path->objects.of[event].addend;
		return 1;
	}
	return 0;
}

/*
 * Follows the code from vaddr to its first call, with the registers at the branch. 0: no call is
 * found.
 */
static int slow_path(struct inline_code *code, uint64_t vaddr, const struct inline_address *flag,
		     const struct inline_state *reading, uint8_t tracer, struct inline_guard *guard)
{
	struct slow_path path = {.reading = *reading,
				 .tracers = {INLINE_UNKNOWN, INLINE_UNKNOWN},
				 .wanted = guard->callee};
	struct inline_insn insn;

	inline_state_init(&path.objects);
	if (tracer < ABI_REG_COUNT)
		path.tracers[0] = path.objects.of[tracer].base;
	for (int i = 0; i < SLOW_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		struct inline_value object = path.objects.of[code->image->machine->arguments[0]];
		int is_flag = reads_flag(&path.reading, &insn, flag);
		int calls = slow_call(code, &path, &insn, flag, guard);

		if (calls < 0 || insn.op == INLINE_END)
			return 0;
		if (calls) {
			guard->reg = object.base >= INLINE_NEW &&
						     object.base < INLINE_NEW + ABI_REG_COUNT
					     ? (uint8_t)(object.base - INLINE_NEW)
					     : ABI_REG_COUNT;
			guard->addend = object.addend;
			return 1;
		}
		inline_state_step(&path.objects, &insn);
		inline_state_step(&path.reading, &insn);
		if (is_flag && insn.dst < ABI_REG_COUNT)
			path.tracers[1] = path.objects.of[insn.dst].base;
		/* After a comparison with the likeliest tracer: take the path of any other. */
		if (insn.op == INLINE_JUMP || (insn.op == INLINE_BRANCH && insn.unequal))
			vaddr = insn.target;
		else if (insn.op == INLINE_BRANCH && !insn.equal)
			return 0;
		else
			vaddr += insn.bytes;
	}
	return 0;
}

/*
 * Updates the registers. An address that a later instruction than the first loads is forgotten, so
 * that each guard is found from one place only.
 */
static void reading_step(struct inline_state *state, const struct inline_insn *insn, int first)
{
	int is_address = insn->op == INLINE_CONST ||
			 (insn->op == INLINE_LOAD && insn->base == ABI_REG_COUNT);

	inline_state_step(state, insn);
	if (!first && is_address && insn->dst < ABI_REG_COUNT)
		inline_state_forget(state, insn->dst);
}

/*
 * Does the instruction at the reader read the flag, or load the address through which the flag is
 * read next, and does a guard follow? callee: the function that it calls, or INLINE_GUARD_ANY: then
 * any tail call is accepted.
 */
static int inline_guard_match(struct inline_code *code, const struct inline_reader *reader,
			      const struct inline_address *flag, uint64_t callee,
			      struct inline_guard *out)
{
	uint64_t vaddr = reader->vaddr;
	struct inline_state state;
	struct inline_insn insn;
	uint8_t tracer = ABI_REG_COUNT;
	int read = 0, tested = 0;

	*out = (struct inline_guard){.callee = callee};
	inline_state_init(&state);
	if (reader->base < ABI_REG_COUNT)
		state.of[reader->base] = reader->held;
	for (int i = 0; i < TEST_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		uint64_t next = vaddr + insn.bytes;

		if (!read && (!i || insn.base < ABI_REG_COUNT) && reads_flag(&state, &insn, flag)) {
			if (insn.op >= INLINE_BRANCH)
				return 0;
			read = 1;
			tracer = insn.dst;
			tested = insn.op == INLINE_COMPARE_CONST;
		} else if (insn.op == INLINE_BRANCH && (insn.equal || insn.unequal) &&
			   (insn.src < ABI_REG_COUNT ? read && insn.src == tracer : tested)) {
			out->site = vaddr;
			return slow_path(code, insn.equal ? next : insn.target, flag, &state,
					 tracer, out);
		} else if (insn.op == INLINE_TEST && read && tracer < ABI_REG_COUNT &&
			   insn.dst == tracer) {
			tested = 1;
		} else if (insn.op == INLINE_COMPARE || insn.op == INLINE_COMPARE_CONST ||
			   insn.op == INLINE_TEST) {
			tested = 0;
		} else if ((insn.op >= INLINE_BRANCH && insn.op != INLINE_JUMP &&
			    insn.op != INLINE_BRANCH) ||
			   (read && !tested &&
			    (tracer >= ABI_REG_COUNT || insn.written >> tracer & 1))) {
			return 0;
		}
		reading_step(&state, &insn, !i);
		vaddr = insn.op == INLINE_JUMP ? insn.target : next;
	}
	return 0;
}

/*
 * Finds the flag that _Py_NewReference, which begins at vaddr, checks first, and the function that
 * it calls with its argument. 0; -ENOENT.
 */
static int inline_guard_seed(struct inline_code *code, uint64_t vaddr, struct inline_address *flag,
			     uint64_t *callee)
{
	struct inline_insn insns[ENTRY_MAX];
	size_t count = inline_code_window(code, vaddr, insns, ENTRY_MAX);
	struct inline_guard guard;

	for (size_t i = 0; i < count && insns[i].op <= INLINE_BRANCH; i++) {
		struct inline_reader reader = {.vaddr = insns[i].vaddr, .base = ABI_REG_COUNT};
		struct inline_state state;

		inline_state_init(&state);
		for (size_t j = i; j < count && insns[j].op < INLINE_BRANCH; j++) {
			if (inline_state_reads(&state, &insns[j], flag) &&
			    inline_guard_match(code, &reader, flag, INLINE_GUARD_ANY, &guard) &&
			    guard.reg < ABI_REG_COUNT && !guard.event && !guard.addend) {
				*callee = guard.callee;
				return 0;
			}
			reading_step(&state, &insns[j], j == i);
		}
	}
	return -ENOENT;
}

/* --- objects ---------------------------------------------------------------------------------- */

#define CALLEES   8
#define FLAGS_MAX (1 + INLINE_TRACING_SLOTS)

static bool is_known(const struct inline_sites *sites, uint64_t vaddr)
{
	for (size_t i = sites->count; i-- > 0 && sites->sites[i].op == ABI_OP_REUSE;)
		if (sites->sites[i].vaddr == vaddr)
			return 1;
	return 0;
}

static int object_add(struct inline_search *search, const struct inline_guard *guard)
{
	struct plan_site site = {.vaddr = guard->site, .op = ABI_OP_REUSE};
	int err = 0;

	if (is_known(search->out, guard->site))
		return 0;
	if (guard->reg == ABI_REG_COUNT || guard->addend < INT16_MIN || guard->addend > INT16_MAX) {
		inline_give_up(search, INLINE_OBJECT, guard->site,
			       "no register holds the object that begins to live");
		return 0;
	}
	if (!inline_is_instruction(search, guard->site, &err)) {
		inline_give_up(search, INLINE_OBJECT, guard->site,
			       "decoding its function does not lead to it");
		return err;
	}
	if (!guard->addend && inline_is_new(&search->code, guard->site, guard->reg)) {
		search->out->always_new++;
		return 0;
	}
	site.cookie =
		ABI_COOKIE(ABI_OP_REUSE, EVENT_API_OBJ, guard->reg, ABI_REG_COUNT, ABI_REG_COUNT) |
		ABI_COOKIE_ADDEND(guard->addend);
	snprintf(site.why, sizeof(site.why), "object is %s%+lld, begins to live",
		 search->code.decoder.machine->register_name(guard->reg), (long long)guard->addend);
	search->out->found[INLINE_OBJECT]++;
	return inline_site_add(search, &site);
}

/* Does an instruction of the decoded function, before the reader, give its register that value? */
static bool is_held(const struct inline_code *code, const struct inline_reader *reader)
{
	struct inline_state state;

	if (reader->base >= ABI_REG_COUNT)
		return 1;
	inline_state_init(&state);
	for (size_t i = 0; i < code->count && code->insns[i].vaddr < reader->vaddr; i++) {
		const struct inline_value *value = &state.of[reader->base];

		inline_state_step(&state, &code->insns[i]);
		if (value->base == reader->held.base && value->addend == reader->held.addend)
			return 1;
	}
	return 0;
}

/*
 * Finds a guard at an instruction that calls callee. Decodes its function last, because that is
 * slow.
 */
static int guard_find(struct inline_search *search, const struct inline_reader *reader,
		      const struct inline_address *flag, uint64_t callee,
		      struct inline_guard *guard, int *err)
{
	return inline_guard_match(&search->code, reader, flag, callee, guard) &&
	       (callee == INLINE_GUARD_ANY || (guard->callee == callee && !guard->event)) &&
	       inline_is_instruction(search, reader->vaddr, err) && is_held(&search->code, reader);
}

/*
 * Calls each with every guard of the flag. callee: the function that guards call, or
 * INLINE_GUARD_ANY: then any tail call is accepted.
 */
typedef int (*guard_fn)(void *context, const struct inline_guard *guard);

static int guards_walk(struct inline_search *search, const struct inline_address *flag,
		       uint64_t callee, guard_fn each, void *context)
{
	const struct inline_image *image = search->code.image;
	struct machine_found found;
	int err = 0;

	for (size_t i = 0;
	     !err && (i = image->machine->look(MACHINE_READER, &image->text, i, flag, &found));) {
		struct inline_reader reader = {found.vaddr, found.base, {INLINE_CONSTANT, 0}};
		struct inline_reader before = {found.vaddr - 1, ABI_REG_COUNT, {0}};
		struct inline_guard guard;

		if (flag->slot)
			reader.held.base = INLINE_HELD | flag->slot;
		reader.held.addend = (int64_t)((uint64_t)flag->offset - (uint64_t)found.value);
		if ((found.prefixed && guard_find(search, &before, flag, callee, &guard, &err)) ||
		    guard_find(search, &reader, flag, callee, &guard, &err))
			err = each(context, &guard);
	}
	return err;
}

struct copies {
	struct inline_search *search;
	uint64_t callee;
};

static int copy_add(void *context, const struct inline_guard *guard)
{
	struct copies *copies = context;

	return object_add(copies->search, guard);
}

struct callee_counts {
	struct {
		uint64_t callee;
		size_t calls;
	} callees[CALLEES];
};

static int callee_count(void *context, const struct inline_guard *guard)
{
	struct callee_counts *counts = context;

	if (guard->callee == INLINE_GUARD_TRACER || guard->reg == ABI_REG_COUNT)
		return 0;
	for (size_t i = 0; i < CALLEES; i++) {
		if (counts->callees[i].calls && counts->callees[i].callee != guard->callee)
			continue;
		counts->callees[i].callee = guard->callee;
		counts->callees[i].calls++;
		break;
	}
	return 0;
}

/* The function that most guards call. 0; -ENOENT; or an error. */
static int callee_find(struct inline_search *search, const struct inline_address *flags,
		       size_t count, uint64_t *callee)
{
	struct callee_counts counts = {0};
	size_t best = 0;

	for (size_t i = 0; i < count; i++) {
		int err = guards_walk(search, &flags[i], INLINE_GUARD_ANY, callee_count, &counts);

		if (err)
			return err;
	}
	for (size_t i = 1; i < CALLEES; i++)
		if (counts.callees[i].calls > counts.callees[best].calls)
			best = i;
	*callee = counts.callees[best].callee;
	return counts.callees[best].calls ? 0 : -ENOENT;
}

int inline_objects_find(struct inline_search *search)
{
	const struct inline_image *image = search->code.image;
	struct copies copies = {.search = search};
	struct inline_address flags[FLAGS_MAX];
	size_t count = 0;
	int err;

	if (image->new_reference) {
		search->new_reference = inline_code_body(&search->code, image->new_reference);
		err = inline_guard_seed(&search->code, search->new_reference, &flags[count++],
					&copies.callee);
	} else {
		if (image->tracing)
			flags[count++] = (struct inline_address){.offset = (int64_t)image->tracing};
		for (size_t i = 0; i < INLINE_TRACING_SLOTS; i++)
			if (image->tracing_slots[i])
				flags[count++] = (struct inline_address){image->tracing_slots[i],
									 image->tracing_offset,
									 image->tracing_offset};
		err = callee_find(search, flags, count, &copies.callee);
	}
	for (size_t i = 0; i < count && !err; i++)
		err = guards_walk(search, &flags[i], copies.callee, copy_add, &copies);
	if (err && err != -ENOENT)
		return err;
	search->out->objects_unknown = err == -ENOENT;
	return inline_object_calls(search);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exported function jumps through a slot, whose initial content the file has, or has an inlined
 * copy of the implementation. The walk follows its code from its first instruction, on all paths,
 * breadth first, and into what it calls. It tracks constants in registers, because these lead to
 * the slots. The sites are near the entry, so the walk is bounded: a path that leads far away does
 * not lead to them.
 */
#include "probe/python/plan_ends.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "object/insn/insn.h"
#include "object/insn/machine.h"
#include "util/sorted.h"

#define STEPS_MAX 4096u /* instructions; the farthest site takes about 500 */
#define QUEUE_MAX 1024u /* pending paths */
#define SEEN      8192u /* power of two, twice STEPS_MAX */
#define CODE      256u  /* bytes read at once */
#define POINTERS  64u   /* looked up, for all functions together */

/* What happens to a request that ends at a site. */
enum {
	GIVES_SMALL = 1,
	GIVES_LARGE = 2,
	TAKES_SMALL = 4,
	TAKES_LARGE = 8,
};

static const struct {
	const char *name;
	int kinds;
} exported[PLAN_ENDS] = {
	{"PyMem_RawMalloc", GIVES_LARGE},
	{"PyMem_RawCalloc", GIVES_LARGE},
	{"PyMem_RawRealloc", GIVES_LARGE},
	{"PyMem_RawFree", TAKES_LARGE},
	{"PyMem_Malloc", GIVES_SMALL | GIVES_LARGE},
	{"PyMem_Calloc", GIVES_SMALL | GIVES_LARGE},
	{"PyMem_Realloc", GIVES_SMALL | GIVES_LARGE},
	{"PyMem_Free", TAKES_SMALL | TAKES_LARGE},
	{"PyObject_Malloc", GIVES_SMALL | GIVES_LARGE},
	{"PyObject_Calloc", GIVES_SMALL | GIVES_LARGE},
	{"PyObject_Realloc", GIVES_SMALL | GIVES_LARGE},
	{"PyObject_Free", TAKES_SMALL | TAKES_LARGE},
};

/*
 * Registers that hold a constant (known), or the content of a constant address (held). The content
 * is looked up when it is used.
 */
struct constants {
	uint64_t of[ABI_REG_COUNT];
	uint32_t known, held;
};

struct pointer {
	uint64_t address, value; /* 0: unknown */
};

struct end {
	uint64_t vaddr;
	int kinds;
};

struct plan_ends_path {
	uint64_t vaddr;
	struct constants constants;
};

struct plan_ends_walk {
	struct elf_file *file;
	struct inline_decoder decoder;
	struct end *ends; /* sorted */
	size_t end_count;
	int wanted, found, lost; /* lost: the target of a jump is unknown */
	size_t steps, head, tail;
	struct plan_ends_path queue[QUEUE_MAX];
	uint64_t seen[SEEN];
	struct pointer pointers[POINTERS];
	size_t pointer_count;
	uint8_t code[CODE];
	uint64_t code_vaddr;
	size_t code_bytes;
};

static int site_kinds(const struct plan_site *site)
{
	int small = (site->cookie >> 8 & 0xff) != EVENT_API_RAW &&
		    (site->cookie >> 8 & 0xff) != EVENT_API_LARGE;

	switch (site->op) {
	case ABI_OP_POOL:
	case ABI_OP_REFILL:
	case ABI_OP_FIRST_BLOCK:
		return GIVES_SMALL;
	case ABI_OP_MALLOC:
	case ABI_OP_CALLOC:
	case ABI_OP_REALLOC:
		return GIVES_LARGE | (small ? GIVES_SMALL : 0);
	case ABI_OP_POOL_FREE:
		return TAKES_SMALL;
	case ABI_OP_FREE:
		return TAKES_LARGE | (small ? TAKES_SMALL : 0);
	default:
		return 0;
	}
}

static int end_compare(const void *a, const void *b)
{
	const struct end *x = a, *y = b;

	return CMP(x->vaddr, y->vaddr);
}

/* Loads the sites where a request ends, one per address. */
static int ends_load(struct plan_ends_walk *walk, const struct plan_site *sites, size_t count)
{
	size_t kept = 0;

	walk->ends = calloc(count + 1, sizeof(*walk->ends));
	if (!walk->ends)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		struct end end = {sites[i].vaddr, site_kinds(&sites[i])};

		if (end.kinds)
			walk->ends[walk->end_count++] = end;
	}
	qsort(walk->ends, walk->end_count, sizeof(*walk->ends), end_compare);
	for (size_t i = 0; i < walk->end_count; i++) {
		if (kept && walk->ends[kept - 1].vaddr == walk->ends[i].vaddr)
			walk->ends[kept - 1].kinds |= walk->ends[i].kinds;
		else
			walk->ends[kept++] = walk->ends[i];
	}
	walk->end_count = kept;
	return 0;
}

static void end_visit(struct plan_ends_walk *walk, uint64_t vaddr)
{
	const struct end wanted = {.vaddr = vaddr}, *found = NULL;

	if (walk->end_count)
		found = bsearch(&wanted, walk->ends, walk->end_count, sizeof(wanted), end_compare);
	walk->found |= found ? found->kinds & walk->wanted : 0;
}

/* Is the address visited for the first time? */
static bool is_new(struct plan_ends_walk *walk, uint64_t vaddr)
{
	size_t i = (size_t)(vaddr * 0x9e3779b97f4a7c15u >> 51) % SEEN;

	while (walk->seen[i] && walk->seen[i] != vaddr)
		i = (i + 1) % SEEN;
	if (walk->seen[i])
		return 0;
	walk->seen[i] = vaddr;
	return 1;
}

static int insn_read(struct plan_ends_walk *walk, uint64_t vaddr, struct inline_insn *insn)
{
	for (int again = 0; again < 2; again++) {
		uint64_t at = vaddr - walk->code_vaddr;

		if (walk->code_bytes > at && inline_decode(&walk->decoder, walk->code + at,
							   walk->code_bytes - at, vaddr, insn))
			return 1;
		int got = again ? 0 : elf_file_read(walk->file, vaddr, walk->code, CODE);

		walk->code_vaddr = vaddr;
		walk->code_bytes = got > 0 ? (size_t)got : 0;
	}
	return 0;
}

static void path_add(struct plan_ends_walk *walk, uint64_t vaddr, const struct constants *constants)
{
	if (walk->tail < QUEUE_MAX)
		walk->queue[walk->tail++] = (struct plan_ends_path){vaddr, *constants};
}

/* Files have many relocations, so each address is looked up once. 0: unknown. */
static uint64_t pointer_at(struct plan_ends_walk *walk, uint64_t address)
{
	struct pointer *pointer = walk->pointers, *end = pointer + walk->pointer_count;

	while (pointer < end && pointer->address != address)
		pointer++;
	if (pointer < end || walk->pointer_count == POINTERS)
		return pointer < end ? pointer->value : 0;
	*pointer = (struct pointer){.address = address};
	if (elf_file_pointer(walk->file, address, &pointer->value))
		pointer->value = 0;
	walk->pointer_count++;
	return pointer->value;
}

/* The register's value; 0: unknown. */
static uint64_t value_of(struct plan_ends_walk *walk, const struct constants *constants,
			 uint8_t reg)
{
	if (reg >= ABI_REG_COUNT)
		return 0;
	if (constants->held >> reg & 1)
		return pointer_at(walk, constants->of[reg]);
	return constants->known >> reg & 1 ? constants->of[reg] : 0;
}

/* The address that an instruction reads; 0: unknown. */
static uint64_t address_of(struct plan_ends_walk *walk, const struct constants *constants,
			   const struct inline_insn *insn)
{
	uint64_t base = value_of(walk, constants, insn->base);

	if (insn->base == ABI_REG_COUNT)
		return (uint64_t)insn->value;
	return base ? base + (uint64_t)insn->value : 0;
}

static void constants_step(struct plan_ends_walk *walk, struct constants *constants,
			   const struct inline_insn *insn)
{
	uint64_t result = 0;
	int known = 0, held = 0;

	switch (insn->op) {
	case INLINE_CONST:
		result = (uint64_t)insn->value;
		known = 1;
		break;
	case INLINE_COPY:
	case INLINE_ADD:
		result = value_of(walk, constants, insn->src);
		known = result != 0;
		result += insn->op == INLINE_ADD ? (uint64_t)insn->value : 0;
		break;
	case INLINE_LOAD:
		result = address_of(walk, constants, insn);
		held = result != 0;
		break;
	default:
		break;
	}
	constants->known &= ~insn->written;
	constants->held &= ~insn->written;
	if ((known || held) && insn->dst < ABI_REG_COUNT) {
		constants->of[insn->dst] = result;
		*(held ? &constants->held : &constants->known) |= 1u << insn->dst;
	}
}

/* The target of a call or jump through a register or a slot. 0: in another file; -1: unknown. */
static int64_t slot_target(struct plan_ends_walk *walk, const struct constants *constants,
			   const struct inline_insn *insn)
{
	uint64_t address, target = value_of(walk, constants, insn->src);
	const char *name;

	if (insn->src < ABI_REG_COUNT)
		return target ? (int64_t)target : -1;
	address = insn->target ? insn->target : address_of(walk, constants, insn);
	if (!address)
		return -1;
	target = pointer_at(walk, address);
	if (target)
		return (int64_t)target;
	return elf_file_import_at(walk->file, address, &name) ? -1 : 0;
}

static void path_walk(struct plan_ends_walk *walk, uint64_t vaddr, struct constants constants)
{
	struct inline_insn insn;

	while (walk->found != walk->wanted && walk->steps < STEPS_MAX && is_new(walk, vaddr) &&
	       insn_read(walk, vaddr, &insn)) {
		int64_t target = -1;

		walk->steps++;
		end_visit(walk, vaddr);
		if (insn.op == INLINE_CALL_SLOT || insn.op == INLINE_JUMP_SLOT)
			target = slot_target(walk, &constants, &insn);
		else if (insn.op == INLINE_BRANCH || insn.op == INLINE_JUMP ||
			 insn.op == INLINE_CALL)
			target = (int64_t)insn.target;
		walk->lost |= insn.op == INLINE_JUMP_SLOT && target < 0;
		if (target > 0)
			path_add(walk, (uint64_t)target, &constants);
		constants_step(walk, &constants, &insn);
		if (insn.op == INLINE_JUMP || insn.op == INLINE_JUMP_SLOT || insn.op == INLINE_END)
			return;
		vaddr += insn.bytes;
	}
}

/*
 * Do the function's paths reach sites of all wanted kinds? Also 1 where that cannot be determined.
 */
static bool is_ended(struct plan_ends_walk *walk, uint64_t vaddr, int wanted)
{
	struct constants none = {.known = 0};

	walk->wanted = wanted;
	walk->found = walk->lost = 0;
	walk->steps = walk->head = walk->tail = 0;
	memset(walk->seen, 0, sizeof(walk->seen));
	path_add(walk, vaddr, &none);
	while (walk->head < walk->tail && walk->found != wanted) {
		const struct plan_ends_path *path = &walk->queue[walk->head++];

		path_walk(walk, path->vaddr, path->constants);
	}
	return walk->found == wanted || walk->lost;
}

int plan_ends_unknown(struct elf_file *file, const struct plan_site *sites, size_t count,
		      enum event_mode mode, const char *out[PLAN_ENDS])
{
	struct plan_ends_walk *walk = calloc(1, sizeof(*walk));
	int unknown = 0, err;

	if (!walk)
		return -ENOMEM;
	walk->file = file;
	err = inline_decoder_open(&walk->decoder, machine_own()) ?: ends_load(walk, sites, count);
	for (size_t i = 0; i < PLAN_ENDS && !err; i++) {
		int wanted = mode == EVENT_MODE_CENSUS ? exported[i].kinds & ~TAKES_SMALL
						       : exported[i].kinds;
		struct elf_symbol symbol;

		if (elf_file_symbol(file, exported[i].name, &symbol) || !symbol.function)
			continue;
		if (!is_ended(walk, symbol.vaddr, wanted))
			out[unknown++] = exported[i].name;
	}
	inline_decoder_close(&walk->decoder);
	free(walk->ends);
	free(walk);
	return err ?: unknown;
}

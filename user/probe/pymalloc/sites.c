/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidates are found as bytes, which is cheap. Each is then decoded at its address, and one with
 * the right shape must be an instruction of its function.
 */
#include "probe/pymalloc/sites.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "abi/target.h"
#include "object/insn/machine.h"
#include "probe/pymalloc/match.h"
#include "probe/pymalloc/search.h"
#include "util/array.h"
#include "util/error.h"

/*
 * Where code calls malloc, calloc, realloc and free of libc: through the stubs of the procedure
 * linkage table, or through the slots themselves.
 */

static const struct inline_import *import_of(const struct inline_image *image, uint64_t slot)
{
	for (size_t i = 0; i < image->import_count; i++)
		if (image->imports[i].slot == slot)
			return &image->imports[i];
	return NULL;
}

uint64_t inline_stub_slot(const struct inline_image *image, uint64_t vaddr)
{
	for (size_t r = 0; r < INLINE_STUB_RANGES; r++) {
		const struct inline_range *range = &image->stubs[r];
		uint64_t at = vaddr - range->vaddr;

		if (at < range->bytes)
			return image->machine->stub_slot(range->code + at,
							 range->bytes - (size_t)at, vaddr);
	}
	return 0;
}

static const struct inline_import *stub_at(const struct inline_image *image, uint64_t vaddr)
{
	return import_of(image, inline_stub_slot(image, vaddr));
}

static uint64_t arguments_cookie(const struct machine *machine, enum abi_op op, enum event_api api)
{
	const uint8_t *arguments = machine->arguments;

	switch (op) {
	case ABI_OP_CALLOC:
	case ABI_OP_REALLOC:
		return ABI_COOKIE(op, api, arguments[0], arguments[1], ABI_REG_COUNT);
	default:
		return ABI_COOKIE(op, api, arguments[0], ABI_REG_COUNT, ABI_REG_COUNT);
	}
}

/*
 * Is it the site of another request? One instruction cannot both end a request and begin the next.
 */
static int is_raw_call(struct inline_search *search, uint64_t vaddr)
{
	struct inline_insn insn;

	return inline_code_window(&search->code, vaddr, &insn, 1) &&
	       (insn.op == INLINE_CALL || insn.op == INLINE_JUMP) &&
	       stub_at(search->code.image, insn.target);
}

static int is_record_call(const struct inline_sites *sites, uint64_t vaddr)
{
	for (size_t i = 0; i < sites->record_call_count; i++)
		if (sites->record_calls[i] == vaddr)
			return 1;
	return 0;
}

/* Adds a call of a function of libc, or a jump to it in place of a call. */
static int raw_add(struct inline_search *search, uint64_t vaddr, size_t bytes, enum abi_op op,
		   int is_call)
{
	struct plan_site site = {
		.vaddr = vaddr, .op = op, .with_return = op != ABI_OP_FREE && !is_call};
	struct inline_match match = {0};
	enum event_api api = EVENT_API_RAW;
	int err = 0;

	search->out->found[op == ABI_OP_FREE ? INLINE_RAW_FREE : INLINE_RAW]++;
	if (is_call && op != ABI_OP_FREE) {
		inline_match_return(&search->code, vaddr + bytes, &match);
		if (!inline_is_instruction(search, match.site, &err) ||
		    is_raw_call(search, match.site)) {
			match.site = vaddr + bytes;
			match.reg = search->code.image->machine->result;
		}
		if (match.counted)
			api = EVENT_API_LARGE;
	}
	site.cookie = arguments_cookie(search->code.image->machine, op, api);
	snprintf(site.why, sizeof(site.why), "%s libc%s", is_call ? "call into" : "jump to",
		 api == EVENT_API_LARGE ? ", for pymalloc" : "");
	err = inline_site_add(search, &site);
	if (err || !match.site)
		return err;
	site = (struct plan_site){.vaddr = match.site, .op = ABI_OP_END};
	site.cookie = ABI_COOKIE(ABI_OP_END, api, match.reg, ABI_REG_COUNT, ABI_REG_COUNT);
	snprintf(site.why, sizeof(site.why), "after the call, block in %s",
		 search->code.decoder.machine->register_name(match.reg));
	return inline_site_add(search, &site);
}

/* Calls of libc's allocator. 0; or as inline_site_add(). */
static int inline_raws_find(struct inline_search *search)
{
	const struct inline_image *image = search->code.image;
	struct machine_found found;
	int err = 0;

	for (size_t i = 0;
	     !err && (i = image->machine->look(MACHINE_CALL, &image->text, i, NULL, &found));) {
		const struct inline_import *import = found.through_slot
							     ? import_of(image, found.target)
							     : stub_at(image, found.target);

		if (!import || is_record_call(search->out, found.vaddr))
			continue;
		if (inline_is_instruction(search, found.vaddr, &err))
			err = raw_add(search, found.vaddr, found.bytes, import->op, found.is_call);
		else
			inline_give_up(search,
				       import->op == ABI_OP_FREE ? INLINE_RAW_FREE : INLINE_RAW,
				       found.vaddr, "decoding its function does not lead to it");
	}
	return err;
}

/*
 * Finds where pymalloc requests from the raw allocator a block that is too large for itself,
 * through a slot or a function that jumps through one. The code after that call counts the block.
 * The request is seen in the raw allocator, and its return address identifies it as pymalloc's.
 */

#define PART_MAX 24 /* instructions of a path into a part that was split off the function */

static void large_add(struct inline_sites *sites, uint64_t vaddr)
{
	for (size_t i = 0; i < sites->large_count && i < INLINE_LARGE_MAX; i++)
		if (sites->large[i] == vaddr)
			return;
	if (sites->large_count < INLINE_LARGE_MAX)
		sites->large[sites->large_count] = vaddr;
	sites->large_count++;
}

/*
 * Is it a call of a function of this file, or through a slot? Calls of malloc itself are sites of
 * their own.
 */
static int is_call(const struct inline_image *image, const struct inline_insn *insn)
{
	uint64_t slot =
		insn->op == INLINE_CALL ? inline_stub_slot(image, insn->target) : insn->target;

	for (size_t i = 0; slot && i < image->import_count; i++)
		if (image->imports[i].slot == slot)
			return 0;
	return insn->op == INLINE_CALL || insn->op == INLINE_CALL_SLOT;
}

static void call_look(struct inline_search *search, const struct inline_insn *insn)
{
	uint64_t after = insn->vaddr + insn->bytes;

	if (is_call(search->code.image, insn) && inline_match_counted(&search->code, after))
		large_add(search->out, after);
}

static void part_look(struct inline_search *search, uint64_t vaddr)
{
	struct inline_insn insn;

	for (int i = 0; i < PART_MAX && inline_code_window(&search->code, vaddr, &insn, 1); i++) {
		if (insn.op == INLINE_JUMP || insn.op == INLINE_JUMP_SLOT || insn.op == INLINE_END)
			return;
		call_look(search, &insn);
		vaddr += insn.bytes;
	}
}

/* Searches the function that was decoded last, and the code that it branches to. */
static void function_look(struct inline_search *search)
{
	const struct inline_code *code = &search->code;

	for (size_t i = 0; i < code->count && search->out->large_count <= INLINE_LARGE_MAX; i++) {
		const struct inline_insn *insn = &code->insns[i];

		call_look(search, insn);
		if ((insn->op == INLINE_BRANCH || insn->op == INLINE_JUMP) &&
		    insn->target - code->start >= code->end - code->start)
			part_look(search, insn->target);
	}
}

/*
 * There are inlined copies, which call malloc itself. The functions are what hooks call
 * (tracemalloc's), and they request large blocks through a slot that holds a hook, too.
 */
static int functions_look(struct inline_search *search)
{
	const uint64_t *functions = search->code.image->object_functions;
	int err = 0;

	for (size_t i = 0; i < INLINE_OBJECT_FUNCTIONS && err != -ENOMEM; i++) {
		err = functions[i] ? inline_code_function(&search->code, functions[i]) : -ENOENT;
		if (!err)
			function_look(search);
	}
	return err == -ENOMEM ? err : 0;
}

/* The return addresses of calls that request large blocks through a slot. 0; -ENOMEM. */
static int inline_large_find(struct inline_search *search)
{
	struct inline_sites *sites = search->out;
	int err;

	/*
	 * An allocator has few functions. If there are more sites, they are inlined copies, which
	 * call malloc itself.
	 */
	if (sites->found[INLINE_POOL] > INLINE_LARGE_MAX) {
		err = functions_look(search);
		if (sites->large_count > INLINE_LARGE_MAX)
			sites->large_count = 0;
		return err;
	}
	for (size_t i = 0; i < sites->count; i++) {
		err = sites->sites[i].op == ABI_OP_POOL
			      ? inline_code_function(&search->code, sites->sites[i].vaddr)
			      : -ENOENT;

		if (err == -ENOMEM)
			return err;
		if (!err)
			function_look(search);
	}
	if (sites->large_count > INLINE_LARGE_MAX)
		sites->large_count = 0;
	return 0;
}

#define SITES_MAX 4096

void inline_give_up(struct inline_search *search, enum inline_kind kind, uint64_t vaddr,
		    const char *why)
{
	struct inline_sites *out = search->out;

	out->given_up[kind]++;
	out->given_up_count++;
	if (out->given_up_listed == ARRAY_SIZE(out->given_up_list))
		return;
	out->given_up_list[out->given_up_listed].vaddr = vaddr;
	out->given_up_list[out->given_up_listed++].why = why;
}

int inline_is_instruction(struct inline_search *search, uint64_t vaddr, int *err)
{
	int result = inline_code_function(&search->code, vaddr);

	if (result == -ENOMEM)
		*err = result;
	return !result && inline_code_index(&search->code, vaddr) < search->code.count;
}

int inline_site_add(struct inline_search *search, const struct plan_site *site)
{
	const struct inline_range *text = &search->code.image->text;
	struct inline_sites *out = search->out;
	uint64_t offset = site->vaddr - text->vaddr;
	struct inline_insn insn;

	if (out->count == SITES_MAX)
		return error_set(-ENOTSUP, "more than %u places look like an allocator's",
				 SITES_MAX);
	if (out->count == out->capacity) {
		size_t capacity = out->capacity ? 2 * out->capacity : 128;
		struct plan_site *sites = realloc(out->sites, capacity * sizeof(*sites));

		if (!sites)
			return -ENOMEM;
		out->sites = sites;
		out->capacity = capacity;
	}
	struct plan_site *added = &out->sites[out->count++];
	*added = *site;
	added->emulated = inline_code_window(&search->code, site->vaddr, &insn, 1) && insn.emulated;
	inline_disassemble(&search->code.decoder, text->code + offset, text->bytes - offset,
			   site->vaddr, added->instruction, sizeof(added->instruction));
	return 0;
}

static int pool_add(struct inline_search *search, const struct inline_match *match)
{
	struct plan_site site = {.vaddr = match->site, .op = ABI_OP_POOL};
	uint8_t reg = ABI_REG_COUNT;
	int64_t addend = 0;

	if (!inline_size_find(&search->code, match->site, &reg, &addend)) {
		search->out->exact++;
		snprintf(site.why, sizeof(site.why),
			 reg < ABI_REG_COUNT ? "pool in %s, size is %s%+lld"
					     : "pool in %s, size is%.0s %lld",
			 search->code.decoder.machine->register_name(match->reg),
			 search->code.decoder.machine->register_name(reg), (long long)addend);
	} else {
		snprintf(site.why, sizeof(site.why), "pool in %s, size rounded to its class",
			 search->code.decoder.machine->register_name(match->reg));
	}
	site.cookie = ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, match->reg, reg, ABI_REG_COUNT) |
		      ABI_COOKIE_ADDEND(addend);
	int err = inline_site_add(search, &site);
	if (err)
		return err;
	search->out->found[INLINE_POOL]++;
	for (size_t i = 0; match->refill && i < INLINE_REFILLS; i++) {
		if (i == search->refill_count)
			search->refills[search->refill_count++].vaddr = match->refill;
		if (search->refills[i].vaddr != match->refill)
			continue;
		search->refills[i].calls++;
		return 0;
	}
	if (search->own_count < INLINE_REFILLS)
		search->own[search->own_count++] = match->site;
	else
		inline_give_up(search, INLINE_REFILL, match->site, INLINE_NO_REFILL);
	return 0;
}

static int free_add(struct inline_search *search, const struct inline_match *match)
{
	struct plan_site site = {.vaddr = match->site, .op = ABI_OP_FREE};
	const struct inline_code *code = &search->code;
	size_t index = inline_code_index(code, match->site);

	/*
	 * The pool is the block's address without its low bits. Their number gives the size of
	 * pools.
	 */
	for (size_t i = index; i-- > 0 && index - i < 48 && !search->pool_bits;)
		if (code->insns[i].op == INLINE_MASK &&
		    (code->insns[i].value == -16384 || code->insns[i].value == -4096))
			search->pool_bits = code->insns[i].value == -16384 ? 14 : 12;
	if (match->through_pool)
		site.op = ABI_OP_POOL_FREE;
	site.cookie = ABI_COOKIE(site.op, EVENT_API_OBJ, match->reg, ABI_REG_COUNT, ABI_REG_COUNT);
	snprintf(site.why, sizeof(site.why), "%s in %s, a block goes back to its pool",
		 match->through_pool ? "pool" : "block",
		 search->code.decoder.machine->register_name(match->reg));
	search->out->found[INLINE_POOL_FREE]++;
	return inline_site_add(search, &site);
}

static int resize_add(struct inline_search *search, const struct inline_match *match)
{
	struct plan_site site = {.vaddr = match->site, .op = ABI_OP_RESIZE};
	uint8_t reg = match->reg;

	/* The block may be reloaded from the stack before it is copied. */
	if (reg == ABI_REG_COUNT)
		reg = inline_block_find(&search->code, match->site);
	if (reg == ABI_REG_COUNT) {
		inline_give_up(search, INLINE_RESIZE, match->site,
			       "the address of the block is unknown");
		return 0;
	}
	site.cookie =
		ABI_COOKIE(ABI_OP_RESIZE, EVENT_API_OBJ, reg, match->size_reg, ABI_REG_COUNT) |
		ABI_COOKIE_ADDEND(match->above);
	snprintf(site.why, sizeof(site.why), "block in %s may be resized in place, size in %s",
		 search->code.decoder.machine->register_name(reg),
		 search->code.decoder.machine->register_name(match->size_reg));
	search->out->found[INLINE_RESIZE]++;
	return inline_site_add(search, &site);
}

/* Three times the size, which was computed from the pool's size class. */
static int resizes_find(struct inline_search *search)
{
	const struct inline_image *image = search->code.image;
	struct machine_found found;
	int err = 0;

	for (size_t i = 0;
	     !err && (i = image->machine->look(MACHINE_TRIPLE, &image->text, i, NULL, &found));) {
		struct inline_match match;

		if (!inline_match_resize(&search->code, found.vaddr, &match))
			continue;
		int is_triple = inline_is_instruction(search, found.vaddr, &err);
		if (is_triple && !inline_match_classed(&search->code, found.vaddr))
			continue;
		if (is_triple && inline_is_instruction(search, match.site, &err))
			err = resize_add(search, &match);
		else
			inline_give_up(search, INLINE_RESIZE, match.site,
				       "decoding its function does not lead to it");
	}
	return err;
}

static int pools_find(struct inline_search *search)
{
	const struct inline_image *image = search->code.image;
	struct machine_found found;
	int err = 0;

	for (size_t i = 0;
	     !err && (i = image->machine->look(MACHINE_POOL, &image->text, i, NULL, &found));) {
		struct inline_match match;

		if (found.is_next ? !inline_match_pool(&search->code, found.vaddr, &match)
				  : !inline_match_free(&search->code, found.vaddr, &match))
			continue;
		if (!inline_is_instruction(search, found.vaddr, &err) ||
		    !inline_is_instruction(search, match.site, &err))
			inline_give_up(search, found.is_next ? INLINE_POOL : INLINE_POOL_FREE,
				       match.site, "decoding its function does not lead to it");
		else
			err = found.is_next ? pool_add(search, &match) : free_add(search, &match);
	}
	return err;
}

/* Finds the other sites of a file that has pymalloc. */
static int rest_find(struct inline_search *search)
{
	int err = inline_refills_add(search);

	return err
		?: inline_new_pools_add(search)
		?: inline_raws_find(search)
		?: resizes_find(search)
		?: inline_large_find(search);
}

int inline_sites_have_pymalloc(const struct inline_sites *sites)
{
	return sites->found[INLINE_POOL] && sites->found[INLINE_POOL_FREE];
}

int inline_sites_find(const struct inline_image *image, struct inline_sites *out)
{
	struct inline_sites sites = {0};
	struct inline_search search = {.out = &sites};
	int err = inline_code_open(&search.code, image);

	err = err ?: pools_find(&search) ?: inline_records_find(&search);
	if (!err && inline_sites_have_pymalloc(&sites))
		err = rest_find(&search);
	err = err ?: inline_objects_find(&search);
	inline_code_close(&search.code);
	if (err) {
		inline_sites_free(&sites);
		return err;
	}
	*out = sites;
	return 0;
}

void inline_sites_free(struct inline_sites *sites)
{
	free(sites->sites);
	free(sites->pools);
	memset(sites, 0, sizeof(*sites));
}

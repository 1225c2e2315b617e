/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidates are found as bytes, which costs little; each is then decoded where it stands, and what
 * has the right shape must be an instruction of its function.
 */
#include "pymalloc/sites.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "base/error.h"
#include "pymalloc/match.h"
#include "pymalloc/pool.h"
#include "pymalloc/search.h"
#include "x86/function_entry.h"
#include "x86/x86.h"

#define SITES_MAX 4096
#define NO_REFILL "what is called when the pool is empty is not known"
#define NEW_POOLS 64 /* places where a pool is taken into use, in all functions */

void inline_give_up(struct inline_search *search, enum inline_kind kind, uint64_t vaddr,
		    const char *why)
{
	struct inline_sites *out = search->out;

	out->given_up[kind]++;
	out->given_up_count++;
	if (out->given_up_listed == sizeof(out->given_up_list) / sizeof(out->given_up_list[0]))
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
	struct plan_site *added;
	uint64_t offset = site->vaddr - text->vaddr;
	struct inline_insn insn;

	if (out->count == SITES_MAX)
		return error_set(-ENOTSUP, "more than %u places look like an allocator's",
				 SITES_MAX);
	if (out->count == out->room) {
		size_t room = out->room ? 2 * out->room : 128;
		struct plan_site *sites = realloc(out->sites, room * sizeof(*sites));

		if (!sites)
			return -ENOMEM;
		out->sites = sites;
		out->room = room;
	}
	added = &out->sites[out->count++];
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
	int err;

	if (!inline_size_find(&search->code, match->site, &reg, &addend)) {
		search->out->exact++;
		snprintf(site.why, sizeof(site.why),
			 reg < ABI_REG_COUNT ? "pool in %s, size is %s%+lld"
					     : "pool in %s, size is%.0s %lld",
			 x86_register_name(match->reg), x86_register_name(reg), (long long)addend);
	} else {
		snprintf(site.why, sizeof(site.why), "pool in %s, size rounded to its class",
			 x86_register_name(match->reg));
	}
	site.cookie = ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, match->reg, reg, ABI_REG_COUNT) |
		      ABI_COOKIE_ADDEND(addend);
	err = inline_site_add(search, &site);
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
		inline_give_up(search, INLINE_REFILL, match->site, NO_REFILL);
	return 0;
}

static int free_add(struct inline_search *search, const struct inline_match *match)
{
	struct plan_site site = {.vaddr = match->site, .op = ABI_OP_FREE};
	const struct inline_code *code = &search->code;
	size_t index = inline_code_index(code, match->site);

	/*
	 * The pool is the block's address without its low bits: how many tells the size of pools.
	 */
	for (size_t i = index; i-- > 0 && index - i < 48 && !search->pool_bits;)
		if (code->insns[i].op == INLINE_MASK &&
		    (code->insns[i].value == -16384 || code->insns[i].value == -4096))
			search->pool_bits = code->insns[i].value == -16384 ? 14 : 12;
	if (match->through_pool)
		site.op = ABI_OP_POOL_FREE;
	site.cookie = ABI_COOKIE(site.op, EVENT_API_OBJ, match->reg, ABI_REG_COUNT, ABI_REG_COUNT);
	snprintf(site.why, sizeof(site.why), "%s in %s, a block goes back to its pool",
		 match->through_pool ? "pool" : "block", x86_register_name(match->reg));
	search->out->found[INLINE_POOL_FREE]++;
	return inline_site_add(search, &site);
}

static int resize_add(struct inline_search *search, const struct inline_match *match)
{
	struct plan_site site = {.vaddr = match->site, .op = ABI_OP_RESIZE};
	uint8_t reg = match->reg;

	/* What is copied if the block moves may come back from the stack. */
	if (reg == ABI_REG_COUNT)
		reg = inline_block_find(&search->code, match->site);
	if (reg == ABI_REG_COUNT) {
		inline_give_up(search, INLINE_RESIZE, match->site,
			       "where the block is, is not known");
		return 0;
	}
	site.cookie =
		ABI_COOKIE(ABI_OP_RESIZE, EVENT_API_OBJ, reg, match->size_reg, ABI_REG_COUNT) |
		ABI_COOKIE_ADDEND(match->above);
	snprintf(site.why, sizeof(site.why), "block in %s may stay in its place, size in %s",
		 x86_register_name(reg), x86_register_name(match->size_reg));
	search->out->found[INLINE_RESIZE]++;
	return inline_site_add(search, &site);
}

/* lea (r,r,2): three times the size, which was made of the pool's size class. */
static int resizes_find(struct inline_search *search)
{
	const struct inline_range *text = &search->code.image->text;
	int err = 0;

	for (size_t i = 0; i + 8 <= text->bytes && !err; i++) {
		const uint8_t *bytes = text->code + i;
		uint64_t vaddr = text->vaddr + i;
		struct inline_match match;
		int is_triple;

		if ((bytes[0] & 0xf8) != 0x48 || bytes[1] != 0x8d || (bytes[2] & 7) != 4 ||
		    bytes[3] >> 6 != 1 || !inline_match_resize(&search->code, vaddr, &match))
			continue;
		is_triple = inline_is_instruction(search, vaddr, &err);
		if (is_triple && !inline_match_classed(&search->code, vaddr))
			continue;
		if (is_triple && inline_is_instruction(search, match.site, &err))
			err = resize_add(search, &match);
		else
			inline_give_up(search, INLINE_RESIZE, match.site,
				       "decoding its function does not lead to it");
	}
	return err;
}

/* REX.W mov with an 8-bit displacement, or a comparison with memory: its displacement, else 0. */
static unsigned displacement(const uint8_t *bytes)
{
	unsigned mod = bytes[2] >> 6, base = bytes[2] & 7;

	if ((bytes[0] & 0xf8) != 0x48 || mod != 1 ||
	    (bytes[1] != 0x8b && bytes[1] != 0x39 && bytes[1] != 0x3b))
		return 0;
	return base == 4 ? bytes[4] : bytes[3];
}

/*
 * Does a store of that register through another follow soon? Most loads at 8 are of something else.
 */
static int store_follows(const uint8_t *bytes, size_t count, unsigned reg)
{
	for (size_t i = 0; i + 3 <= count; i++)
		if ((bytes[i] & 0xf8) == 0x48 && bytes[i + 1] == 0x89 &&
		    (bytes[i + 2] >> 3 & 7) == (reg & 7) && (bytes[i] >> 2 & 1) == reg >> 3 &&
		    bytes[i + 2] >> 6 < 2)
			return 1;
	return 0;
}

static int pools_find(struct inline_search *search)
{
	const struct inline_range *text = &search->code.image->text;
	int err = 0;

	for (size_t i = 0; i + 8 <= text->bytes && !err; i++) {
		const uint8_t *bytes = text->code + i;
		unsigned at = displacement(bytes),
			 reg = (bytes[0] >> 2 & 1) << 3 | (bytes[2] >> 3 & 7);
		size_t left = text->bytes - i;
		struct inline_match match;
		int is_pool = at == 16 && inline_match_pool(&search->code, text->vaddr + i, &match);

		if (!is_pool && (at != 8 || bytes[1] != 0x8b ||
				 !store_follows(bytes, left < 40 ? left : 40, reg) ||
				 !inline_match_free(&search->code, text->vaddr + i, &match)))
			continue;
		if (!inline_is_instruction(search, text->vaddr + i, &err) ||
		    !inline_is_instruction(search, match.site, &err))
			inline_give_up(search, is_pool ? INLINE_POOL : INLINE_POOL_FREE, match.site,
				       "decoding its function does not lead to it");
		else
			err = is_pool ? pool_add(search, &match) : free_add(search, &match);
	}
	return err;
}

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
		int32_t distance;

		if (at >= range->bytes)
			continue;
		if (range->bytes - at >= 4 && !memcmp(range->code + at, "\xf3\x0f\x1e\xfa", 4))
			at += 4;
		if (range->bytes - at >= 1 && range->code[at] == 0xf2)
			at++;
		if (range->bytes - at < 6 || range->code[at] != 0xff || range->code[at + 1] != 0x25)
			return 0;
		memcpy(&distance, range->code + at + 2, sizeof(distance));
		return range->vaddr + at + 6 + (uint64_t)(int64_t)distance;
	}
	return 0;
}

static const struct inline_import *stub_at(const struct inline_image *image, uint64_t vaddr)
{
	return import_of(image, inline_stub_slot(image, vaddr));
}

static uint64_t arguments_cookie(enum abi_op op, enum event_api api)
{
	switch (op) {
	case ABI_OP_CALLOC:
	case ABI_OP_REALLOC:
		return ABI_COOKIE(op, api, ABI_REG_DI, ABI_REG_SI, ABI_REG_COUNT);
	default:
		return ABI_COOKIE(op, api, ABI_REG_DI, ABI_REG_COUNT, ABI_REG_COUNT);
	}
}

/* Is it the site of another request? One instruction cannot end one and begin the next. */
static int is_raw_call(struct inline_search *search, uint64_t vaddr)
{
	struct inline_insn insn;

	return inline_code_window(&search->code, vaddr, &insn, 1) &&
	       (insn.op == INLINE_CALL || insn.op == INLINE_JUMP) &&
	       stub_at(search->code.image, insn.target);
}

/* A call of a function of libc, or a jump to it that takes its caller's place. */
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
			match.reg = ABI_REG_AX;
		}
		if (match.counted)
			api = EVENT_API_LARGE;
	}
	site.cookie = arguments_cookie(op, api);
	snprintf(site.why, sizeof(site.why), "%s libc%s", is_call ? "call into" : "jump to",
		 api == EVENT_API_LARGE ? ", for pymalloc" : "");
	err = inline_site_add(search, &site);
	if (err || !match.site)
		return err;
	site = (struct plan_site){.vaddr = match.site, .op = ABI_OP_END};
	site.cookie = ABI_COOKIE(ABI_OP_END, api, match.reg, ABI_REG_COUNT, ABI_REG_COUNT);
	snprintf(site.why, sizeof(site.why), "after the call, block in %s",
		 x86_register_name(match.reg));
	return inline_site_add(search, &site);
}

/* Calls and jumps into libc: through stubs, or through the slots themselves. */
static int raws_find(struct inline_search *search)
{
	const struct inline_image *image = search->code.image;
	const struct inline_range *text = &image->text;
	int err = 0;

	for (size_t i = 0; i + 6 <= text->bytes && !err; i++) {
		const uint8_t *bytes = text->code + i;
		int through_slot = bytes[0] == 0xff && (bytes[1] == 0x15 || bytes[1] == 0x25);
		size_t size = through_slot ? 6 : 5;
		const struct inline_import *import;
		int32_t distance;

		if (!through_slot && bytes[0] != 0xe8 && bytes[0] != 0xe9)
			continue;
		memcpy(&distance, bytes + size - 4, sizeof(distance));
		uint64_t target = text->vaddr + i + size + (uint64_t)(int64_t)distance;

		import = through_slot ? import_of(image, target) : stub_at(image, target);
		if (!import)
			continue;
		if (inline_is_instruction(search, text->vaddr + i, &err))
			err = raw_add(search, text->vaddr + i, size, import->op,
				      bytes[0] == 0xe8 || (through_slot && bytes[1] == 0x15));
		else
			inline_give_up(
				search, import->op == ABI_OP_FREE ? INLINE_RAW_FREE : INLINE_RAW,
				text->vaddr + i, "decoding its function does not lead to it");
	}
	return err;
}

/* The function that makes a pool, as every site with an empty one calls it. */
static int refills_add(struct inline_search *search)
{
	const struct inline_range *text = &search->code.image->text;
	int err = 0;

	for (size_t i = 0; i < search->refill_count && !err; i++) {
		struct plan_wish wish = {"refill",
					 ABI_OP_REFILL,
					 EVENT_API_OBJ,
					 {ABI_REG_COUNT, ABI_REG_COUNT, ABI_REG_COUNT},
					 1};
		uint64_t vaddr = search->refills[i].vaddr, offset = vaddr - text->vaddr;
		struct plan_site site = {0};

		if (offset >= text->bytes || !inline_code_is_start(&search->code, vaddr)) {
			inline_give_up(search, INLINE_REFILL, vaddr,
				       "called when a pool is empty, but no function of this file");
			continue;
		}
		err = function_entry_site(&wish, text->code + offset,
					  text->bytes - offset < FUNCTION_MAX_CODE
						  ? text->bytes - offset
						  : FUNCTION_MAX_CODE,
					  vaddr, &site);
		if (err)
			return err;
		site.cookie |= ABI_COOKIE_ADDEND(search->pool_bits ? search->pool_bits : 14);
		snprintf(site.why, sizeof(site.why), "makes a pool, called from %u sites",
			 search->refills[i].calls);
		search->out->found[INLINE_REFILL]++;
		err = inline_site_add(search, &site);
	}
	return err;
}

static void new_pool_fill(struct inline_search *search, const struct inline_new_pool *found,
			  struct plan_site *site)
{
	const struct inline_range *text = &search->code.image->text;
	uint64_t offset = found->site - text->vaddr;
	struct inline_insn insn;

	*site = (struct plan_site){
		.vaddr = found->site,
		.op = ABI_OP_NEW_POOL,
		.cookie = ABI_COOKIE(ABI_OP_NEW_POOL, EVENT_API_POOL, found->reg, ABI_REG_COUNT,
				     ABI_REG_COUNT),
		.emulated =
			inline_code_window(&search->code, found->site, &insn, 1) && insn.emulated,
	};
	snprintf(site->why, sizeof(site->why), "a pool is taken into use, in %s",
		 x86_register_name(found->reg));
	inline_disassemble(&search->code.decoder, text->code + offset, text->bytes - offset,
			   found->site, site->instruction, sizeof(site->instruction));
}

static int is_new_pool(const struct inline_new_pool *found, size_t count, uint64_t site)
{
	for (size_t i = 0; i < count; i++)
		if (found[i].site == site)
			return 1;
	return 0;
}

/*
 * Where copies of the allocator make pools themselves there is no function to return from: the
 * block of a request is the first one of the pool that is taken into use.
 */
static int first_add(struct inline_search *search, const struct inline_new_pool *found)
{
	struct plan_site site = {.vaddr = found->site, .op = ABI_OP_FIRST_BLOCK};

	if (!found->fresh) {
		inline_give_up(search, INLINE_FIRST, found->site,
			       "which block a new pool gives is not known");
		return 0;
	}
	site.cookie = ABI_COOKIE(ABI_OP_FIRST_BLOCK, EVENT_API_OBJ, found->reg, ABI_REG_COUNT,
				 ABI_REG_COUNT);
	snprintf(site.why, sizeof(site.why), "pool in %s, gives its first block",
		 x86_register_name(found->reg));
	search->out->found[INLINE_FIRST]++;
	return inline_site_add(search, &site);
}

/*
 * From the site on, where a copy finds its pool empty, to where it takes another into use it is all
 * one request.
 */
static void own_mark(struct inline_sites *out, uint64_t vaddr)
{
	for (size_t i = 0; i < out->count; i++)
		if (out->sites[i].vaddr == vaddr && out->sites[i].op == ABI_OP_POOL)
			out->sites[i].cookie = (out->sites[i].cookie & ~(0xffull << 32)) |
					       (uint64_t)ABI_REG_SP << 32;
}

/*
 * In the functions that make pools, and where no call of one was found, in the copy of the
 * allocator itself.
 */
static int new_pools_add(struct inline_search *search)
{
	struct inline_sites *out = search->out;
	struct inline_new_pool found[NEW_POOLS];
	size_t count = 0, own = 0;
	int err = 0;

	out->pools_complete = 1;
	for (size_t i = 0; i < search->refill_count + search->own_count; i++) {
		int is_own = i >= search->refill_count;
		uint64_t function =
			is_own ? search->own[i - search->refill_count] : search->refills[i].vaddr;
		int got = inline_new_pools(&search->code, function, found + count,
					   NEW_POOLS - count, &out->pools_complete);

		if (got < 0)
			return got;
		if (!got && is_own)
			inline_give_up(search, INLINE_REFILL, function, NO_REFILL);
		if (got && is_own)
			own_mark(out, function);
		out->pools_complete &= got > 0;
		/* Two copies may stand in one function. */
		if (got && is_new_pool(found, count, found[count].site))
			continue;
		if (!is_own)
			own = count + (size_t)got;
		count += (size_t)got;
	}
	out->pools = count ? calloc(count, sizeof(*out->pools)) : NULL;
	if (count && !out->pools)
		return -ENOMEM;
	for (; out->pool_count < count && !err; out->pool_count++) {
		new_pool_fill(search, &found[out->pool_count], &out->pools[out->pool_count]);
		err = out->pool_count < own ? 0 : first_add(search, &found[out->pool_count]);
	}
	return err;
}

/* What goes with pools that give blocks. */
static int rest_find(struct inline_search *search)
{
	int err = refills_add(search);

	if (!err)
		err = new_pools_add(search);
	if (!err)
		err = raws_find(search);
	if (!err)
		err = resizes_find(search);
	return err ? err : inline_large_find(search);
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

	if (!err)
		err = pools_find(&search);
	if (!err && inline_sites_have_pymalloc(&sites))
		err = rest_find(&search);
	if (!err)
		err = inline_objects_find(&search);
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

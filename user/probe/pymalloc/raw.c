/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where code calls malloc, calloc, realloc and free of libc: through the stubs of the procedure
 * linkage table, or through the slots themselves.
 */
#include <stdio.h>

#include "abi/events.h"
#include "object/insn/machine.h"
#include "probe/pymalloc/match.h"
#include "probe/pymalloc/search.h"

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

int inline_raws_find(struct inline_search *search)
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

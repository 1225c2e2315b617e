/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds without link-time optimisation call _Py_NewReference from about 70 places, and most
 * objects that pass there are new str and int objects. Probes at only those calls that may be of
 * another object save a trap for each of these. It must be all calls: if the file refers to the
 * function in any other way, the function's own site stays.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/events.h"
#include "abi/target.h"
#include "machine/machine.h"
#include "pymalloc/search.h"

#define CALLS_MAX 512

struct calls {
	uint64_t of[CALLS_MAX];
	size_t count;
};

/*
 * Is it a slot through which the file calls the function? If the exported function only jumps to
 * the body, such calls pass through the jump.
 */
static int is_slot(const struct inline_search *search, uint64_t vaddr)
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
		int direct;

		memcpy(&distance, code, sizeof(distance));
		target = vaddr + 4 + (uint64_t)(int64_t)distance;
		direct = target == search->new_reference ||
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
			return err ? err : -ENOENT;
		calls->of[calls->count++] = vaddr;
	}
	return 0;
}

/* Is the site in the function itself? */
static int is_own(const struct inline_search *search, const struct plan_site *site)
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
static int is_seen_behind(const struct inline_search *search)
{
	for (size_t i = 0; i < search->out->count; i++)
		if (is_own(search, &search->out->sites[i]))
			return search->new_reference != search->code.image->new_reference;
	return 0;
}

int inline_object_calls(struct inline_search *search)
{
	struct inline_sites *sites = search->out;
	struct plan_site site = {.op = ABI_OP_REUSE};
	struct calls calls = {0};
	int err;

	if (!search->new_reference)
		return 0;
	sites->object_sites = is_seen_behind(search);
	/* References are recognised on x86-64. */
	if (search->code.image->machine != &machine_x86)
		return 0;
	err = calls_find(search, &calls);
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/pages.h"

#include <errno.h>
#include <string.h>

#include "abi/sample.h"
#include "util/array.h"

/*
 * What a fault maps of a file besides its page lies in the 64 KiB around it, from a multiple of
 * that on (do_fault_around(), and fault_around_bytes as it is by default). Anonymous pages come in
 * as many at once if the machine's huge pages have that size (mTHP).
 */
#define AROUND_PAGES    16u
#define KERNEL_PAGE_MAX (64u << 10)

/* Within a walk: found now, and not judged yet. */
#define PAGE_NEW 7u

void pages_free(struct pages *pages)
{
	ARRAY_RELEASE(pages->numbers.account, pages, areas, capacity);
	pages->count = 0;
	id_map_free(&pages->numbers);
}

int pages_inherit(struct pages *out, const struct pages *from)
{
	struct account *account = out->numbers.account;
	int err = ARRAY_COPY(account, out, from, areas, count, capacity)
			  ?: id_map_copy(&out->numbers, &from->numbers);

	if (err)
		return err;
	out->count = from->count;
	out->before_bytes = from->before_bytes;
	out->walked = from->walked;
	out->fault_bytes = from->fault_bytes;
	out->walked_ns = from->walked_ns;
	for (size_t i = 0; i < out->count; i++)
		for (size_t page = 0; page < PAGES_OF_AREA; page++)
			if (out->areas[i].pages[page] & PAGE_STATE)
				out->areas[i].pages[page] |= PAGE_INHERITED;
	return 0;
}

static unsigned int state_of(const struct page_area *area, size_t page)
{
	return area->pages[page] & PAGE_STATE;
}

static void state_set(struct page_area *area, size_t page, unsigned int state)
{
	area->pages[page] = (uint8_t)((area->pages[page] & ~PAGE_STATE) | state);
}

static int area_get(struct pages *pages, uint64_t number, struct page_area **out)
{
	uint32_t index = id_map_find(&pages->numbers, number);

	if (index == ID_MAP_NONE) {
		int err = id_map_append(&pages->numbers, number, &pages->areas, &pages->capacity,
					pages->count, sizeof(*pages->areas));

		if (err)
			return err;
		index = (uint32_t)pages->count++;
		memset(&pages->areas[index], 0, sizeof(*pages->areas));
		pages->areas[index].number = number;
	}
	*out = &pages->areas[index];
	return 0;
}

int pages_fault(struct pages *pages, const struct event_fault *event, uint32_t stack)
{
	size_t first = event->address % EVENT_PAGES_AREA / EVENT_PAGES_UNIT;
	size_t count = event->bytes / EVENT_PAGES_UNIT;
	struct page_area *area;
	int err;

	if (!count || event->bytes > KERNEL_PAGE_MAX || event->bytes % EVENT_PAGES_UNIT ||
	    event->address % event->bytes || first + count > PAGES_OF_AREA)
		return -EBADMSG;
	err = area_get(pages, event->address / EVENT_PAGES_AREA, &area);
	if (err)
		return err;
	pages->fault_bytes = event->bytes;
	for (size_t page = first; page < first + count; page++) {
		uint8_t again = state_of(area, page) ? PAGE_AGAIN : 0;

		area->pages[page] =
			PAGE_FAULTED | again | (area->pages[page] & (PAGE_FILE | PAGE_SEEN));
		area->stacks[page] = stack;
	}
	return 0;
}

/* --- walks ------------------------------------------------------------------------------------ */

static void walk_begin(struct pages *pages)
{
	for (size_t i = 0; i < pages->count; i++)
		for (size_t page = 0; page < PAGES_OF_AREA; page++)
			pages->areas[i].pages[page] &= (uint8_t)~PAGE_SEEN;
	pages->walking = 1;
}

/* Calls each with the parts of the runs by area. 0, or what it returned. */
static int parts_each(struct pages *pages, const struct event_pages *event,
		      int (*each)(struct pages *pages, const struct event_pages *event,
				  const struct event_page_run *part))
{
	int err = 0;

	for (uint32_t i = 0; i < event->count; i++) {
		struct event_page_run part = event->runs[i];

		for (uint32_t left = part.count; left && !err; left -= part.count) {
			size_t first = part.address % EVENT_PAGES_AREA / EVENT_PAGES_UNIT;

			part.count = left < PAGES_OF_AREA - first ? left : PAGES_OF_AREA - first;
			err = each(pages, event, &part);
			part.address += (uint64_t)part.count * EVENT_PAGES_UNIT;
		}
	}
	return err;
}

static int part_mark(struct pages *pages, const struct event_pages *event,
		     const struct event_page_run *part)
{
	size_t first = part->address % EVENT_PAGES_AREA / EVENT_PAGES_UNIT;
	struct page_area *area;
	int err = area_get(pages, part->address / EVENT_PAGES_AREA, &area);

	(void)event;
	if (err)
		return err;
	for (size_t page = first; page < first + part->count; page++) {
		if (!state_of(area, page))
			area->pages[page] = PAGE_NEW;
		area->pages[page] = (uint8_t)((area->pages[page] & ~PAGE_FILE) | PAGE_SEEN |
					      (part->is_file ? PAGE_FILE : 0));
	}
	return 0;
}

static bool is_full(const struct page_area *area, size_t first, size_t count)
{
	for (size_t page = first; page < first + count; page++)
		if (!(area->pages[page] & PAGE_SEEN))
			return 0;
	return 1;
}

/* The page of [first, first + count) nearest to this one that a fault is known of; or count. */
static size_t donor_find(const struct page_area *area, size_t page, size_t first, size_t count)
{
	const size_t end = first + count;

	for (size_t distance = 1; distance < count; distance++) {
		if (page >= first + distance && state_of(area, page - distance) == PAGE_FAULTED &&
		    area->pages[page - distance] & PAGE_SEEN)
			return page - distance;
		if (page + distance < end && state_of(area, page + distance) == PAGE_FAULTED &&
		    area->pages[page + distance] & PAGE_SEEN)
			return page + distance;
	}
	return PAGES_OF_AREA;
}

static bool page_take(struct page_area *area, size_t page, size_t first, size_t count)
{
	size_t donor = donor_find(area, page, first, count);

	if (donor == PAGES_OF_AREA)
		return 0;
	state_set(area, page, PAGE_BROUGHT);
	area->stacks[page] = area->stacks[donor];
	if (count == PAGES_OF_AREA) {
		area->pages[page] |= PAGE_HUGE;
		area->pages[donor] |= PAGE_HUGE;
	}
	return 1;
}

/*
 * Says whose a page is that no fault is known of. The next walk looks once more: the kernel reports
 * a fault after it has mapped the pages.
 */
static void page_judge(struct page_area *area, size_t page, bool huge, bool sampled)
{
	size_t window = page - page % AROUND_PAGES;
	/* In a sample its neighbours may have had faults of their own. */
	bool around =
		area->pages[page] & PAGE_FILE || (!sampled && is_full(area, window, AROUND_PAGES));

	if (huge && page_take(area, page, 0, PAGES_OF_AREA))
		return;
	if (!around || !page_take(area, page, window, AROUND_PAGES))
		state_set(area, page,
			  state_of(area, page) == PAGE_NEW ? PAGE_UNREPORTED : PAGE_UNFAULTED);
}

static int part_judge(struct pages *pages, const struct event_pages *event,
		      const struct event_page_run *part)
{
	size_t first = part->address % EVENT_PAGES_AREA / EVENT_PAGES_UNIT;
	uint32_t index = id_map_find(&pages->numbers, part->address / EVENT_PAGES_AREA);
	struct page_area *area;

	if (index == ID_MAP_NONE) /* there was no memory for it, nor for those that follow */
		return -ENOENT;
	area = &pages->areas[index];
	bool huge = event->flags & EVENT_PAGES_HUGE && is_full(area, 0, PAGES_OF_AREA);

	for (size_t page = first; page < first + part->count; page++) {
		if (state_of(area, page) < PAGE_UNREPORTED)
			continue;
		if (pages->walked) {
			page_judge(area, page, huge, pages->sampled);
			continue;
		}
		state_set(area, page, PAGE_BEFORE);
		pages->before_bytes += EVENT_PAGES_UNIT;
	}
	return 0;
}

/* What the walk has not shown has been released. */
static void walk_end(struct pages *pages)
{
	for (size_t i = 0; i < pages->count; i++)
		for (size_t page = 0; page < PAGES_OF_AREA; page++)
			if (!(pages->areas[i].pages[page] & PAGE_SEEN))
				pages->areas[i].pages[page] = PAGE_ABSENT;
	pages->walking = 0;
	pages->walked = 1;
}

static bool is_valid(const struct event_pages *event)
{
	uint64_t end = 0;

	if (event->header.size != sizeof(*event) + event->count * sizeof(event->runs[0]) ||
	    event->count > EVENT_PAGES_MAX)
		return 0;
	for (uint32_t i = 0; i < event->count; i++) {
		const struct event_page_run *run = &event->runs[i];
		uint64_t bytes = (uint64_t)run->count * EVENT_PAGES_UNIT;

		if (!run->count || run->address % EVENT_PAGES_UNIT || run->address < end ||
		    run->address + bytes < run->address)
			return 0;
		end = run->address + bytes;
	}
	return 1;
}

int pages_walk(struct pages *pages, const struct event_pages *event, bool sampled)
{
	int err;

	if (!is_valid(event))
		return -EBADMSG;
	if (event->flags & EVENT_PAGES_FIRST)
		walk_begin(pages);
	/* One that was abandoned. */
	if (!pages->walking)
		return 0;
	pages->sampled = sampled;
	err = parts_each(pages, event, part_mark);
	/* Marks that are not judged must not stay. */
	parts_each(pages, event, part_judge);
	if (err) {
		pages->walking = 0;
		return err;
	}
	if (event->flags & EVENT_PAGES_LAST) {
		pages->unread_bytes = event->unread_bytes;
		pages->walked_ns = event->header.time_ns;
		walk_end(pages);
	}
	return 0;
}

void pages_thin(struct pages *pages, uint64_t share)
{
	for (size_t i = 0; i < pages->count; i++) {
		struct page_area *area = &pages->areas[i];

		for (size_t page = 0; page < PAGES_OF_AREA; page++) {
			uint64_t address =
				area->number * EVENT_PAGES_AREA + page * EVENT_PAGES_UNIT;

			if (state_of(area, page) == PAGE_BROUGHT)
				state_set(area, page, PAGE_UNREPORTED);
			else if (state_of(area, page) == PAGE_FAULTED &&
				 !sample_takes_page(address, pages->fault_bytes, share))
				state_set(area, page, PAGE_UNFAULTED);
		}
	}
}

bool pages_next(const struct pages *pages, size_t *cursor, struct page_run *out)
{
	const size_t end = pages->count * PAGES_OF_AREA;
	const struct page_area *area;
	size_t page;

	for (out->count = 0; *cursor < end; ++*cursor) {
		area = &pages->areas[*cursor / PAGES_OF_AREA];
		page = *cursor % PAGES_OF_AREA;
		uint8_t bits = area->pages[page] & (uint8_t)~PAGE_SEEN;
		uint32_t stack = area->stacks[page];

		if (out->count && (bits != out->bits || stack != out->stack))
			break;
		if (!(bits & PAGE_STATE))
			continue;
		out->bits = bits;
		out->stack = stack;
		out->count++;
	}
	return out->count != 0;
}

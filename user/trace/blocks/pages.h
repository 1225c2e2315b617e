/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resident pages of a process, each with the stack whose page fault has made it resident.
 * Faults tell when a page becomes resident; walks of pagemap tell which pages are, and so which
 * have been released since, and which have come without a fault of their own:
 *
 * - with the fault of another page: the kernel maps pages of a file around the one that was touched
 *   (fault-around), and a huge page as a whole. They belong to that page's stack.
 * - without any (MAP_POPULATE, mlock(), another process's writes).
 *
 * Pages are of EVENT_PAGES_UNIT bytes, kept by areas of EVENT_PAGES_AREA.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/events.h"
#include "util/id_map.h"

#define PAGES_OF_AREA (EVENT_PAGES_AREA / EVENT_PAGES_UNIT)

enum page_state {
	PAGE_ABSENT = 0,
	PAGE_BEFORE,  /* it was resident when the first walk was made */
	PAGE_FAULTED, /* by the stack's fault */
	PAGE_BROUGHT, /* by the stack's fault of another page */
	/* Without a fault, and so without a stack: */
	PAGE_UNFAULTED,
	PAGE_UNREPORTED, /* as the last walk says; the fault may have been reported after it only */
};

/* Bits of a page besides its state. */
#define PAGE_STATE     0x07u
#define PAGE_INHERITED 0x08u /* a fork has copied it */
#define PAGE_FILE      0x10u /* of a file, or shared memory: as the last walk says */
#define PAGE_HUGE      0x20u /* its huge page was brought as a whole */
#define PAGE_AGAIN     0x40u /* it was known as resident when the stack's fault was handled */
#define PAGE_SEEN      0x80u /* by the walk in progress */

struct page_area {
	uint64_t number; /* its address / EVENT_PAGES_AREA */
	uint32_t stacks[PAGES_OF_AREA];
	uint8_t pages[PAGES_OF_AREA]; /* PAGE_* */
};

/* Zero-initialise except for the map's account and seed; pages_free() releases. */
struct pages {
	struct id_map numbers; /* -> index in areas */
	struct page_area *areas;
	size_t count, capacity;
	uint64_t before_bytes; /* resident at the first walk */
	uint64_t unread_bytes; /* as the last walk says */
	uint64_t walked_ns;    /* when that was; 0: there was none */
	uint64_t fault_bytes;  /* of a page of the kernel's; 0: there was no fault */
	unsigned int walking : 1;
	unsigned int walked : 1;  /* a walk has been completed */
	unsigned int sampled : 1; /* of the walk in progress: only some of the faults are known */
};

void pages_free(struct pages *pages);
/* Copies them for a forked child. out is empty and may have an account. 0, -ENOMEM, -EDQUOT. */
int pages_inherit(struct pages *out, const struct pages *from);
/* The fault of a page of the kernel's was handled. 0; -EBADMSG; -ENOMEM, -EDQUOT. */
int pages_fault(struct pages *pages, const struct event_fault *event, uint32_t stack);
/*
 * A piece of a walk. sampled: only some of the faults are known. 0; -EBADMSG; -ENOMEM, -EDQUOT: the
 * walk is abandoned, and pages keep their state.
 */
int pages_walk(struct pages *pages, const struct event_pages *event, bool sampled);

/*
 * Keeps the faults that are in a sample, as sample_takes_page(). What they have brought is judged
 * anew by the next walk.
 */
void pages_thin(struct pages *pages, uint64_t share);

/* Pages in a row, of one stack and with the same bits. */
struct page_run {
	uint32_t stack;
	uint32_t count;
	uint8_t bits;
};
/* The next run of resident pages; *cursor is 0 at first. false: there is none. */
bool pages_next(const struct pages *pages, size_t *cursor, struct page_run *out);

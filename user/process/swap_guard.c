/* SPDX-License-Identifier: Apache-2.0 */
#include "process/swap_guard.h"

#include <errno.h>
#include <unistd.h>

#include "process/pagemap.h"

#define ENTRIES 512u /* pages that are asked about at once */

int swap_guard_open(struct swap_guard *guard, pid_t pid)
{
	int fd = pagemap_open(pid);

	if (fd < 0)
		return fd;
	*guard = (struct swap_guard){.pagemap = fd};
	return 0;
}

void swap_guard_close(struct swap_guard *guard)
{
	address_set_free(&guard->pages);
	close(guard->pagemap);
}

static int page_count(struct swap_guard *guard, uint64_t page)
{
	int err;

	if (address_set_has(&guard->pages, page))
		return 0;
	err = address_set_add(&guard->pages, page);
	/* Beyond the limit of the set a page may be counted twice. */
	guard->bytes += !err || err == -E2BIG ? PAGEMAP_PAGE : 0;
	return err == -E2BIG ? 0 : err;
}

int swap_guard_check(struct swap_guard *guard, uint64_t address, uint64_t bytes)
{
	uint64_t page = address & ~(uint64_t)(PAGEMAP_PAGE - 1), entries[ENTRIES];
	uint64_t last = address + (bytes ? bytes - 1 : 0);
	int swapped = 0, err = 0;

	if (last < address)
		return 0;
	while (page <= last && !err) {
		uint64_t left = (last - page) / PAGEMAP_PAGE + 1;
		ssize_t got = pagemap_read(guard->pagemap, page, entries,
					   left < ENTRIES ? left : ENTRIES);

		if (got <= 0)
			return got < 0 ? (int)got : -ESRCH;
		for (ssize_t i = 0; i < got && !err; i++, page += PAGEMAP_PAGE)
			if (entries[i] & PAGEMAP_SWAPPED) {
				swapped = 1;
				err = page_count(guard, page);
			}
	}
	return err ?: swapped ? -EFAULT : 0;
}

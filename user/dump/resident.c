/* SPDX-License-Identifier: Apache-2.0 */
#include "dump/resident.h"

#include <string.h>

#include "process/pagemap.h"

void resident_read(int fd, uint64_t address, uint32_t pages, uint8_t what[RESIDENT_PAGES])
{
	uint64_t entries[RESIDENT_PAGES];

	memset(what, RESIDENT_MEMORY, pages);
	if (fd < 0 || pagemap_read(fd, address, entries, pages) != (ssize_t)pages)
		return;
	for (uint32_t i = 0; i < pages; i++)
		what[i] = entries[i] & PAGEMAP_PRESENT   ? RESIDENT_MEMORY
			  : entries[i] & PAGEMAP_SWAPPED ? RESIDENT_SWAP
							 : RESIDENT_NOT;
}

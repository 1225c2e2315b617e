/* SPDX-License-Identifier: Apache-2.0 */
#include "dump/resident.h"

#include <string.h>

#include "process/pagemap.h"

void resident_read(int fd, uint64_t address, uint32_t pages, uint8_t exists[RESIDENT_PAGES])
{
	uint64_t entries[RESIDENT_PAGES];

	memset(exists, 1, pages);
	if (fd < 0 || pagemap_read(fd, address, entries, pages) != (ssize_t)pages)
		return;
	for (uint32_t i = 0; i < pages; i++)
		exists[i] = (entries[i] & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED)) != 0;
}

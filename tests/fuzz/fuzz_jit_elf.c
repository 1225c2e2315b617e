/* SPDX-License-Identifier: Apache-2.0 */
/* An ELF image that a JIT has registered. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "object/perfmap/jit_elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int entry_take(void *context, uint64_t start, uint64_t size, const char *name,
		      size_t name_bytes)
{
	if (!name_bytes || strnlen(name, name_bytes) != name_bytes)
		abort();
	return perfmap_table_add(context, start, size, name, name_bytes,
				 &(struct perfmap_entry){0});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct perfmap_table *table;
	void *image = malloc(size ? size : 1);

	if (!image || perfmap_table_new(&table))
		abort();
	memcpy(image, data, size);
	jit_elf_read(image, size, entry_take, table);
	perfmap_table_free(table);
	free(image);
	return 0;
}

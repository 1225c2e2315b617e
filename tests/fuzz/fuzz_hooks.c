/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for the debugging hooks in arbitrary bytes: the first two give the start of the
 * function, the rest is the file.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "probe/pymalloc/hooks.h"

#define VADDR 0x400000u

struct image {
	const uint8_t *data;
	size_t bytes;
};

static int image_read(void *context, uint64_t vaddr, void *out, size_t bytes)
{
	const struct image *image = context;

	if (vaddr < VADDR || vaddr - VADDR >= image->bytes)
		return 0;
	if (bytes > image->bytes - (vaddr - VADDR))
		bytes = image->bytes - (vaddr - VADDR);
	memcpy(out, image->data + (vaddr - VADDR), bytes);
	return (int)bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct image image = {.data = data + 2, .bytes = bytes - 2};
	struct hooks hooks;

	if (bytes < 3)
		return 0;
	hooks_find(image_read, &image, VADDR + data[0], data[1], &hooks);
	return 0;
}

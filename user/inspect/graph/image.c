/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/graph/image.h"

#include <string.h>

#include "util/sorted.h"

const struct image_segment *image_segment(const struct image *image, uint64_t address)
{
	size_t at = SORTED_ABOVE(image->segments, image->count, end, address);

	if (at == image->count || image->segments[at].start > address)
		return NULL;
	return &image->segments[at];
}

const uint8_t *image_at(const struct image *image, uint64_t address, uint64_t bytes)
{
	const struct image_segment *segment = image_segment(image, address);

	if (!segment || bytes > segment->end - address)
		return NULL;
	return segment->bytes + (address - segment->start);
}

uint64_t image_u64(const struct image *image, uint64_t address)
{
	const uint8_t *at = image_at(image, address, 8);

	return at ? word_at(at) : 0;
}

void image_text(const struct image *image, uint64_t address, char *out, size_t bytes)
{
	const struct image_segment *segment = image_segment(image, address);
	size_t length, most = bytes - 1;

	out[0] = 0;
	if (!segment)
		return;
	if (most > segment->end - address)
		most = segment->end - address;
	length = strnlen((const char *)segment->bytes + (address - segment->start), most);
	memcpy(out, segment->bytes + (address - segment->start), length);
	out[length] = 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/dump/collector_look.h"

static bool live_read(void *context, uint64_t address, void *out, size_t bytes)
{
	return !space_read(context, address, out, bytes);
}

struct collector_source collector_source_live(struct space *space, const struct image *image)
{
	struct collector_source source = collector_source_of(image);

	source.read = live_read;
	source.context = space;
	return source;
}

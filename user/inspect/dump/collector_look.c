/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/dump/collector_look.h"

struct collector_source collector_source_live(struct space *space, const struct image *image)
{
	return collector_source_space(space, &image->offsets, image->runtime, image->interpreters);
}

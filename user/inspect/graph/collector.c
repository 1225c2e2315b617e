/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/graph/collector.h"

#include <string.h>

#define MAX_LIST (1ull << 32) /* objects of one list */

static bool image_read(void *context, uint64_t address, void *out, size_t bytes)
{
	const uint8_t *at = image_at(context, address, bytes);

	if (at)
		memcpy(out, at, bytes);
	return at != NULL;
}

struct collector_source collector_source_of(const struct image *image)
{
	return (struct collector_source){.read = image_read,
					 .context = (void *)image,
					 .offsets = &image->offsets,
					 .runtime = image->runtime,
					 .interpreters = image->interpreters};
}

static int list_each(const struct image *image, uint64_t head, collector_fn visit, void *context)
{
	const struct collector_source source = collector_source_of(image);
	uint64_t at = collector_link(&source, head);
	int got = 0;

	for (uint64_t i = 0; i < MAX_LIST && at && at != head && !got; i++) {
		got = visit(context, at + image->offsets.heap.gc_head_bytes);
		at = collector_link(&source, at);
	}
	return got;
}

int collector_each_frozen(const struct collector *collector, const struct image *image,
			  collector_fn visit, void *context)
{
	if (image->offsets.build == BUILD_FREE_THREADED)
		return 0;
	return list_each(image, collector->permanent, visit, context);
}

void collector_each_list(const struct collector *collector, const struct image *image,
			 collector_fn visit, void *context)
{
	uint32_t bytes = image->offsets.collector.generation_bytes;

	if (image->offsets.build == BUILD_FREE_THREADED)
		return;
	for (unsigned int i = 0; i < COLLECTOR_GENERATIONS; i++)
		list_each(image, collector->young + i * bytes, visit, context);
	list_each(image, collector->permanent, visit, context);
}

struct object_count {
	uint64_t count, most; /* most: a list that has more leads into itself */
};

static int object_count(void *context, uint64_t object)
{
	struct object_count *objects = context;

	(void)object;
	return ++objects->count > objects->most;
}

/* 0: it has none, or is no list. */
static uint64_t list_count(const struct image *image, uint64_t head)
{
	struct object_count objects = {0};

	for (size_t i = 0; i < image->count; i++)
		objects.most += (image->segments[i].end - image->segments[i].start) /
				image->offsets.heap.gc_head_bytes;
	return list_each(image, head, object_count, &objects) ? 0 : objects.count;
}

void collector_objects_count(const struct collector *collector, const struct image *image,
			     struct collector_figures *out)
{
	uint32_t bytes = image->offsets.collector.generation_bytes;

	if (image->offsets.build == BUILD_FREE_THREADED)
		return;
	for (unsigned int i = 0; i < COLLECTOR_GENERATIONS; i++)
		out->generations[i].objects = list_count(image, collector->young + i * bytes);
	out->frozen = list_count(image, collector->permanent);
}

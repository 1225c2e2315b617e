/* SPDX-License-Identifier: Apache-2.0 */
#include "report/export/perf_data_frames.h"

#include <errno.h>
#include <stdlib.h>

#include "util/array.h"
#include "util/buffer.h"
#include "util/id_map.h"
#include "util/sorted.h"
#include "util/utf8.h"

/* A distinct frame before it has a slot. */
struct frames_found {
	struct snapshot_frame frame;
	uint32_t number; /* in the order of first occurrence */
};

struct frames_finding {
	struct id_map functions; /* file name << 32 | function -> number */
	struct id_map frames;    /* function number << 32 | line -> number */
	struct frames_found *found;
	size_t count, capacity;
};

static int number_of(struct id_map *map, uint64_t key, uint32_t *number)
{
	*number = id_map_find(map, key);
	if (*number != ID_MAP_NONE)
		return 0;
	*number = (uint32_t)map->count;
	return id_map_put(map, key, *number);
}

static int frame_find(struct frames_finding *finding, const struct snapshot_frame *frame,
		      uint32_t *number)
{
	uint32_t function;
	int err = number_of(&finding->functions, (uint64_t)frame->filename << 32 | frame->function,
			    &function)
			  ?: number_of(&finding->frames, (uint64_t)function << 32 | frame->line,
				       number);

	if (err || *number < finding->count)
		return err;
	err = ARRAY_GROW(finding->found, finding->capacity, finding->count);
	if (!err)
		finding->found[finding->count++] =
			(struct frames_found){.frame = *frame, .number = *number};
	return err;
}

static int frame_compare(const void *left, const void *right)
{
	const struct snapshot_frame *a = left, *b = right;

	return CMP(a->filename, b->filename)
	       ?: CMP(a->function, b->function)
	       ?: CMP(a->line, b->line);
}

/* Sorts the frames that were found, and replaces the numbers in slots by slots. */
static int slots_assign(struct frames_finding *finding, struct perf_frames *out, size_t frame_count)
{
	uint32_t *slot_of = malloc((finding->count + 1) * sizeof(*slot_of));

	out->frames = malloc((finding->count + 1) * sizeof(*out->frames));
	if (!slot_of || !out->frames) {
		free(slot_of);
		return -ENOMEM;
	}
	if (finding->count)
		qsort(finding->found, finding->count, sizeof(*finding->found), frame_compare);
	for (size_t i = 0; i < finding->count; i++) {
		out->frames[i] = finding->found[i].frame;
		slot_of[finding->found[i].number] = (uint32_t)i;
	}
	out->count = (uint32_t)finding->count;
	for (size_t i = 0; i < frame_count; i++)
		out->slots[i] = slot_of[out->slots[i]];
	free(slot_of);
	return 0;
}

int perf_frames_new(struct perf_frames *out, const struct snapshot *snapshot)
{
	struct perf_frames frames = {.strings = snapshot->strings};
	struct frames_finding finding = {0};
	int err = 0;

	frames.slots = malloc((snapshot->frame_count + 1) * sizeof(*frames.slots));
	if (!frames.slots)
		return -ENOMEM;
	for (size_t i = 0; !err && i < snapshot->frame_count; i++)
		err = frame_find(&finding, &snapshot->frames[i], &frames.slots[i]);
	err = err ?: slots_assign(&finding, &frames, snapshot->frame_count);
	id_map_free(&finding.functions);
	id_map_free(&finding.frames);
	free(finding.found);
	if (err)
		perf_frames_free(&frames);
	else
		*out = frames;
	return err;
}

void perf_frames_free(struct perf_frames *frames)
{
	free(frames->frames);
	free(frames->slots);
	*frames = (struct perf_frames){0};
}

uint32_t perf_frames_function_end(const struct perf_frames *frames, uint32_t first)
{
	const struct snapshot_frame *function = &frames->frames[first];
	uint32_t end = first + 1;

	while (end < frames->count && frames->frames[end].filename == function->filename &&
	       frames->frames[end].function == function->function)
		end++;
	return end;
}

int perf_name_append(struct buffer *out, const char *name, char also)
{
	size_t start = out->size;
	int err = 0;

	if (!name[0])
		name = "<unknown>";
	while (!err && *name && out->size - start < PERF_NAME_MAX) {
		uint32_t c;
		size_t bytes = utf8_take(name, &c);

		if (c >= 0x20 && c < 0x7f && c != (unsigned char)also)
			err = buffer_append(out, name, 1);
		else
			err = buffer_printf(out,
					    c < 0x100     ? "\\x%02x"
					    : c < 0x10000 ? "\\u%04x"
							  : "\\U%08x",
					    c);
		name += bytes;
	}
	return !err && *name ? buffer_append(out, "...", 3) : err;
}

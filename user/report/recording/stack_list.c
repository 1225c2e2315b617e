/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/stack_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"
#include "util/json.h"

#define FRAME_PARTS 3u

struct stack_item {
	size_t first; /* in ids */
	uint32_t nframe;
	int is_cut;
};

int stack_list_init(struct stack_list *list)
{
	*list = (struct stack_list){0};
	return strings_new(&list->names) ?: strings_new(&list->frame_keys)
		       ?: strings_new(&list->stack_keys);
}

void stack_list_free(struct stack_list *list)
{
	strings_free(list->names);
	strings_free(list->frame_keys);
	strings_free(list->stack_keys);
	free(list->items);
	buffer_free(&list->frames);
	buffer_free(&list->ids);
	buffer_free(&list->key);
	*list = (struct stack_list){0};
}

static int name_find(struct stack_list *list, const struct snapshot *snapshot, uint32_t name,
		     uint32_t *id)
{
	const char *text = strings_get(snapshot->strings, name);

	return strings_intern(list->names, text, strlen(text), id);
}

static int frame_find(struct stack_list *list, const struct snapshot *snapshot,
		      const struct snapshot_frame *frame, uint32_t *number)
{
	uint32_t parts[FRAME_PARTS] = {0, 0, frame->line}, id;
	char key[3 * 12];
	int err = name_find(list, snapshot, frame->filename, &parts[0])
			  ?: name_find(list, snapshot, frame->function, &parts[1]);

	if (err)
		return err;
	int bytes = snprintf(key, sizeof(key), "%u %u %u", parts[0], parts[1], parts[2]);
	err = strings_intern(list->frame_keys, key, (size_t)bytes, &id);
	/* Id 0 is the empty string. */
	if (!err && id > list->frames.size / sizeof(parts))
		err = buffer_append(&list->frames, parts, sizeof(parts));
	*number = id - 1;
	return err;
}

/* Puts the frames behind those of all stacks, and their numbers into the key. 0, -ENOMEM. */
static int frames_put(struct stack_list *list, const struct snapshot *snapshot,
		      const struct snapshot_traceback *traceback)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < traceback->nframe; i++) {
		uint32_t frame;

		err = frame_find(list, snapshot, &snapshot->frames[traceback->first + i], &frame)
			      ?: buffer_append(&list->ids, &frame, sizeof(frame))
			      ?: buffer_printf(&list->key, "%x ", frame);
	}
	return err;
}

int stack_list_find(struct stack_list *list, const struct snapshot *snapshot, uint32_t traceback,
		    uint32_t *number)
{
	const struct snapshot_traceback *at = &snapshot->tracebacks[traceback];
	struct stack_item item = {.first = list->ids.size / sizeof(uint32_t),
				  .nframe = at->nframe,
				  .is_cut = at->total != SNAPSHOT_TOTAL_UNKNOWN &&
					    at->total > at->nframe};
	uint32_t id;

	list->key.size = 0;
	int err = frames_put(list, snapshot, at)
			  ?: buffer_append(&list->key, item.is_cut ? "-" : ".", 1)
			  ?: strings_intern(list->stack_keys, (const char *)list->key.data,
					    list->key.size, &id);
	if (err)
		return err;
	if (id <= list->count) {
		list->ids.size = item.first * sizeof(uint32_t);
		*number = id - 1;
		return 0;
	}
	err = ARRAY_GROW(list->items, list->capacity, list->count);
	if (err)
		return err;
	*number = (uint32_t)list->count;
	list->items[list->count++] = item;
	return 0;
}

/* What is written of a list, in the order in which it is met. */
struct written {
	uint32_t *numbers; /* of each of the list, from 1; 0: it is not written */
	uint32_t *order;
	uint32_t count;
};

static int written_new(struct written *written, size_t all)
{
	*written = (struct written){array_new(all + 1, sizeof(uint32_t)),
				    array_new(all + 1, sizeof(uint32_t)), 0};
	return written->numbers && written->order ? 0 : -ENOMEM;
}

static void written_free(struct written *written)
{
	free(written->numbers);
	free(written->order);
}

static uint32_t written_number(struct written *written, uint32_t of)
{
	if (!written->numbers[of]) {
		written->order[written->count++] = of;
		written->numbers[of] = written->count;
	}
	return written->numbers[of] - 1;
}

/* Only the strings and the frames of these stacks. */
static void written_json(struct json *json, const struct stack_list *list, struct written *strings,
			 struct written *frames)
{
	const uint32_t *parts = (const uint32_t *)list->frames.data;

	json_open(json, "frames", '[');
	for (uint32_t i = 0; i < frames->count; i++) {
		const uint32_t *frame = parts + (size_t)FRAME_PARTS * frames->order[i];

		json_unsigned(json, NULL, written_number(strings, frame[0]));
		json_unsigned(json, NULL, written_number(strings, frame[1]));
		json_unsigned(json, NULL, frame[2]);
	}
	json_close(json, ']');
	json_open(json, "strings", '[');
	for (uint32_t i = 0; i < strings->count; i++)
		json_text(json, NULL, strings_get(list->names, strings->order[i]));
	json_close(json, ']');
}

static void stacks_json(struct json *json, const struct stack_list *list, const uint32_t *numbers,
			size_t count, struct written *frames)
{
	const uint32_t *ids = (const uint32_t *)list->ids.data;
	size_t start = 0;

	json_open(json, "stacks", '[');
	for (size_t i = 0; i < count; i++)
		for (uint32_t j = 0; j < list->items[numbers[i]].nframe; j++)
			json_unsigned(
				json, NULL,
				written_number(frames, ids[list->items[numbers[i]].first + j]));
	json_close(json, ']');
	json_open(json, "starts", '[');
	for (size_t i = 0; i < count; start += list->items[numbers[i++]].nframe)
		json_unsigned(json, NULL, start);
	json_unsigned(json, NULL, start);
	json_close(json, ']');
	json_open(json, "cut", '[');
	for (size_t i = 0; i < count; i++)
		if (list->items[numbers[i]].is_cut)
			json_unsigned(json, NULL, i);
	json_close(json, ']');
}

int stack_list_json(struct json *json, const struct stack_list *list, const uint32_t *numbers,
		    size_t count)
{
	struct written strings = {0}, frames = {0};
	int err =
		written_new(&strings, strings_count(list->names))
			?: written_new(&frames, list->frames.size / sizeof(uint32_t) / FRAME_PARTS);

	if (!err) {
		stacks_json(json, list, numbers, count, &frames);
		written_json(json, list, &strings, &frames);
	}
	written_free(&strings);
	written_free(&frames);
	return err;
}

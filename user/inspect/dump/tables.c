/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/dump/tables.h"

#include <errno.h>
#include <string.h>

#include "runtime/cpython/dict_keys.h"

#define ALIGNMENT    16u
#define LIST_TYPE    (1u << 25) /* Py_TPFLAGS_LIST_SUBCLASS */
#define DICT_TYPE    (1u << 29) /* Py_TPFLAGS_DICT_SUBCLASS */
#define LEAST        32u        /* entries: smaller tables hold too little to be missed */
#define MOST         (1u << 28)
#define SAMPLES      8u
#define HEADER_BYTES 64u
#define TRIES        4u /* of a container that moves its table again */
#define MENDED_MOST  4096u
#define TRIED_MOST   4096u
#define REFRESH_MOST 64u /* times that the maps are read */
#define READ_MOST    (256ull << 20)

struct mend {
	struct capture *capture;
	struct space *space;
	uint64_t list, dict; /* their types; 0: not found */
	unsigned int mended, lost;
	unsigned int tried, refreshed;
	uint64_t read; /* bytes of tables that were tried */
};

/* The table of a list or dictionary, by its header. */
struct mend_table {
	uint64_t address, bytes; /* bytes: with entries that are in use, 0: it has none to miss */
	uint64_t first, stride;  /* of the words that refer to objects */
	uint64_t count;
};

/*
 * The types themselves: objects of the interpreter's static data. Those of a subclass are not
 * static, and do not matter here.
 */
static void types_find(struct mend *tables)
{
	const struct image *image = &tables->capture->image;
	const struct python_offsets *offsets = &image->offsets;
	const uint8_t *data = image_at(image, image->data, image->data_bytes);

	for (uint64_t at = 0; data && at + 8 <= image->data_bytes; at += 8) {
		uint64_t type = image->data + at - offsets->abi.object_type;
		char name[8];

		if (word_at(data + at) != image->type_type)
			continue;
		uint64_t flags = image_u64(image, type + offsets->heap.type_flags);
		image_text(image, image_u64(image, type + offsets->heap.type_name), name,
			   sizeof(name));
		if (flags & LIST_TYPE && !strcmp(name, "list"))
			tables->list = type;
		else if (flags & DICT_TYPE && !strcmp(name, "dict"))
			tables->dict = type;
	}
}

static uint64_t header_word(const uint8_t header[HEADER_BYTES], uint16_t offset)
{
	return offset + 8u <= HEADER_BYTES ? word_at(header + offset) : 0;
}

static void list_table(const struct python_offsets *offsets, const uint8_t header[HEADER_BYTES],
		       struct mend_table *out)
{
	uint64_t count = header_word(header, (uint16_t)offsets->abi.bytes_size);
	uint64_t capacity = header_word(header, offsets->objects.list_capacity);

	*out = (struct mend_table){.address = header_word(header, offsets->objects.list_items),
				   .stride = 8,
				   .count = count};
	if (count >= LEAST && count <= capacity && capacity <= MOST)
		out->bytes = count * 8;
}

/* keys: the bytes at its table's address, NULL: they are not there. */
static void dict_table(const struct python_offsets *offsets, const uint8_t header[HEADER_BYTES],
		       const uint8_t *bytes, struct mend_table *out)
{
	uint64_t used = header_word(header, offsets->objects.dict_used);
	struct keys keys;

	*out = (struct mend_table){.address = header_word(header, offsets->objects.dict_keys)};
	if (used < LEAST || used > MOST)
		return;
	out->bytes = offsets->objects.keys_indices;
	if (!bytes || dict_keys_decode(&offsets->objects, out->address, bytes, &keys) ||
	    keys.count > MOST)
		return;
	out->bytes = keys.entries + keys.count * keys.entry_bytes - out->address;
	out->first = keys.entries - out->address + keys.key_at;
	out->stride = keys.entry_bytes;
	out->count = keys.count;
}

/* Do the table's words refer to something? A place that was not its own then has other content. */
static bool is_whole(const struct image *image, const struct mend_table *table)
{
	const uint8_t *bytes = image_at(image, table->address, table->bytes);

	if (!bytes || !table->count || !table->stride)
		return 0;
	for (unsigned int i = 0; i < SAMPLES; i++) {
		uint64_t entry = (table->count - 1) * i / (SAMPLES - 1);
		uint64_t word = word_at(bytes + table->first + entry * table->stride);

		/* An entry of a dictionary may have been removed. */
		if ((!word && table->stride == 8) || (word && !image_at(image, word, 16)))
			return 0;
	}
	return 1;
}

/* Writes what was read into the copy, as far as the copy has that memory. */
static bool bytes_write(const struct capture *capture, uint64_t address, const uint8_t *data,
			uint64_t bytes)
{
	uint8_t *to = (uint8_t *)image_at(&capture->image, address, bytes);

	if (to)
		memcpy(to, data, bytes);
	return to != NULL;
}

static int table_read(struct mend *tables, const struct mend_table *table)
{
	uint8_t *to = (uint8_t *)image_at(&tables->capture->image, table->address, table->bytes);

	return to ? space_read(tables->space, table->address, to, table->bytes) : -EFAULT;
}

/* The table of a container as it is now. 0; -EFAULT: it is not there. */
static int table_now(struct mend *tables, uint64_t address, bool is_list,
		     uint8_t header[HEADER_BYTES], struct mend_table *out)
{
	const struct python_offsets *offsets = &tables->capture->image.offsets;
	uint8_t keys[256];
	int err = space_read(tables->space, address, header, HEADER_BYTES);

	if (err)
		return err;
	if (is_list) {
		list_table(offsets, header, out);
		return 0;
	}
	uint64_t at = header_word(header, offsets->objects.dict_keys);
	if (offsets->objects.keys_indices > sizeof(keys))
		return -EFAULT;
	err = space_read(tables->space, at, keys, offsets->objects.keys_indices);
	dict_table(offsets, header, err ? NULL : keys, out);
	return 0;
}

/*
 * Memory of a list that was freed still looks like it, but for its reference count. Without the GIL
 * the count has another form, and none is told.
 */
static bool is_live(const struct mend *tables, uint64_t address)
{
	const struct image *image = &tables->capture->image;

	return image->offsets.abi.object_type == 8 && (uint32_t)image_u64(image, address);
}

/* Reads a container again until its table stays where it is for as long as that takes. */
static int container_mend(struct mend *tables, uint64_t address, bool is_list,
			  int (*refresh)(void *context), void *context)
{
	uint16_t type_at = (uint16_t)tables->capture->image.offsets.abi.object_type;
	uint8_t header[HEADER_BYTES], again[HEADER_BYTES];
	struct mend_table table, after;

	for (unsigned int i = 0; i < TRIES; i++) {
		int err = table_now(tables, address, is_list, header, &table);

		/* The pages of a process that is being killed are zero, or not there. */
		if (err == -EFAULT || (!err && !header_word(header, type_at)))
			break;
		if (err || !table.bytes)
			return err;
		if (!image_at(&tables->capture->image, table.address, table.bytes) &&
		    tables->refreshed < REFRESH_MOST) {
			tables->refreshed++;
			err = refresh(context);
			if (err)
				return err;
		}
		err = table_read(tables, &table)
			      ?: table_now(tables, address, is_list, again, &after);
		if (err && err != -EFAULT)
			return err;
		if (err || after.address != table.address ||
		    !is_whole(&tables->capture->image, &table))
			continue;
		tables->mended += bytes_write(tables->capture, address, header, HEADER_BYTES);
		return 0;
	}
	tables->lost += is_live(tables, address);
	return 0;
}

/* One word of the copy that may be a container's type. */
static int word_check(struct mend *tables, uint64_t address, int (*refresh)(void *context),
		      void *context)
{
	const struct image *image = &tables->capture->image;
	const struct python_offsets *offsets = &image->offsets;
	uint64_t object = address - offsets->abi.object_type;
	const uint8_t *header = image_at(image, object, HEADER_BYTES);
	bool is_list = image_u64(image, address) == tables->list;
	struct mend_table table;

	if (!header)
		return 0;
	if (is_list)
		list_table(offsets, header, &table);
	else
		dict_table(offsets, header,
			   image_at(image, header_word(header, offsets->objects.dict_keys),
				    offsets->objects.keys_indices),
			   &table);
	if (!table.bytes || is_whole(image, &table))
		return 0;
	/* It was freed: nothing refers to it. Without the GIL the count has another form. */
	if (offsets->build != BUILD_FREE_THREADED && !(uint32_t)image_u64(image, object))
		return 0;
	/* A target may have any number of words that look like a container. */
	tables->read += table.bytes;
	if (tables->tried++ >= TRIED_MOST || tables->read > READ_MOST)
		return 0;
	return container_mend(tables, object, is_list, refresh, context);
}

int tables_mend(struct capture *capture, struct space *space, int (*refresh)(void *context),
		void *context, unsigned int *lost)
{
	struct mend tables = {.capture = capture, .space = space};
	uint32_t phase = capture->image.offsets.abi.object_type % ALIGNMENT;
	int err = 0;

	types_find(&tables);
	/* Segments may be added meanwhile: what is new has no older content. */
	for (size_t i = 0; i < capture->image.count && (tables.list || tables.dict) && !err; i++) {
		uint64_t start = capture->segments[i].start, end = capture->segments[i].end;

		if (capture->segments[i].kind != IMAGE_HEAP)
			continue;
		for (uint64_t at = start + phase; at + 8 <= end && !err; at += ALIGNMENT) {
			/* The place of the segment may change. */
			const struct image_segment *segment = &capture->segments[i];
			uint64_t word = word_at(segment->bytes + (at - segment->start));

			if ((word == tables.list || word == tables.dict) && word &&
			    tables.mended < MENDED_MOST)
				err = word_check(&tables, at, refresh, context);
			if (capture->segments[i].start != start)
				break; /* one was inserted before it */
		}
	}
	*lost = tables.lost;
	return err ?: (int)tables.mended;
}

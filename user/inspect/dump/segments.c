/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/dump/segments.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "util/clock.h"

#define PAGE        4096u
#define ROOM_LEAST  (1ull << 20)   /* address space behind a segment that is smaller */
#define ROOM_MOST   (256ull << 20) /* behind others, and behind all of them */
#define MAX_HEADERS 64u            /* program headers of a file */
#define MAX_CONSTS                                                                                 \
	(64u << 20) /* constants of one mapping; a larger one holds data of other kinds */

static int same_file(const struct process_map *a, const struct process_map *b)
{
	return a->inode && a->inode == b->inode && a->device_major == b->device_major &&
	       a->device_minor == b->device_minor;
}

/* Whether the file of a map has variables, too: those of a file lie near each other. */
static bool has_variables(const struct process_maps *maps, size_t i)
{
	for (size_t j = i + 1; j < maps->count && j < i + 8; j++)
		if (same_file(&maps->entries[i], &maps->entries[j]) && maps->entries[j].writable)
			return 1;
	return 0;
}

/* .bss follows the file's last mapping. */
static bool is_bss(const struct process_maps *maps, size_t i)
{
	const struct process_map *before = i ? &maps->entries[i - 1] : NULL;

	return before && !maps->entries[i].inode && !maps->entries[i].path[0] &&
	       before->end == maps->entries[i].start && before->inode && before->writable;
}

/*
 * Where the memory of the file of a map ends, by the program headers in the process's memory; 0:
 * they are not there. .bss is anonymous memory, and the kernel merges it with what follows.
 */
static uint64_t file_end(const struct memory_reader *memory, const struct process_maps *maps,
			 size_t i)
{
	Elf64_Phdr headers[MAX_HEADERS];
	Elf64_Ehdr file;
	uint64_t end = 0;
	size_t first = i;

	while (first && same_file(&maps->entries[first - 1], &maps->entries[i]))
		first--;
	if (maps->entries[first].offset ||
	    memory->read(memory->context, maps->entries[first].start, &file, sizeof(file)) ||
	    memcmp(file.e_ident, ELFMAG, SELFMAG) || file.e_phnum > MAX_HEADERS ||
	    file.e_phentsize != sizeof(headers[0]) ||
	    memory->read(memory->context, maps->entries[first].start + file.e_phoff, headers,
			 file.e_phnum * sizeof(headers[0])))
		return 0;
	for (unsigned int j = 0; j < file.e_phnum; j++)
		if (headers[j].p_type == PT_LOAD && headers[j].p_vaddr + headers[j].p_memsz > end)
			end = headers[j].p_vaddr + headers[j].p_memsz;
	for (unsigned int j = 0; j < file.e_phnum; j++)
		if (headers[j].p_type == PT_LOAD && !headers[j].p_offset)
			return maps->entries[first].start - headers[j].p_vaddr + end;
	return 0;
}

/* 1: the map is to be copied, and *kind says what it is. */
static int map_wanted(const struct process_maps *maps, size_t i, enum image_kind *kind)
{
	const struct process_map *map = &maps->entries[i];

	if (!map->readable || map->end <= map->start || !strncmp(map->path, "/dev/", 5) ||
	    !strncmp(map->path, "[v", 2))
		return 0;
	if (map->inode) {
		*kind = map->writable ? IMAGE_DATA : IMAGE_CONSTANT;
		return map->writable || (!map->executable && map->end - map->start <= MAX_CONSTS &&
					 has_variables(maps, i));
	}
	*kind = !strcmp(map->path, "[stack]") ? IMAGE_STACK : IMAGE_HEAP;
	return map->writable;
}

/*
 * Adjacent maps of anonymous memory are one segment: the kernel divides a heap where a part of it
 * has other properties, such as madvise(MADV_HUGEPAGE).
 */
static void segment_add(struct capture *capture, uint64_t start, uint64_t end, enum image_kind kind,
			const char *file)
{
	struct image_segment *segment = &capture->segments[capture->image.count];

	if (start >= end)
		return;
	if (kind == IMAGE_HEAP && capture->image.count && segment[-1].kind == IMAGE_HEAP &&
	    segment[-1].end == start) {
		segment[-1].end = end;
		capture->memory_bytes += end - start;
		return;
	}
	*segment = (struct image_segment){.start = start, .end = end, .kind = kind};
	if (kind == IMAGE_DATA || kind == IMAGE_CONSTANT)
		snprintf(segment->file, sizeof(segment->file), "%s", file);
	capture->memory_bytes += end - start;
	capture->image.count++;
}

int capture_segments(struct capture *capture, const struct process_maps *maps,
		     const struct memory_reader *memory)
{
	capture->segments = calloc(2 * maps->count + 1, sizeof(*capture->segments));
	if (!capture->segments)
		return -ENOMEM;
	for (size_t i = 0; i < maps->count; i++) {
		const struct process_map *map = &maps->entries[i];
		uint64_t split = map->start;
		enum image_kind kind;

		if (!map_wanted(maps, i, &kind))
			continue;
		if (is_bss(maps, i)) {
			split = (file_end(memory, maps, i - 1) + PAGE - 1) & ~(uint64_t)(PAGE - 1);
			split = split < map->start ? map->start
				: split > map->end ? map->end
						   : split;
			segment_add(capture, map->start, split, IMAGE_DATA, map[-1].path);
		}
		segment_add(capture, split, map->end, kind, map->path);
	}
	return 0;
}

/* Bytes of address space behind a segment, for what is mapped there while it is copied. */
static uint64_t segment_room(const struct capture *capture, size_t i)
{
	const struct image_segment *segment = &capture->segments[i];
	uint64_t room = segment->end - segment->start;
	uint64_t gap = i + 1 < capture->image.count ? segment[1].start - segment->end : ROOM_MOST;

	if (segment->kind != IMAGE_HEAP)
		return 0;
	room = room < ROOM_LEAST ? ROOM_LEAST : ROOM_MOST;
	return room < gap ? room : gap;
}

int capture_reserve(struct capture *capture)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < capture->image.count; i++)
		bytes += capture->segments[i].end - capture->segments[i].start +
			 segment_room(capture, i);
	capture->memory_end = bytes;
	bytes += ROOM_MOST;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	capture->memory = memory;
	capture->memory_mapped = bytes;
	bytes = 0;
	for (size_t i = 0; i < capture->image.count; i++) {
		capture->segments[i].bytes = capture->memory + bytes;
		bytes += capture->segments[i].end - capture->segments[i].start +
			 segment_room(capture, i);
	}
	return 0;
}

/* Inserts a segment of new anonymous memory where its address belongs. 0, -ENOMEM. */
static int segment_insert(struct capture *capture, const struct image_segment *part)
{
	struct image *image = &capture->image;
	size_t at = image->count;
	struct image_segment *segments =
		reallocarray(capture->segments, image->count + 1, sizeof(*segments));

	if (!segments)
		return -ENOMEM;
	while (at && segments[at - 1].start > part->start)
		at--;
	memmove(&segments[at + 1], &segments[at], (image->count - at) * sizeof(*segments));
	segments[at] = *part;
	capture->segments = image->segments = segments;
	image->count++;
	return 0;
}

/* Where the bytes of a segment may go on: the next one's, or the end of the memory. */
static const uint8_t *room_end(const struct capture *capture, const struct image_segment *segment)
{
	const uint8_t *end = capture->memory + capture->memory_end;

	for (size_t i = 0; i < capture->image.count; i++)
		if (capture->segments[i].bytes > segment->bytes && capture->segments[i].bytes < end)
			end = capture->segments[i].bytes;
	return end;
}

/*
 * Gives a part its place, behind the segment that it follows or at the end of the memory. 1; 0: it
 * has no room; -ENOMEM.
 */
static int part_place(struct capture *capture, struct image_segment *part)
{
	uint64_t bytes = part->end - part->start;

	for (size_t i = 0; i < capture->image.count; i++) {
		struct image_segment *before = &capture->segments[i];

		if (before->end != part->start || before->kind != IMAGE_HEAP)
			continue;
		part->bytes = before->bytes + (before->end - before->start);
		if (bytes > (uint64_t)(room_end(capture, before) - part->bytes))
			break;
		before->end = part->end;
		capture->memory_bytes += bytes;
		return 1;
	}
	if (capture->image.count == IMAGE_SEGMENTS ||
	    capture->memory_end + bytes + PAGE > capture->memory_mapped)
		return 0;
	part->bytes = capture->memory + capture->memory_end;
	int err = segment_insert(capture, part);
	if (err)
		return err;
	capture->memory_end += bytes;
	capture->memory_bytes += bytes;
	return 1;
}

/* The first part of [part->start, end) that no segment has; 0: there is none. */
static bool part_find(const struct capture *capture, struct image_segment *part, uint64_t end)
{
	part->end = end;
	for (size_t i = 0; i < capture->image.count && part->start < end; i++) {
		const struct image_segment *segment = &capture->segments[i];

		if (segment->end <= part->start)
			continue;
		if (segment->start > part->start) {
			part->end = segment->start < end ? segment->start : end;
			return 1;
		}
		part->start = segment->end;
	}
	return part->start < end;
}

int capture_extend(struct capture *capture, const struct process_maps *maps,
		   int (*added)(void *context, const struct image_segment *part), void *context)
{
	int err = 0;

	for (size_t i = 0; i < maps->count && err >= 0; i++) {
		const struct process_map *map = &maps->entries[i];
		struct image_segment part = {.start = map->start, .kind = IMAGE_HEAP};
		enum image_kind kind;

		if (!map_wanted(maps, i, &kind) || kind != IMAGE_HEAP)
			continue;
		for (; err >= 0 && part_find(capture, &part, map->end); part.start = part.end) {
			err = part_place(capture, &part);
			err = err > 0 ? added(context, &part) : err;
		}
	}
	return err < 0 ? err : 0;
}

int capture_describe(struct image *image, const struct python_runtime *runtime)
{
	int err = runtime_type_type(runtime, &image->type_type);

	if (err)
		return err;
	image->offsets = *runtime->offsets;
	image->version_hex = runtime->version_hex;
	image->runtime = runtime->target.runtime;
	runtime_data(runtime, &image->data, &image->data_bytes);
	return runtime_read_u64(
		runtime, runtime->target.runtime + runtime->offsets->abi.runtime_interpreters_head,
		&image->interpreters);
}

int capture_end(struct capture *capture, int err, uint64_t began_ns, struct capture *out)
{
	if (err) {
		capture_free(capture);
		return err;
	}
	capture->elapsed_ns = clock_ns(CLOCK_MONOTONIC) - began_ns;
	capture->image.segments = capture->segments;
	capture->image.heads = capture->heads;
	*out = *capture;
	return 0;
}

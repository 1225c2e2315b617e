/* SPDX-License-Identifier: Apache-2.0 */
#include "dump/capture.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "dump/resident.h"
#include "process/freeze.h"
#include "process/memory.h"
#include "process/pagemap.h"

#define PAGE        4096u
#define MAX_HEADERS 64u                               /* program headers of a file */
#define PIECE       ((uint64_t)RESIDENT_PAGES * PAGE) /* bytes copied by one call */
#define MAX_CONSTS                                                                                 \
	(64u << 20) /* constants of one mapping; a larger one holds data of other kinds */

static int same_file(const struct process_map *a, const struct process_map *b)
{
	return a->inode && a->inode == b->inode && a->device_major == b->device_major &&
	       a->device_minor == b->device_minor;
}

/* Whether the file of a map has variables, too: those of a file lie near each other. */
static int has_variables(const struct process_maps *maps, size_t i)
{
	for (size_t j = i + 1; j < maps->count && j < i + 8; j++)
		if (same_file(&maps->entries[i], &maps->entries[j]) && maps->entries[j].writable)
			return 1;
	return 0;
}

/* .bss follows the file's last mapping. */
static int is_bss(const struct process_maps *maps, size_t i)
{
	const struct process_map *before = i ? &maps->entries[i - 1] : NULL;

	return before && !maps->entries[i].inode && !maps->entries[i].path[0] &&
	       before->end == maps->entries[i].start && before->inode && before->writable;
}

/*
 * Where the memory of the file of a map ends, by the program headers in the process's memory; 0:
 * they are not there. .bss is anonymous memory, and the kernel merges it with what follows.
 */
static uint64_t file_end(pid_t pid, const struct process_maps *maps, size_t i)
{
	Elf64_Phdr headers[MAX_HEADERS];
	Elf64_Ehdr file;
	uint64_t end = 0;
	size_t first = i;

	while (first && same_file(&maps->entries[first - 1], &maps->entries[i]))
		first--;
	if (maps->entries[first].offset ||
	    memory_read(pid, maps->entries[first].start, &file, sizeof(file)) ||
	    memcmp(file.e_ident, ELFMAG, SELFMAG) || file.e_phnum > MAX_HEADERS ||
	    file.e_phentsize != sizeof(headers[0]) ||
	    memory_read(pid, maps->entries[first].start + file.e_phoff, headers,
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

static void segment_add(struct capture *capture, uint64_t start, uint64_t end, enum image_kind kind,
			const char *file)
{
	struct image_segment *segment = &capture->segments[capture->image.count];

	if (start >= end)
		return;
	*segment = (struct image_segment){.start = start, .end = end, .kind = kind};
	if (kind == IMAGE_DATA || kind == IMAGE_CONSTANT)
		snprintf(segment->file, sizeof(segment->file), "%s", file);
	capture->memory_bytes += end - start;
	capture->image.count++;
}

/* The segments of the process; a map that begins as a file's .bss gives two. */
static int segments_list(struct capture *capture, pid_t pid, const struct process_maps *maps)
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
			split = (file_end(pid, maps, i - 1) + PAGE - 1) & ~(uint64_t)(PAGE - 1);
			split = split < map->start ? map->start
				: split > map->end ? map->end
						   : split;
			segment_add(capture, map->start, split, IMAGE_DATA, map[-1].path);
		}
		segment_add(capture, split, map->end, kind, map->path);
	}
	return 0;
}

/* Pages that cannot be read stay zero, and are counted. 0, -ESRCH, -EPERM. */
static int piece_copy(struct capture *capture, pid_t pid, uint64_t address, uint8_t *to,
		      uint64_t bytes)
{
	int err = memory_read(pid, address, to, bytes);

	if (err != -EFAULT && err != -EIO && err != -ENOMEM)
		return err;
	for (uint64_t at = 0; at < bytes; at += PAGE) {
		err = memory_read(pid, address + at, to + at, PAGE);
		if (err == -ESRCH || err == -EPERM)
			return err;
		if (err) {
			memset(to + at, 0, PAGE);
			capture->image.bytes_lost += PAGE;
		}
	}
	return 0;
}

/* Which pages of a piece are copied: all of a file's, and those that exist of other memory. */
static void piece_pages(int pagemap, const struct image_segment *segment, uint64_t from,
			uint32_t pages, uint8_t exists[RESIDENT_PAGES])
{
	if (segment->kind == IMAGE_DATA || segment->kind == IMAGE_CONSTANT)
		memset(exists, 1, pages);
	else
		resident_read(pagemap, segment->start + from, pages, exists);
}

static uint32_t pages_left(const struct image_segment *segment, uint64_t from)
{
	uint64_t pages = (segment->end - segment->start - from) / PAGE;

	return pages < RESIDENT_PAGES ? (uint32_t)pages : RESIDENT_PAGES;
}

static int piece_read(struct capture *capture, pid_t pid, int pagemap,
		      const struct image_segment *segment, uint64_t from, uint8_t *to)
{
	uint8_t exists[RESIDENT_PAGES];
	uint32_t pages = pages_left(segment, from), end;
	int err = 0;

	piece_pages(pagemap, segment, from, pages, exists);
	for (uint32_t page = 0; page < pages && !err; page = end) {
		for (end = page + 1; end < pages && exists[end] == exists[page]; end++)
			;
		if (exists[page])
			err = piece_copy(capture, pid, segment->start + from + page * PAGE,
					 to + from + page * PAGE, (uint64_t)(end - page) * PAGE);
	}
	return err;
}

static int segments_copy(struct capture *capture, pid_t pid, int pagemap)
{
	uint64_t at = 0;
	int err = 0;

	for (size_t i = 0; i < capture->image.count && !err; i++) {
		struct image_segment *segment = &capture->segments[i];
		uint64_t bytes = segment->end - segment->start;

		segment->bytes = capture->memory + at;
		for (uint64_t done = 0; done < bytes && !err; done += PIECE)
			err = piece_read(capture, pid, pagemap, segment, done,
					 capture->memory + at);
		at += bytes;
	}
	return err;
}

static uint64_t resident_count(const struct capture *capture, int pagemap)
{
	uint8_t exists[RESIDENT_PAGES];
	uint64_t bytes = 0;

	for (size_t i = 0; i < capture->image.count; i++) {
		const struct image_segment *segment = &capture->segments[i];

		for (uint64_t done = 0; done < segment->end - segment->start; done += PIECE) {
			uint32_t pages = pages_left(segment, done);

			piece_pages(pagemap, segment, done, pages, exists);
			for (uint32_t page = 0; page < pages; page++)
				bytes += exists[page] ? PAGE : 0;
		}
	}
	return bytes;
}

static int memory_map(struct capture *capture, int pagemap, uint64_t most)
{
	capture->image.resident_bytes = resident_count(capture, pagemap);
	if (most && capture->image.resident_bytes > most)
		return error_set(-EDQUOT,
				 "its memory of %" PRIu64 " MiB is more than the %" PRIu64
				 " MiB that may be copied",
				 capture->image.resident_bytes >> 20, most >> 20);
	capture->memory = mmap(NULL, capture->memory_bytes + PAGE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (capture->memory == MAP_FAILED) {
		capture->memory = NULL;
		return -ENOMEM;
	}
	return 0;
}

static int memory_copy(struct capture *capture, const struct python_runtime *runtime,
		       const struct capture_opts *opts)
{
	struct process_maps maps = {0};
	struct freeze *freeze = NULL;
	int err = opts->freeze ? freeze_begin(&freeze, runtime->pid) : 0;
	int pagemap;

	if (err)
		return err;
	pagemap = pagemap_open(runtime->pid);
	err = process_maps_read(runtime->pid, &maps);
	if (!err)
		err = segments_list(capture, runtime->pid, &maps);
	if (!err)
		err = memory_map(capture, pagemap, opts->most_bytes);
	if (!err)
		err = heap_heads(runtime, capture->heads, &capture->image.head_count);
	if (!err)
		err = segments_copy(capture, runtime->pid, pagemap);
	capture->image.frozen_ns = freeze_end(freeze);
	if (pagemap >= 0)
		close(pagemap);
	process_maps_free(&maps);
	return err;
}

/* .data and .bss of the interpreter's file. */
static void data_find(struct image *image, const struct python_runtime *runtime)
{
	uint64_t data, bss, bytes, bss_bytes;

	if (elf_file_section(runtime->file, ".data", &data, &bytes))
		return;
	if (!elf_file_section(runtime->file, ".bss", &bss, &bss_bytes) && bss > data)
		bytes = bss + bss_bytes - data;
	image->data = data + runtime->bias;
	image->data_bytes = bytes;
}

static int image_describe(struct image *image, const struct python_runtime *runtime,
			  const struct process_info *info)
{
	struct elf_symbol symbol;
	int err = elf_file_symbol(runtime->file, "PyType_Type", &symbol);

	if (err == -ENOENT)
		return error_set(
			-ENOTSUP,
			"%s has no symbol PyType_Type, which is needed to recognize objects",
			elf_file_path(runtime->file));
	if (err)
		return err;
	image->type_type = symbol.vaddr + runtime->bias;
	image->offsets = *runtime->offsets;
	image->version_hex = runtime->version_hex;
	image->pid = (uint32_t)info->pid;
	image->time_s = (uint64_t)time(NULL);
	memcpy(image->name, info->name, sizeof(image->name));
	data_find(image, runtime);
	return memory_read_u64(runtime->pid,
			       runtime->target.runtime +
				       runtime->offsets->abi.runtime_interpreters_head,
			       &image->interpreters);
}

int capture_take(struct capture *out, const struct python_runtime *runtime,
		 const struct process_info *info, const struct capture_opts *opts)
{
	struct capture capture = {0};
	uint64_t began = clock_ns(CLOCK_MONOTONIC);
	int err;

	error_clear();
	capture.heads = calloc(HEAP_INTERPRETERS, sizeof(*capture.heads));
	if (!capture.heads)
		return -ENOMEM;
	err = image_describe(&capture.image, runtime, info);
	if (!err)
		err = memory_copy(&capture, runtime, opts);
	if (err) {
		capture_free(&capture);
		return err;
	}
	capture.elapsed_ns = clock_ns(CLOCK_MONOTONIC) - began;
	capture.image.segments = capture.segments;
	capture.image.heads = capture.heads;
	*out = capture;
	return 0;
}

void capture_free(struct capture *capture)
{
	if (capture->memory)
		munmap(capture->memory, capture->memory_bytes + PAGE);
	free(capture->segments);
	free(capture->heads);
	memset(capture, 0, sizeof(*capture));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file: a header, the heads of heaps, the segments, then for each page of memory that is not
 * zero its number and its bytes, in order. The header tells how many pages follow.
 */
#include "inspect/dump/dump_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/archive.h"
#include "util/cleanup.h"
#include "util/error.h"

#define MAGIC     "trcrheap"
#define FORMAT    6u
#define SECONDS   5u /* the format before: its time is in seconds */
#define PAGE      4096u
#define SPARSE    64u          /* memory may be so much larger than its pages, */
#define LEAST     (1ull << 30) /* and so many bytes more */
#define MAX_HEADS HEAP_INTERPRETERS

struct dump_file_header {
	char magic[8];
	uint32_t format, offsets_bytes, head_count, segment_count;
	uint64_t memory_bytes, pages;
	uint32_t version_hex, pid;
	uint64_t type_type, data, data_bytes, runtime, interpreters, frozen_ns, bytes_lost, time_ns,
		bytes_swapped, ran, bytes_changed;
	char name[64], absent[IMAGE_NAME];
	struct python_offsets offsets;
};

struct stored_segment {
	uint64_t start, end;
	uint32_t kind, pad;
	char file[IMAGE_NAME];
};

static bool page_is_zero(const uint8_t *page)
{
	uint64_t any = 0;

	for (size_t i = 0; i < PAGE; i += 8)
		any |= word_at(page + i);
	return !any;
}

static uint64_t pages_count(const struct image *image)
{
	uint64_t pages = 0;

	for (size_t i = 0; i < image->count; i++)
		for (uint64_t at = 0; at < image->segments[i].end - image->segments[i].start;
		     at += PAGE)
			pages += !page_is_zero(image->segments[i].bytes + at);
	return pages;
}

static int segments_write(struct outfile *file, const struct image *image)
{
	int err = 0;

	for (size_t i = 0; i < image->count && !err; i++) {
		const struct image_segment *segment = &image->segments[i];
		struct stored_segment stored = {
			segment->start, segment->end, (uint32_t)segment->kind, 0, {0}};

		memcpy(stored.file, segment->file, sizeof(stored.file));
		err = outfile_write(file, &stored, sizeof(stored));
	}
	return err;
}

/* *page: the number of its first page; then of the next segment's. */
static int segment_write(struct outfile *file, const struct image_segment *segment, uint64_t *page)
{
	uint64_t bytes = segment->end - segment->start;
	int err = 0;

	for (uint64_t at = 0; at < bytes && !err; at += PAGE, ++*page)
		if (!page_is_zero(segment->bytes + at))
			err = outfile_write(file, page, sizeof(*page))
				      ?: outfile_write(file, segment->bytes + at, PAGE);
	return err;
}

int dump_write(struct outfile *file, const struct capture *capture)
{
	const struct image *image = &capture->image;
	struct dump_file_header header = {.format = FORMAT,
					  .offsets_bytes = sizeof(struct python_offsets),
					  .head_count = image->head_count,
					  .segment_count = (uint32_t)image->count,
					  .memory_bytes = capture->memory_bytes,
					  .pages = pages_count(image),
					  .version_hex = image->version_hex,
					  .pid = image->pid,
					  .type_type = image->type_type,
					  .data = image->data,
					  .data_bytes = image->data_bytes,
					  .runtime = image->runtime,
					  .interpreters = image->interpreters,
					  .frozen_ns = image->frozen_ns,
					  .bytes_lost = image->bytes_lost,
					  .time_ns = image->time_ns,
					  .bytes_swapped = image->bytes_swapped,
					  .ran = image->ran,
					  .bytes_changed = image->bytes_changed,
					  .offsets = image->offsets};
	uint64_t page = 0;

	memcpy(header.magic, MAGIC, sizeof(header.magic));
	memcpy(header.name, image->name, sizeof(header.name));
	memcpy(header.absent, image->absent, sizeof(header.absent));
	int err = outfile_write(file, &header, sizeof(header))
		  ?: outfile_write(file, image->heads, image->head_count * sizeof(*image->heads))
		  ?: segments_write(file, image);
	for (size_t i = 0; i < image->count && !err; i++)
		err = segment_write(file, &image->segments[i], &page);
	return err;
}

static int take(struct infile *file, void *out, size_t bytes)
{
	int err = infile_fill(file, bytes);

	if (err)
		return err;
	if (file->end - file->at < bytes)
		return error_set(-EINVAL, "it ends within its data");
	memcpy(out, file->data + file->at, bytes);
	file->at += bytes;
	return 0;
}

/*
 * The offsets are of a version that this tracer knows: what differs in a release is only where a
 * heap begins, which the heads say. Those in the file are not used.
 */
static int header_check(const struct dump_file_header *header, uint64_t most_bytes)
{
	if (memcmp(header->magic, MAGIC, sizeof(header->magic)))
		return error_set(-EINVAL, "it is no dump of a heap");
	if ((header->format != FORMAT && header->format != SECONDS) ||
	    header->offsets_bytes != sizeof(struct python_offsets))
		return error_set(-EINVAL, "it was written by another version of the tracer");
	if (!offsets_for(header->offsets.version, header->offsets.build))
		return error_set(-EINVAL, "it is of an unknown version of CPython");
	if (header->pages > UINT32_MAX || header->memory_bytes % PAGE ||
	    header->memory_bytes > header->pages * PAGE * SPARSE + LEAST ||
	    header->head_count > MAX_HEADS || header->segment_count > IMAGE_SEGMENTS ||
	    header->pages > header->memory_bytes / PAGE)
		return error_set(-EINVAL, "its sizes are impossible");
	if (most_bytes && header->pages * PAGE > most_bytes)
		return error_set(-EDQUOT,
				 "its memory of %" PRIu64 " MiB is more than the %" PRIu64
				 " MiB that may be used",
				 header->pages * PAGE >> 20, most_bytes >> 20);
	return 0;
}

static void image_fill(struct image *image, const struct dump_file_header *header)
{
	image->offsets = *offsets_for(header->offsets.version, header->offsets.build);
	image->version_hex = header->version_hex;
	image->pid = header->pid;
	image->type_type = header->type_type;
	image->data = header->data;
	image->data_bytes = header->data_bytes;
	image->runtime = header->runtime;
	image->interpreters = header->interpreters;
	image->head_count = header->head_count;
	image->frozen_ns = header->frozen_ns;
	image->resident_bytes = header->pages * PAGE;
	image->bytes_lost = header->bytes_lost;
	image->bytes_swapped = header->bytes_swapped;
	image->ran = header->ran;
	image->bytes_changed = header->bytes_changed;
	image->time_ns = header->time_ns * (header->format == SECONDS ? 1000000000u : 1);
	memcpy(image->name, header->name, sizeof(image->name));
	image->name[sizeof(image->name) - 1] = 0;
	memcpy(image->absent, header->absent, sizeof(image->absent));
	image->absent[sizeof(image->absent) - 1] = 0;
}

/* Segments must be in order, and together as large as the memory. */
static int segments_read(struct capture *capture, struct infile *file, uint32_t count)
{
	uint64_t at = 0, last = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct image_segment *segment = &capture->segments[i];
		struct stored_segment stored;
		int err = take(file, &stored, sizeof(stored));

		if (err)
			return err;
		if (stored.start < last || stored.end <= stored.start || stored.end % PAGE ||
		    stored.start % PAGE || stored.kind > IMAGE_STACK ||
		    stored.end - stored.start > capture->memory_bytes - at)
			return error_set(-EINVAL, "its segments are impossible");
		*segment = (struct image_segment){.start = stored.start,
						  .end = stored.end,
						  .bytes = capture->memory + at,
						  .kind = stored.kind};
		memcpy(segment->file, stored.file, sizeof(segment->file));
		segment->file[sizeof(segment->file) - 1] = 0;
		at += stored.end - stored.start;
		last = stored.end;
	}
	capture->image.count = count;
	return at == capture->memory_bytes ? 0 : error_set(-EINVAL, "its segments are impossible");
}

static int pages_read(struct capture *capture, struct infile *file, uint64_t pages)
{
	for (uint64_t i = 0; i < pages; i++) {
		uint64_t page;
		int err = take(file, &page, sizeof(page));

		if (err)
			return err;
		if (page >= capture->memory_bytes / PAGE)
			return error_set(-EINVAL, "it has a page that does not exist");
		err = take(file, capture->memory + page * PAGE, PAGE);
		if (err)
			return err;
	}
	return 0;
}

static int capture_fill(struct capture *capture, struct infile *file, uint64_t most_bytes)
{
	struct dump_file_header header;
	int err = take(file, &header, sizeof(header)) ?: header_check(&header, most_bytes);

	if (err)
		return err;
	image_fill(&capture->image, &header);
	capture->memory_bytes = header.memory_bytes;
	capture->heads = calloc(header.head_count + 1, sizeof(*capture->heads));
	capture->segments = calloc(header.segment_count + 1, sizeof(*capture->segments));
	capture->memory_mapped = header.memory_bytes + PAGE;
	capture->memory = mmap(NULL, capture->memory_mapped, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (capture->memory == MAP_FAILED)
		capture->memory = NULL;
	if (!capture->heads || !capture->segments || !capture->memory)
		return -ENOMEM;
	err = take(file, capture->heads, header.head_count * sizeof(*capture->heads))
	      ?: segments_read(capture, file, header.segment_count)
	      ?: pages_read(capture, file, header.pages);
	capture->image.segments = capture->segments;
	capture->image.heads = capture->heads;
	return err;
}

bool dump_is(const char *path)
{
	return infile_begins(path, MAGIC);
}

int dump_read(struct capture *out, const char *path, uint64_t most_bytes)
{
	struct capture capture = {0};
	struct infile file;

	error_clear();
	int err = archive_infile(&file, path, DUMP_MEMBER);
	if (err)
		return err;
	err = capture_fill(&capture, &file, most_bytes);
	infile_close(&file);
	if (err) {
		capture_free(&capture);
		return err;
	}
	*out = capture;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording: the file itself ('F'), or what its checksums hide from a fuzzer, the records one
 * after the other: {kind, difference of the size unpacked, bytes in two bytes, data}. Those of kind
 * PACK are packed against the ones before.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "report/recording/record_file.h"
#include "report/recording/recording.h"
#include "report/recording/span.h"
#include "snapshot_use.h"
#include "util/buffer.h"
#include "util/json.h"

#define SECOND 1000000000ull

/* of a record; its other bits are flags of the header */
#define PACK 0x80

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int span_use(const struct recording_span *span, void *out)
{
	struct json json = {.out = out};

	return recording_span_json(&json, span, 5);
}

static void spans_use(unsigned char *data, size_t size)
{
	const size_t numbers[] = {0, 1, 3};
	struct infile file = infile_memory(data, size);
	FILE *out = fopen("/dev/null", "w");

	if (!out)
		abort();
	recording_spans_read(&file, numbers, 3, span_use, out);
	fclose(out);
}

static void file_use(unsigned char *data, size_t size)
{
	struct infile file = infile_memory(data, size);
	struct recording_moment moment;
	struct recording *recording;
	struct snapshot *snapshot;
	size_t count = 0;
	int more;

	if (recording_new(&recording, &file))
		return;
	while ((more = recording_next(recording, UINT64_MAX, &moment)) > 0) {
		if (moment.index != count++)
			abort();
		/* Not of all, so that some are unpacked only on the way to another one. */
		if (moment.index % 3 == 1 || recording_snapshot(recording, &snapshot))
			continue;
		snapshot_use(snapshot);
		snapshot_free(snapshot);
	}
	if (!more && infile_offset(&file) < size && !recording_damage(recording)[0])
		abort();
	recording_free(recording);
	spans_use(data, size);
}

static void append(struct buffer *out, const void *data, size_t size)
{
	if (size && buffer_append(out, data, size))
		abort();
}

/* Appends a record's data, packed. */
static void pack(const struct buffer *prefix, const uint8_t *data, size_t size, struct buffer *out)
{
	ZSTD_CCtx *zstd = ZSTD_createCCtx();

	if (!zstd || buffer_reserve(out, ZSTD_compressBound(size)))
		abort();
	ZSTD_CCtx_refPrefix(zstd, prefix->data, prefix->size);
	out->size +=
		ZSTD_compress2(zstd, out->data + out->size, out->capacity - out->size, data, size);
	ZSTD_freeCCtx(zstd);
}

static void record_append(const uint8_t *head, const uint8_t *data, size_t size, uint64_t since_ns,
			  struct buffer *before, struct buffer *out)
{
	struct record_header header = {.magic = RECORD_MAGIC,
				       .flags = head[0] & ~PACK,
				       .since_ns = since_ns,
				       .unpacked = (uint32_t)((int)size + (int8_t)head[1])};
	size_t at = out->size;

	append(out, &header, sizeof(header));
	if (header.flags & RECORD_WHOLE)
		before->size = 0;
	if (head[0] & PACK)
		pack(before, data, size, out);
	else
		append(out, data, size);
	before->size = 0;
	append(before, data, size);
	if (!(head[0] & PACK)) /* a frame of zstd that tells its size */
		header.unpacked = (uint32_t)ZSTD_getFrameContentSize(data, size) + head[1];
	header.packed = (uint32_t)(out->size - at - sizeof(header));
	header.checksum = (uint32_t)crc32(
		crc32(0, (const Bytef *)&header, offsetof(struct record_header, checksum)),
		out->data + at + sizeof(header), header.packed);
	memcpy(out->data + at, &header, sizeof(header));
}

static void records_use(const uint8_t *data, size_t size)
{
	struct recording_header header = {.version = RECORDING_VERSION};
	struct buffer file = {0}, before = {0};
	uint64_t since_ns = 0;

	memcpy(header.magic, RECORDING_MAGIC, sizeof(header.magic));
	append(&file, &header, sizeof(header));
	while (size >= 4) {
		const uint8_t *head = data;
		size_t bytes = head[2] | (size_t)head[3] << 8;

		data += 4;
		size -= 4;
		bytes = bytes < size ? bytes : size;
		record_append(head, data, bytes, since_ns += SECOND, &before, &file);
		data += bytes;
		size -= bytes;
	}
	file_use(file.data, file.size);
	buffer_free(&file);
	buffer_free(&before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char *copy = malloc(size + 1);

	if (!copy)
		abort();
	memcpy(copy, data, size);
	if (size && copy[0] == 'F')
		file_use(copy + 1, size - 1);
	else if (size)
		records_use(copy + 1, size - 1);
	free(copy);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "recording/recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/error.h"
#include "pprof/pprof.h"
#include "recording/profile_split.h"

/* Samples that are gone are dropped by a whole record when they are more than those that live. */
#define DEAD_SPARE 4096u

static int write_all(int fd, const void *data, size_t bytes, uint64_t at)
{
	const unsigned char *from = data;

	while (bytes) {
		ssize_t n = pwrite(fd, from, bytes, (off_t)at);

		if (n < 0 && errno != EINTR)
			return error_set(-errno, "cannot write the recording: %s", strerror(errno));
		if (n < 0)
			continue;
		from += n;
		at += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

int recorder_begin(int file, uint64_t begin_realtime_ns)
{
	struct recording_header header = {.version = RECORDING_VERSION,
					  .begin_realtime_ns = begin_realtime_ns};

	memcpy(header.magic, RECORDING_MAGIC, sizeof(header.magic));
	return write_all(file, &header, sizeof(header), 0);
}

/* A file in memory, as a whole. */
static int file_read(int fd, struct buffer *out)
{
	off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	int err = bytes < 0 ? -errno : buffer_reserve(out, (size_t)bytes);

	while (!err && out->size < (size_t)bytes) {
		ssize_t n = pread(fd, out->data + out->size, (size_t)bytes - out->size,
				  (off_t)out->size);

		if (n > 0)
			out->size += (size_t)n;
		else if (!n || errno != EINTR)
			err = n ? -errno : -EIO;
	}
	return err;
}

/* The state's file: the dictionary, its length before it; then the payload of a whole record. */
static int state_load(int fd, struct buffer *file, struct span *dictionary,
		      struct record_state *state)
{
	struct span rest;
	int err = file_read(fd, file);

	*dictionary = (struct span){0};
	if (err || !file->size)
		return err;
	rest = (struct span){.data = file->data, .bytes = file->size};
	return span_take(&rest, dictionary) ?: record_state_apply(state, rest);
}

static int state_store(const struct recorder *recorder, const struct record_state *state,
		       struct span dictionary)
{
	struct buffer file = {0};
	int err = record_put_span(&file, dictionary) ?: record_payload(state, NULL, NULL, &file);

	if (!err)
		err = write_all(recorder->next, file.data, file.size, 0);
	buffer_free(&file);
	return err;
}

/* Packs to `out`, after what is in it. */
static int pack(struct span payload, struct span dictionary, struct buffer *out)
{
	z_stream zlib = {0};
	int err;

	if (deflateInit2(&zlib, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 9,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	err = buffer_reserve(out, deflateBound(&zlib, payload.bytes));
	if (!err && dictionary.bytes &&
	    deflateSetDictionary(&zlib, dictionary.data, (uInt)dictionary.bytes) != Z_OK)
		err = -EIO;
	if (!err) {
		zlib.next_in = (Bytef *)payload.data;
		zlib.avail_in = (uInt)payload.bytes;
		zlib.next_out = out->data + out->size;
		zlib.avail_out = (uInt)(out->capacity - out->size);
		err = deflate(&zlib, Z_FINISH) == Z_STREAM_END ? 0 : -EIO;
		out->size += zlib.total_out;
	}
	deflateEnd(&zlib);
	return err;
}

static int record_write(const struct recorder *recorder, struct span payload,
			struct span dictionary, uint32_t flags)
{
	struct record_header header = {.magic = RECORD_MAGIC,
				       .flags = flags,
				       .since_ns = recorder->since_ns,
				       .memory_left = recorder->memory_left,
				       .unpacked = (uint32_t)payload.bytes};
	const size_t summed = offsetof(struct record_header, checksum);
	struct buffer record = {0};
	int err = payload.bytes > RECORD_BYTES_MAX
			  ? error_set(-EFBIG, "the snapshot is too large for a recording")
			  : buffer_append(&record, &header, sizeof(header));

	if (!err)
		err = pack(payload, dictionary, &record);
	if (!err) {
		header.packed = (uint32_t)(record.size - sizeof(header));
		header.checksum = (uint32_t)crc32(crc32(0, (const Bytef *)&header, (uInt)summed),
						  record.data + sizeof(header), header.packed);
		memcpy(record.data, &header, sizeof(header));
		err = write_all(recorder->file, record.data, record.size, recorder->end);
	}
	buffer_free(&record);
	return err;
}

/* The state after the profile, and the payload that leads to it. */
static int state_advance(struct record_state *state, struct span profile, struct buffer *payload,
			 uint32_t *flags)
{
	struct record_state before = {.rows = state->rows, .row_capacity = state->row_capacity};
	size_t known[RECORD_KINDS], samples;
	int err = state->width ? 0 : -ESTALE;

	for (int kind = 0; kind < RECORD_KINDS; kind++)
		known[kind] = state->kinds[kind].count;
	state->rows = NULL;
	state->row_capacity = 0;
	if (!err)
		err = profile_split(state, profile);
	samples = state->kinds[RECORD_SAMPLES].count;
	*flags = err == -ESTALE || samples - state->live > state->live + DEAD_SPARE ? RECORD_WHOLE
										    : 0;
	if (*flags) {
		record_state_free(state);
		err = profile_split(state, profile);
	}
	if (!err)
		err = record_payload(state, *flags ? NULL : known, before.rows, payload);
	free(before.rows);
	return err;
}

int recorder_append(const struct recorder *recorder, const struct snapshot *snapshot)
{
	struct record_state state = {0};
	struct buffer file = {0}, profile = {0}, payload = {0};
	struct span dictionary, whole;
	uint32_t flags = 0;
	int err = state_load(recorder->state, &file, &dictionary, &state);

	if (!err)
		err = pprof_write_unpacked(snapshot, &profile);
	if (!err)
		err = state_advance(&state,
				    (struct span){.data = profile.data, .bytes = profile.size},
				    &payload, &flags);
	whole = (struct span){.data = payload.data, .bytes = payload.size};
	if (flags)
		dictionary.bytes = 0;
	if (!err)
		err = record_write(recorder, whole, dictionary, flags);
	whole.bytes = whole.bytes < RECORD_DICTIONARY ? whole.bytes : RECORD_DICTIONARY;
	if (!err)
		err = state_store(recorder, &state, whole);
	record_state_free(&state);
	buffer_free(&file);
	buffer_free(&profile);
	buffer_free(&payload);
	return err;
}

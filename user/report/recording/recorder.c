/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/recorder.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "report/pprof/pprof.h"
#include "report/pprof/pprof_wire.h"
#include "util/buffer.h"
#include "util/error.h"

#define LEVEL        6
#define HASH_LOG     19 /* of the level */
#define HASH_LOG_MAX 24 /* a table of 64 MiB */

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

static int last_load(int fd, struct buffer *out)
{
	off_t bytes = lseek(fd, 0, SEEK_END);
	int err = bytes < 0 ? error_errno() : buffer_reserve(out, (size_t)bytes);

	while (!err && out->size < (size_t)bytes) {
		ssize_t n = pread(fd, out->data + out->size, (size_t)bytes - out->size,
				  (off_t)out->size);

		if (n > 0)
			out->size += (size_t)n;
		else if (!n || errno != EINTR)
			err = n ? error_errno() : -EIO;
	}
	return err;
}

static int last_store(int fd, const struct buffer *last)
{
	return ftruncate(fd, (off_t)last->size) ? error_errno()
						: write_all(fd, last->data, last->size, 0);
}

static struct span profile_of(const struct buffer *last)
{
	return (struct span){.data = last->data + sizeof(struct recorder_last),
			     .bytes = last->size - sizeof(struct recorder_last)};
}

/*
 * Packs to `out`, after what is in it. zstd indexes eight bytes of a prefix for each entry of its
 * table of hashes: that of its level would know the end of a large prefix only.
 */
static int pack(struct span profile, struct span prefix, struct buffer *out)
{
	int window = 64 - __builtin_clzll(prefix.bytes + profile.bytes), hash = window - 4, err;
	size_t bytes = 0;
	ZSTD_CCtx *zstd = ZSTD_createCCtx();

	if (!zstd)
		return -ENOMEM;
	ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, LEVEL);
	/* Where it is out of range, zstd's own choice is as good. */
	ZSTD_CCtx_setParameter(zstd, ZSTD_c_windowLog, window);
	if (hash > HASH_LOG)
		ZSTD_CCtx_setParameter(zstd, ZSTD_c_hashLog,
				       hash < HASH_LOG_MAX ? hash : HASH_LOG_MAX);
	ZSTD_CCtx_refPrefix(zstd, prefix.data, prefix.bytes);
	err = buffer_reserve(out, ZSTD_compressBound(profile.bytes));
	if (!err)
		bytes = ZSTD_compress2(zstd, out->data + out->size, out->capacity - out->size,
				       profile.data, profile.bytes);
	if (ZSTD_isError(bytes))
		err = error_set(-EIO, "cannot pack the snapshot: %s", ZSTD_getErrorName(bytes));
	else
		out->size += bytes;
	ZSTD_freeCCtx(zstd);
	return err;
}

static int record_write(const struct recorder *recorder, struct span profile, struct span prefix)
{
	struct record_header header = {.magic = RECORD_MAGIC,
				       .flags = prefix.bytes ? 0 : RECORD_WHOLE,
				       .since_ns = recorder->since_ns,
				       .memory_left = recorder->memory_left,
				       .unpacked = (uint32_t)profile.bytes};
	const size_t summed = offsetof(struct record_header, checksum);
	struct buffer record = {0};
	int err = profile.bytes > RECORD_BYTES_MAX
			  ? error_set(-EFBIG, "the snapshot is too large for a recording")
			  : buffer_append(&record, &header, sizeof(header));

	err = err ?: pack(profile, prefix, &record);
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

static struct recorder_last head_of(const struct buffer *last)
{
	struct recorder_last head = {0};

	if (last->size > sizeof(head))
		memcpy(&head, last->data, sizeof(head));
	else if (getrandom(&head.seed, sizeof(head.seed), GRND_NONBLOCK) < 0)
		head.seed = 1;
	return head;
}

int recorder_append(const struct recorder *recorder, const struct snapshot *snapshot)
{
	struct buffer last = {0}, next = {0};
	struct span prefix = {0};
	int err = last_load(recorder->last, &last);
	struct recorder_last head = head_of(&last);

	err = err ?: buffer_append(&next, &head, sizeof(head));
	err = err ?: pprof_write_unpacked(snapshot, head.seed, &next);
	if (!err) {
		struct span profile = profile_of(&next);

		if (head.run && head.run + profile.bytes <= RECORD_RUN)
			prefix = profile_of(&last);
		head.run = profile.bytes + (prefix.bytes ? head.run : 0);
		memcpy(next.data, &head, sizeof(head));
		err = record_write(recorder, profile, prefix) ?: last_store(recorder->last, &next);
	}
	buffer_free(&last);
	buffer_free(&next);
	return err;
}

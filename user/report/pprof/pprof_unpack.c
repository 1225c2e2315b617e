/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gzip layer of a profile. gzip packs at most 1032 to 1, and a profile far less. A file that is
 * made to fill the memory is rejected once it has unpacked to BOMB_BYTES and to BOMB_RATIO times
 * its own size.
 */
#include <errno.h>
#include <zlib.h>

#include "report/pprof/pprof.h"
#include "util/account.h"
#include "util/buffer.h"
#include "util/error.h"

#define UNPACKED_MAX UINT32_MAX
#define CHUNK        65536u
#define BOMB_BYTES   (64ull << 20)
#define BOMB_RATIO   200

static int size_check(const z_stream *zlib, const struct buffer *out)
{
	if (out->size > UNPACKED_MAX)
		return error_set(-EFBIG, "unpacks to more than 4 GiB");
	if (out->size > BOMB_BYTES && out->size / BOMB_RATIO > zlib->total_in)
		return error_set(-EFBIG, "unpacks to more than %d times its size: not a profile",
				 BOMB_RATIO);
	return 0;
}

/* Inflates what zlib holds as input into out. Z_OK, Z_STREAM_END, or -errno. */
static int chunk_inflate(z_stream *zlib, struct buffer *out)
{
	int status;

	do {
		int err = buffer_reserve(out, CHUNK);

		if (err)
			return err;
		zlib->next_out = out->data + out->size;
		zlib->avail_out = CHUNK;
		status = inflate(zlib, Z_NO_FLUSH);
		out->size += CHUNK - zlib->avail_out;
		err = size_check(zlib, out);
		if (err)
			return err;
		if (status == Z_MEM_ERROR)
			return -ENOMEM;
		if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
			return error_set(-EBADMSG, "corrupt: its gzip data are damaged");
	} while (status != Z_STREAM_END && (zlib->avail_in || !zlib->avail_out));
	return status == Z_STREAM_END ? Z_STREAM_END : Z_OK;
}

static int file_inflate(struct infile *file, z_stream *zlib, struct buffer *out)
{
	int status = Z_OK;

	for (;;) {
		int err = infile_fill(file, 1);

		if (err)
			return err;
		if (file->at == file->end)
			break;
		zlib->next_in = file->data + file->at;
		zlib->avail_in = (uInt)(file->end - file->at);
		if (status != Z_STREAM_END)
			status = chunk_inflate(zlib, out);
		if (status < 0)
			return status;
		if (zlib->avail_in)
			return error_set(-EBADMSG, "corrupt: more bytes follow the gzip data");
		file->at = file->end;
	}
	return status == Z_STREAM_END
		       ? 0
		       : error_set(-EBADMSG, "truncated: its gzip data end too early");
}

int pprof_unpack(struct infile *file, struct buffer *out)
{
	const int gzip = 16 + MAX_WBITS;
	z_stream zlib = {0};
	int err = inflateInit2(&zlib, gzip) == Z_OK ? file_inflate(file, &zlib, out) : -ENOMEM;

	inflateEnd(&zlib);
	buffer_trim(out);
	return err;
}

int pprof_read(struct infile *file, struct snapshot **out)
{
	struct buffer profile = {0};
	int err = pprof_unpack(file, &profile);

	if (!err) {
		/* The limit includes the unpacked profile. */
		struct account account = {
			.limit = account_file_limit(infile_offset(file), PPROF_RATIO),
			.used = profile.size};

		err = pprof_parse_in(&account, profile.data, profile.size, out);
	}
	buffer_free(&profile);
	return err;
}

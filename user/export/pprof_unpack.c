/* SPDX-License-Identifier: Apache-2.0 */
/* The gzip around a profile. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include "base/buffer.h"
#include "base/error.h"
#include "export/pprof.h"

#define UNPACKED_MAX UINT32_MAX
#define CHUNK        65536u

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
		if (out->size > UNPACKED_MAX)
			return error_set(-EFBIG, "unpacks to more than 4 GiB");
		if (status == Z_MEM_ERROR)
			return -ENOMEM;
		if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
			return error_set(-EBADMSG, zlib->total_in > 2 ? "corrupt: its gzip data are damaged"
								      : "not a gzip'd profile");
	} while (status != Z_STREAM_END && (zlib->avail_in || !zlib->avail_out));
	return status == Z_STREAM_END ? Z_STREAM_END : Z_OK;
}

static int file_inflate(int fd, z_stream *zlib, struct buffer *out)
{
	unsigned char chunk[CHUNK];
	int status = Z_OK;

	for (;;) {
		ssize_t got = read(fd, chunk, sizeof(chunk));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (!got)
			break;
		zlib->next_in = chunk;
		zlib->avail_in = (uInt)got;
		if (status != Z_STREAM_END)
			status = chunk_inflate(zlib, out);
		if (status < 0)
			return status;
		if (zlib->avail_in)
			return error_set(-EBADMSG, "corrupt: more bytes follow the gzip data");
	}
	return status == Z_STREAM_END ? 0 : error_set(-EBADMSG, "truncated: its gzip data end too early");
}

int pprof_read(const char *path, struct snapshot **out)
{
	const int gzip = 16 + MAX_WBITS;
	struct buffer profile = {0};
	z_stream zlib = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	err = inflateInit2(&zlib, gzip) == Z_OK ? file_inflate(fd, &zlib, &profile) : -ENOMEM;
	inflateEnd(&zlib);
	close(fd);
	if (!err)
		err = pprof_parse(profile.data, profile.size, out);
	buffer_free(&profile);
	return err;
}

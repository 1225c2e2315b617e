/* SPDX-License-Identifier: Apache-2.0 */
#include "util/gzip.h"

#include <stdint.h>
#include <zlib.h>

#include "util/error.h"

#define GZIP 16 /* a gzip header, not zlib's */

int gzip_append(const void *data, size_t bytes, struct buffer *out)
{
	z_stream zlib = {0};

	if (bytes > UINT32_MAX)
		return error_set(-EFBIG, "the profile has more than 4 GiB");
	if (deflateInit2(&zlib, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP + MAX_WBITS, MAX_MEM_LEVEL,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	size_t most = deflateBound(&zlib, bytes);
	int err = buffer_reserve(out, most);
	zlib.next_in = (Bytef *)data;
	zlib.avail_in = (uInt)bytes;
	zlib.next_out = err ? NULL : out->data + out->size;
	zlib.avail_out = (uInt)most;
	if (!err && deflate(&zlib, Z_FINISH) != Z_STREAM_END)
		err = -EIO;
	if (!err)
		out->size += zlib.total_out;
	deflateEnd(&zlib);
	return err;
}

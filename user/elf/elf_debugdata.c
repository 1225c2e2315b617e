/* SPDX-License-Identifier: Apache-2.0 */
#include "elf/elf_debugdata.h"

#include <errno.h>
#include <lzma.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/error.h"
#include "elf/elf_section.h"

#define PIECE_BYTES  (64u << 10)
#define MEMORY_BYTES (64u << 20) /* xz -9 needs 65 MiB, and the symbols of no file need that */

static int unpack(lzma_stream *stream, int fd)
{
	uint8_t *piece = malloc(PIECE_BYTES);
	lzma_ret state = LZMA_OK;
	int err = piece ? 0 : -ENOMEM;

	while (!err && state == LZMA_OK) {
		stream->next_out = piece;
		stream->avail_out = PIECE_BYTES;
		state = lzma_code(stream, LZMA_FINISH);
		if (state != LZMA_OK && state != LZMA_STREAM_END)
			err = error_set(-ENOEXEC, "damaged .gnu_debugdata: xz error %d", state);
		else if (stream->total_out > ELF_DEBUGDATA_MAX)
			err = error_set(-ENOEXEC, ".gnu_debugdata has more than %u MiB unpacked",
					ELF_DEBUGDATA_MAX >> 20);
		else
			err = descriptor_write(fd, piece, PIECE_BYTES - stream->avail_out);
	}
	free(piece);
	return err;
}

static int debugdata_unpack(const Elf_Data *data, int fd)
{
	lzma_stream stream = LZMA_STREAM_INIT;
	int err;

	if (lzma_stream_decoder(&stream, MEMORY_BYTES, 0) != LZMA_OK)
		return -ENOMEM;
	stream.next_in = data->d_buf;
	stream.avail_in = data->d_size;
	err = unpack(&stream, fd);
	lzma_end(&stream);
	return err;
}

int elf_debugdata_open(struct elf_debug *out, Elf *elf)
{
	GElf_Shdr header;
	Elf_Scn *section = elf_section_by_name(elf, ".gnu_debugdata", &header);
	Elf_Data *data = section && header.sh_size <= ELF_DEBUGDATA_MAX
				 ? elf_section_data(section, &header)
				 : NULL;
	uint64_t bytes;
	int fd, err;

	if (!data || !data->d_size)
		return -ENOENT;
	fd = memfd_create("debugdata", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = debugdata_unpack(data, fd);
	if (!err)
		err = elf_section_begin(&out->elf, fd, &bytes);
	if (err)
		close(fd);
	else
		out->fd = fd;
	return err;
}

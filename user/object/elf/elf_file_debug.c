/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <lzma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "object/elf/elf_debug.h"
#include "object/elf/elf_file_state.h"
#include "object/elf/elf_section.h"
#include "util/descriptor.h"
#include "util/error.h"

/* --- elf debugdata ---------------------------------------------------------------------------- */

/*
 * The symbols that a stripped file carries with it, packed by xz, in its section .gnu_debugdata:
 * an ELF file with the .symtab of its functions ("MiniDebugInfo", as Fedora makes it).
 */

#define ELF_DEBUGDATA_MAX (64u << 20) /* bytes, unpacked */

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

	if (lzma_stream_decoder(&stream, MEMORY_BYTES, 0) != LZMA_OK)
		return -ENOMEM;
	stream.next_in = data->d_buf;
	stream.avail_in = data->d_size;
	int err = unpack(&stream, fd);
	lzma_end(&stream);
	return err;
}

/*
 * Unpacks it into a file in memory. The section is hostile, and liblzma takes up to 64 MiB: call it
 * only in a process that may be killed (object/symbols/worker.h). 0: close with elf_debug_close();
 * -ENOENT: there is none; -ENOEXEC (error_set): damaged or too large; -ENOMEM; -errno.
 */
static int elf_debugdata_open(struct elf_debug *out, Elf *elf)
{
	GElf_Shdr header;
	Elf_Scn *section = elf_section_by_name(elf, ".gnu_debugdata", &header);
	Elf_Data *data = section && header.sh_size <= ELF_DEBUGDATA_MAX
				 ? elf_section_data(section, &header)
				 : NULL;
	uint64_t bytes;

	if (!data || !data->d_size)
		return -ENOENT;
	int fd = memfd_create("debugdata", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	int err = debugdata_unpack(data, fd) ?: elf_section_begin(&out->elf, fd, &bytes);
	if (err)
		close(fd);
	else
		out->fd = fd;
	return err;
}

/* --- elf file debug --------------------------------------------------------------------------- */

int elf_file_load_debug(struct elf_file *file)
{
	if (file->debug_err > 0)
		file->debug_err = elf_debug_open(&file->debug, file->elf, file->build_id,
						 file->path, file->debug_root);
	return file->debug_err;
}

int elf_file_load_debugdata(struct elf_file *file)
{
	if (file->debugdata_err > 0)
		file->debugdata_err = elf_debugdata_open(&file->debugdata, file->elf);
	return file->debugdata_err;
}

int elf_file_debug_fd(struct elf_file *file)
{
	return elf_file_load_debug(file) ? -1 : file->debug.fd;
}

int elf_file_open_apart(struct elf_file **out, int fd, int debug_fd)
{
	struct elf_file *file;
	uint64_t bytes;
	int err = elf_file_open(&file, fd, "", NULL);

	if (err)
		return err;
	file->symbols_max = ELF_SYMBOLS_MAX;
	file->debugdata_err = 1;
	file->debug_err =
		debug_fd < 0 ? -ENOENT : elf_section_begin(&file->debug.elf, debug_fd, &bytes);
	if (!file->debug_err)
		file->debug.fd = debug_fd;
	else if (debug_fd >= 0)
		close(debug_fd);
	*out = file;
	return 0;
}

static int has_dwarf(Elf *elf)
{
	GElf_Shdr header;

	return elf_section_by_name(elf, ".debug_info", &header) && header.sh_type != SHT_NOBITS;
}

int elf_file_find_debug(struct elf_file *file, int root)
{
	if (!file->debug_err)
		return 0;
	file->debug_err =
		elf_debug_open_in(&file->debug, file->elf, file->build_id, file->path, root);
	if (file->debug_err) {
		file->debug_err = 1; /* the other directories are searched later */
		return -ENOENT;
	}
	/* Its common part can only be in the same root. */
	if (!has_dwarf(file->elf) &&
	    !elf_debug_open_alternate(&file->alternate, file->debug.elf, NULL, root))
		file->alternate_fd = file->alternate.fd;
	return 0;
}

int elf_file_dwarf(struct elf_file *file, int *fd, int *alternate_fd)
{
	Elf *elf = file->elf;

	if (file->dwarf_err > 0) {
		file->dwarf_err = 0;
		file->dwarf_fd = file->fd;
		if (!has_dwarf(elf)) {
			file->dwarf_err = elf_file_load_debug(file);
			if (!file->dwarf_err && !has_dwarf(file->debug.elf))
				file->dwarf_err = -ENOENT;
			elf = file->debug.elf;
			file->dwarf_fd = file->debug.fd;
		}
		if (!file->dwarf_err && file->alternate_fd < 0 &&
		    !elf_debug_open_alternate(&file->alternate, elf, file->debug_root, -1))
			file->alternate_fd = file->alternate.fd;
	}
	if (file->dwarf_err)
		return file->dwarf_err;
	*fd = file->dwarf_fd;
	*alternate_fd = file->alternate_fd;
	return 0;
}

int elf_file_lacks_debug(struct elf_file *file, char build_id[ELF_BUILD_ID_HEX_MAX])
{
	int fd, alternate_fd;

	if (elf_file_dwarf(file, &fd, &alternate_fd)) {
		snprintf(build_id, ELF_BUILD_ID_HEX_MAX, "%s", file->build_id);
		return build_id[0] && file->debug_err;
	}
	return alternate_fd < 0 &&
	       !elf_debug_alternate_id(fd == file->fd ? file->elf : file->debug.elf, build_id);
}

static int is_of(const struct elf_file *file, Elf *elf)
{
	char build_id[ELF_BUILD_ID_HEX_MAX];

	elf_section_build_id(elf, build_id);
	return build_id[0] && !strcmp(build_id, file->build_id);
}

int elf_file_take_debug(struct elf_file *file, int fd)
{
	struct elf_debug debug = {.fd = fd};
	uint64_t bytes;
	int err = elf_section_begin(&debug.elf, fd, &bytes);

	if (err) {
		close(fd);
		return -ENOENT;
	}
	if (!is_of(file, debug.elf) || !file->debug_err) {
		elf_debug_close(&debug);
		/* A common part lies in the cache of debuginfod's clients, where it is found. */
		file->dwarf_err = file->debug_err ? file->dwarf_err : 1;
		return file->debug_err ? -ENOENT : 0;
	}
	file->debug = debug;
	file->debug_err = 0;
	file->dwarf_err = 1;
	return 0;
}

void elf_file_close_debug(struct elf_file *file)
{
	if (file->alternate_fd >= 0)
		elf_debug_close(&file->alternate);
	if (!file->debug_err)
		elf_debug_close(&file->debug);
	if (!file->debugdata_err)
		elf_debug_close(&file->debugdata);
}

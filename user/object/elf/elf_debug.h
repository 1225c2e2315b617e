/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the separate debug file of an ELF file on this machine. */
#pragma once

#include <gelf.h>

#include "object/elf/elf_section.h"

struct elf_debug {
	int fd;
	Elf *elf;
};

/*
 * Looks for ROOT/.build-id/xx/yyyy.debug with the same build id, then for the file that
 * .gnu_debuglink of elf names, in ROOT + directory of path, with the same checksum. root: NULL for
 * /usr/lib/debug, before it (for .gnu_debuglink) the directory of path and .debug/ in it, without
 * symbolic links, and, by build id, the cache of debuginfod's clients ($DEBUGINFOD_CACHE_PATH, else
 * debuginfod_client in $XDG_CACHE_HOME or ~/.cache), without network. build_id in hex, "" for none.
 * A file that does not match counts as absent. 0, close with elf_debug_close(); -ENOENT.
 */
int elf_debug_open(struct elf_debug *out, Elf *elf, const char *build_id, const char *path,
		   const char *root);
/*
 * The same in usr/lib/debug of an untrusted root, and beside path in it. The root is given by a
 * descriptor: links are resolved within it.
 */
int elf_debug_open_in(struct elf_debug *out, Elf *elf, const char *build_id, const char *path,
		      int root);
/*
 * The file with the part that several debug files share (dwz), named by .gnu_debugaltlink of elf:
 * by its build id, then as ROOT/.dwz/NAME, with the same build id, and in the cache of debuginfod's
 * clients. base: ROOT, NULL for usr/lib/debug; root: a descriptor as above, -1 for our own root. 0,
 * close with elf_debug_close(); -ENOENT.
 */
int elf_debug_open_alternate(struct elf_debug *out, Elf *elf, const char *base, int root);
/* The build id of that file, in hex. 0; -ENOENT: there is no such link. */
int elf_debug_alternate_id(Elf *elf, char build_id[ELF_BUILD_ID_HEX_MAX]);
void elf_debug_close(struct elf_debug *debug);

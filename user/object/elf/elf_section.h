/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libelf with limits, for elf_file.c and its helpers. Headers are checked before libelf sees the
 * file. At most ELF_SECTION_MAX bytes of a section are loaded, whatever size a (sparse) file
 * claims. A file is refused if its tables (symbols, strings, relocations, notes) are together
 * larger than what the file takes on disk. Files are read, not mapped: their owner may truncate
 * them at any time, and access to a truncated map raises SIGBUS.
 */
#pragma once

#include <gelf.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_SECTION_MAX      (256u << 20)
#define ELF_BUILD_ID_MAX     64u /* bytes */
#define ELF_BUILD_ID_HEX_MAX (2 * ELF_BUILD_ID_MAX + 1)

/*
 * Opens an ELF file of x86-64. fd stays the caller's and must outlive *out, which the caller frees
 * by elf_end(). 0; -ENOEXEC (error_set); -errno.
 */
int elf_section_begin(Elf **out, int fd, uint64_t *file_bytes);
/*
 * The same for the common part of several debug files (dwz), which has the ELF type of a
 * relocatable file.
 */
int elf_section_begin_common(Elf **out, int fd);
/*
 * The first section of that name, or of that type (SHT_*) after `after` (NULL: from the start);
 * NULL: none.
 */
Elf_Scn *elf_section_by_name(Elf *elf, const char *name, GElf_Shdr *header);
Elf_Scn *elf_section_by_type(Elf *elf, uint32_t type, Elf_Scn *after, GElf_Shdr *header);
/*
 * Content, owned by the Elf; NULL if it is not in the file, compressed, too large or corrupt
 * (error_set).
 */
Elf_Data *elf_section_data(Elf_Scn *section, const GElf_Shdr *header);
/* A string table: every offset below *bytes is a terminated string. 0; -ENOEXEC (error_set). */
int elf_section_strings(Elf *elf, size_t index, const char **strings, size_t *bytes);
/* Build id in lower-case hex, "" when there is none. */
void elf_section_build_id(Elf *elf, char out[ELF_BUILD_ID_HEX_MAX]);

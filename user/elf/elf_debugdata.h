/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The symbols that a stripped file carries with it, packed by xz, in its section .gnu_debugdata:
 * an ELF file with the .symtab of its functions ("MiniDebugInfo", as Fedora makes it).
 */
#ifndef TRACER_ELF_ELF_DEBUGDATA_H
#define TRACER_ELF_ELF_DEBUGDATA_H

#include "elf/elf_debug.h"

#define ELF_DEBUGDATA_MAX (64u << 20) /* bytes, unpacked */

/*
 * Unpacks it into a file in memory. The section is hostile, and liblzma takes up to 64 MiB: call it
 * only in a process that may be killed (symbols/worker.h). 0: close with elf_debug_close();
 * -ENOENT: there is none; -ENOEXEC (error_set): damaged or too large; -ENOMEM; -errno.
 */
int elf_debugdata_open(struct elf_debug *out, Elf *elf);

#endif

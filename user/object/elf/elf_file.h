/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols, sections and relocations of one ELF file, from its .dynsym, .symtab and separate debug
 * file (build-id under /usr/lib/debug/.build-id, then .gnu_debuglink, then the cache of debuginfod
 * clients). The file is hostile input: every size and index is checked, work is bounded, and a
 * defect is an error.
 *
 * Addresses ("vaddr") are the file's own; offsets are positions in the file, as uprobes use them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "object/elf/elf_section.h"

struct elf_file;

struct elf_symbol {
	const char *name; /* borrowed until elf_file_forget() or elf_file_close() */
	uint64_t vaddr;   /* for a TLS symbol: offset in the TLS segment */
	uint64_t size;    /* 0: unknown */
	enum { ELF_FROM_DYNSYM, ELF_FROM_SYMTAB, ELF_FROM_DEBUG_FILE, ELF_FROM_DEBUGDATA } source;
	unsigned function : 1, tls : 1, ifunc : 1;
};

/*
 * Takes ownership of fd only on success. path is for messages and for finding the debug file (a
 * copy is kept). debug_root: the only directory in which debug files are searched; NULL for
 * "/usr/lib/debug" and the cache of debuginfod's clients. 0; -ENOEXEC: not an ELF file of x86-64,
 * or a corrupt one (error_set says which); -errno.
 */
int elf_file_open(struct elf_file **out, int fd, const char *path, const char *debug_root);
/*
 * The same in a process dedicated to reading symbols: it also reads tables that are too large to
 * search beside other work, and those that the file carries packed (.gnu_debugdata). debug_fd: the
 * debug file, -1 for none; no other is searched. Takes ownership of both only on success.
 */
int elf_file_open_apart(struct elf_file **out, int fd, int debug_fd);
/* Adds an owner; each owner closes the file. Returns file. */
struct elf_file *elf_file_share(struct elf_file *file);
void elf_file_close(struct elf_file *file);

/*
 * Frees what was read of its symbols and relocations, and with them borrowed names. Later look-ups
 * read it again.
 */
void elf_file_forget(struct elf_file *file);

/* Bytes that its loaded symbols take: the tables as in the file, and their indexes. */
size_t elf_file_symbol_memory(const struct elf_file *file);
int elf_file_fd(const struct elf_file *file);
const char *elf_file_path(const struct elf_file *file);
/* Lower-case hex of the build id, "" when the file has none. */
const char *elf_file_build_id(const struct elf_file *file);
bool elf_file_has_symtab(const struct elf_file *file); /* its own or that of its debug file */
/*
 * Searches usr/lib/debug of another root (a container's) for the debug file, now and before all
 * other directories. root is a descriptor of that root, borrowed for the call; links are resolved
 * within it. 0; -ENOENT.
 */
int elf_file_find_debug(struct elf_file *file, int root);
/* Descriptor of the debug file, borrowed until elf_file_close(); -1: none. */
int elf_file_debug_fd(struct elf_file *file);
/*
 * Descriptors of the file with the DWARF, which is this one or its debug file, and of the file to
 * which dwz has moved the common part, -1 for none. Both are borrowed until elf_file_close(). 0;
 * -ENOENT: no DWARF.
 */
int elf_file_dwarf(struct elf_file *file, int *fd, int *alternate_fd);
/*
 * Is its DWARF, or the common part of it, on no path of this machine? 1, and the build id of what
 * is missing, in hex; 0.
 */
int elf_file_lacks_debug(struct elf_file *file, char build_id[ELF_BUILD_ID_HEX_MAX]);
/*
 * Takes an open debug file that was fetched for it, which it then owns. What elf_file_dwarf() and
 * look-ups of symbols returned before may change. 0; -ENOENT: it is another file's.
 */
int elf_file_take_debug(struct elf_file *file, int fd);

/*
 * Defined symbol of that name, .dynsym first, then .symtab, then the debug file. 0; -ENOENT;
 * -ENOEXEC.
 */
int elf_file_symbol(struct elf_file *file, const char *name, struct elf_symbol *out);
/*
 * The function that covers or starts at vaddr, from the same sources in the same order. 0; -ENOENT;
 * -ENOEXEC.
 */
int elf_file_symbol_at(struct elf_file *file, uint64_t vaddr, struct elf_symbol *out);
/* A loaded section (SHF_ALLOC); its name is borrowed until elf_file_close(). */
struct elf_section {
	const char *name;
	uint64_t vaddr, size;
	unsigned code : 1;     /* executable */
	unsigned contents : 1; /* 1: it has content in the file; 0: zeros */
};
/* The loaded section number index, from 0, in file order. 0 or -ENOENT. */
int elf_file_loaded_section(struct elf_file *file, size_t index, struct elf_section *out);
/* 0 or -ENOENT. */
int elf_file_section(struct elf_file *file, const char *name, uint64_t *vaddr, uint64_t *size);
/* File offset of an address in a loaded segment. 0; -ENOENT: no segment's file part contains it. */
int elf_file_offset(struct elf_file *file, uint64_t vaddr, uint64_t *offset);
int elf_file_vaddr(struct elf_file *file, uint64_t offset, uint64_t *vaddr);
/* What is loaded of a file as one mapping: whole pages, as the kernel maps them. */
struct elf_segment {
	uint64_t start, limit; /* vaddrs */
	uint64_t offset;       /* of start */
};
/* The loaded segment whose file part contains an offset. 0, -ENOENT. */
int elf_file_segment(const struct elf_file *file, uint64_t offset, struct elf_segment *out);
/*
 * Copies up to bytes of the file's content at vaddr. Returns the number of bytes copied, which may
 * be 0, or -errno.
 */
int elf_file_read(struct elf_file *file, uint64_t vaddr, void *out, size_t bytes);
/*
 * Load bias (the difference between address and vaddr) when file offset map_offset is mapped at
 * map_start. Where two segments share a page of the file, only the first map of the file gives a
 * certain result. 0, -ENOENT.
 */
int elf_file_bias(struct elf_file *file, uint64_t map_start, uint64_t map_offset, uint64_t *bias);
/* TLS segment (PT_TLS): size in memory rounded up to its alignment; 0 or -ENOENT. */
int elf_file_tls(struct elf_file *file, uint64_t *block_bytes);
/*
 * An executable rather than a shared library: ET_EXEC, DF_1_PIE, or a PT_INTERP without soname
 * (libc.so.6 has one).
 */
bool elf_file_is_executable(const struct elf_file *file);
/*
 * vaddr of the GOT slot whose relocation is ARCH_MODULE (util/arch.h) for the file's own TLS block
 * (the module id that __tls_get_addr takes). 0 or -ENOENT.
 */
int elf_file_dtpmod_slot(struct elf_file *file, uint64_t *vaddr);
/*
 * vaddrs of the GOT slots that the dynamic linker fills with the address of the named function of
 * another file (ARCH_SLOT, ARCH_ADDRESS). Returns their number, at most capacity.
 */
size_t elf_file_import_slots(struct elf_file *file, const char *name, uint64_t *vaddrs,
			     size_t capacity);
/*
 * The reverse: the name of the function of another file whose address the dynamic linker stores in
 * the slot at vaddr. 0, *name is borrowed until elf_file_forget() or elf_file_close(); -ENOENT.
 */
int elf_file_import_at(struct elf_file *file, uint64_t vaddr, const char **name);
/*
 * The pointer that 8 bytes of data at vaddr hold after dynamic linking, as a vaddr of the file. 0;
 * -ENOENT: the data is not in this file, or the pointer leads to another file.
 */
int elf_file_pointer(struct elf_file *file, uint64_t vaddr, uint64_t *value);
/* DT_SONAME, "" when absent. Borrowed until elf_file_close(). */
const char *elf_file_soname(struct elf_file *file);

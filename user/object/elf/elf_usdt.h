/* SPDX-License-Identifier: Apache-2.0 */
/*
 * USDT probes: the notes of type 3 and owner "stapsdt" in the section .note.stapsdt, as
 * <sys/sdt.h> writes them. Each describes one place in the code.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ELF_USDT_BYTES_MAX (16u << 20) /* of the section */

struct elf_file;

struct elf_usdt {
	uint64_t vaddr;     /* of the instruction */
	uint64_t base;      /* address of the section .stapsdt.base when the file was linked */
	uint64_t semaphore; /* vaddr; 0: none */
	/* terminated, borrowed until each returns */
	const char *provider, *name, *arguments;
};

/* A result other than 0 ends the search, which then returns it. */
typedef int elf_usdt_fn(void *context, const struct elf_usdt *probe);

/*
 * Calls each for every probe in the section's content, in which addresses are as noted. Pure. 0;
 * each's result; -ENOEXEC: a note exceeds the section, or a text its note (error_set). Probes
 * before the defect were reported.
 */
int elf_usdt_parse(const uint8_t *notes, size_t bytes, elf_usdt_fn *each, void *context);
/*
 * The same for a file. Addresses are moved if the file was prelinked since. 0, also without such a
 * section; -ENOEXEC, also for more than ELF_USDT_BYTES_MAX (error_set).
 */
int elf_file_usdt(struct elf_file *file, elf_usdt_fn *each, void *context);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compiler of unwind tables. The input is an ELF file; or, after a zero byte, an .eh_frame and
 * code that are put into one; or, after a byte of 1, a .debug_frame and code; or, after another
 * byte, a packed table. Whatever table results, its arrays are consistent, and it survives packing.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "object/unwind/unwind_table.h"

#define CODE_VADDR 0x1000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* libelf 0.188 loses what it has read of some damaged sections. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libelf.so\n";
}

static const char names[] = "\0.eh_frame\0.shstrtab\0.debug_frame";

#define DEBUG_NAME (sizeof("\0.eh_frame\0.shstrtab") - 1 + 1)

/* An ELF file with .eh_frame and code, each half of the input, at the same addresses as offsets. */
struct wrapped {
	Elf64_Ehdr header;
	Elf64_Phdr segment;
	Elf64_Shdr sections[3];
	char names[sizeof(names)];
};

static void wrapped_set(struct wrapped *file, size_t size, int is_debug)
{
	memcpy(file->header.e_ident, ELFMAG, SELFMAG);
	file->header.e_ident[EI_CLASS] = ELFCLASS64;
	file->header.e_ident[EI_DATA] = ELFDATA2LSB;
	file->header.e_ident[EI_VERSION] = file->header.e_version = EV_CURRENT;
	file->header.e_type = ET_DYN;
	file->header.e_machine = EM_X86_64;
	file->header.e_ehsize = sizeof(file->header);
	file->header.e_phoff = offsetof(struct wrapped, segment);
	file->header.e_phentsize = sizeof(file->segment);
	file->header.e_phnum = 1;
	file->header.e_shoff = offsetof(struct wrapped, sections);
	file->header.e_shentsize = sizeof(file->sections[0]);
	file->header.e_shnum = 3;
	file->header.e_shstrndx = 2;
	file->segment = (Elf64_Phdr){.p_type = PT_LOAD,
				     .p_flags = PF_R | PF_X,
				     .p_offset = CODE_VADDR,
				     .p_vaddr = CODE_VADDR,
				     .p_filesz = size,
				     .p_memsz = size,
				     .p_align = 1};
	file->sections[1] = (Elf64_Shdr){.sh_name = is_debug ? DEBUG_NAME : 1,
					 .sh_type = SHT_PROGBITS,
					 .sh_flags = SHF_ALLOC,
					 .sh_addr = CODE_VADDR,
					 .sh_offset = CODE_VADDR,
					 .sh_size = size / 2,
					 .sh_addralign = 1};
	file->sections[2] = (Elf64_Shdr){.sh_name = sizeof("\0.eh_frame") - 1 + 1,
					 .sh_type = SHT_STRTAB,
					 .sh_offset = offsetof(struct wrapped, names),
					 .sh_size = sizeof(names),
					 .sh_addralign = 1};
	memcpy(file->names, names, sizeof(names));
}

/* The file to read. */
static int file_make(const uint8_t *data, size_t size)
{
	int fd = memfd_create("elf", MFD_CLOEXEC);
	struct wrapped wrapped = {0};
	off_t offset = 0;

	if (fd < 0)
		abort();
	if (size && data[0] <= 1) {
		int is_debug = data[0];

		data++;
		size--;
		wrapped_set(&wrapped, size, is_debug);
		if (write(fd, &wrapped, sizeof(wrapped)) != sizeof(wrapped))
			abort();
		offset = CODE_VADDR;
	}
	if (pwrite(fd, data, size, offset) != (ssize_t)size)
		abort();
	return fd;
}

static void table_check(const struct unwind_table *table)
{
	const struct abi_unwind_rule *rule;
	struct unwind_table *copy;
	const void *packed;
	size_t size;

	packed = unwind_table_pack(table, &size);
	if (unwind_table_unpack(&copy, packed, size))
		abort();
	for (uint32_t page = 0; page < copy->page_count; page++) {
		uint64_t start = (copy->first_page + (uint64_t)page) << ABI_UNWIND_PAGE_BITS;

		for (uint32_t i = copy->pages[page]; i < copy->pages[page + 1]; i++) {
			rule = unwind_table_find(copy, start + copy->rows[i].low);
			if (rule != &copy->rules[copy->rows[i].rule])
				abort();
		}
	}
	/* Nothing is known of addresses outside. */
	rule = unwind_table_find(copy, (copy->first_page + (uint64_t)copy->page_count)
					       << ABI_UNWIND_PAGE_BITS);
	if (rule != &copy->rules[0])
		abort();
	unwind_table_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct unwind_table *table;
	int fd;

	if (!size)
		return 0;
	if (data[0] > 1 && data[0] != ELFMAG0) {
		if (!unwind_table_unpack(&table, data + 1, size - 1)) {
			table_check(table);
			unwind_table_free(table);
		}
		return 0;
	}
	fd = file_make(data, size);
	for (uint32_t rows = ABI_UNWIND_ROWS_CALLS; rows <= ABI_UNWIND_ROWS_ALL; rows++) {
		if (unwind_table_build(&table, fd, -1, rows))
			continue;
		table_check(table);
		unwind_table_free(table);
	}
	close(fd);
	return 0;
}

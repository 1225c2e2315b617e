/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged, truncated and sparse ELF files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "elf_images.h"
#include "object/elf/elf_file.h"
#include "util/error.h"

/* Makes every query. Only the program's survival and known errors matter. */
static void ask_everything(struct elf_file *file)
{
	struct elf_symbol symbol;
	uint64_t a, b;
	char bytes[64];
	int errs[9];

	elf_file_build_id(file);
	elf_file_soname(file);
	elf_file_has_symtab(file);
	elf_file_is_executable(file);
	errs[0] = elf_file_symbol(file, "landmark_function", &symbol);
	if (!errs[0])
		assert_string_equal(symbol.name, "landmark_function");
	errs[1] = elf_file_symbol(file, "nothing", &symbol);
	errs[2] = elf_file_symbol_at(file, 0x2000, &symbol);
	if (!errs[2])
		assert_true(strlen(symbol.name) > 0);
	errs[3] = elf_file_section(file, ".text", &a, &b);
	errs[4] = elf_file_offset(file, 0x2000, &a);
	errs[5] = elf_file_vaddr(file, 0x2000, &a);
	errs[6] = elf_file_bias(file, 0x10000000, 0x1000, &a);
	errs[7] = elf_file_tls(file, &a);
	errs[8] = elf_file_dtpmod_slot(file, &a);
	for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++)
		assert_true(errs[i] == 0 || errs[i] == -ENOENT || errs[i] == -ENOEXEC ||
			    errs[i] == -ENOMEM);
	assert_true(elf_file_read(file, 0x2000, bytes, sizeof(bytes)) <= (int)sizeof(bytes));
}

static void other_files_are_refused(void **state)
{
	struct image *image = *state;
	struct elf_file *file = NULL;
	int fd;

	image->header->e_machine = EM_AARCH64;
	assert_refused(image);
	assert_string_equal(error_reason(-ENOEXEC), "an ELF file of another machine than x86-64");
	image->header->e_machine = EM_X86_64;
	image->header->e_ident[EI_CLASS] = ELFCLASS32;
	assert_refused(image);
	assert_string_equal(error_reason(-ENOEXEC),
			    "a program of 32 bits; only those of x86-64 are supported");
	image->header->e_ident[EI_CLASS] = ELFCLASS64;
	image->header->e_type = ET_CORE;
	assert_refused(image);
	image->header->e_type = ET_DYN;
	image->bytes[0] = 0;
	assert_refused(image);

	fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, "comm", NULL), -ENOEXEC);
	close(fd);
	fd = open("/", O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, "/", NULL), -EISDIR);
	close(fd);
	assert_int_equal(elf_file_open(&file, -1, "nothing", NULL), -EBADF);
	assert_null(file);
}

/* The section table is at the end: without its last byte the file is truncated. */
static void truncated_files_are_refused(void **state)
{
	struct image *image = *state;
	size_t end = image->header->e_shoff + image->header->e_shnum * sizeof(Elf64_Shdr);
	struct elf_file *file;

	assert_int_equal(try_open(image, &file), 0);
	elf_file_close(file);
	for (size_t size = end - 1; size > 64; size -= size / 50 + 1) {
		assert_int_equal(ftruncate(image->fd, (off_t)size), 0);
		assert_refused(image);
	}
	for (size_t size = 0; size <= 64; size++) {
		assert_int_equal(ftruncate(image->fd, (off_t)size), 0);
		assert_refused(image);
	}
	assert_int_equal(ftruncate(image->fd, (off_t)image->size), 0);
}

/* The file shrinks after it was opened: no look-up may end in a SIGBUS. */
static void file_truncated_while_open(void **state)
{
	struct image *image = *state;
	struct elf_file *file;

	assert_int_equal(try_open(image, &file), 0);
	assert_int_equal(ftruncate(image->fd, 4096), 0);
	ask_everything(file);
	elf_file_close(file);
}

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

/*
 * One to three flipped bits in the parts of a file that are read. They are restored after each
 * round.
 */
static void flipped_bits_do_no_harm(void **state)
{
	static const uint32_t types[] = {SHT_DYNSYM, SHT_SYMTAB,  SHT_STRTAB,
					 SHT_RELA,   SHT_DYNAMIC, SHT_NOTE};
	struct image *image = *state;
	uint64_t seed = 1;
	int refused = 0, accepted = 0;

	for (int round = 0; round < 1500; round++) {
		size_t at[3], count = 1 + next_random(&seed) % 3;
		unsigned char mask[3];
		struct elf_file *file;

		for (size_t i = 0; i < count; i++) {
			uint64_t start = 0, size = sizeof(Elf64_Ehdr);
			const Elf64_Shdr *section;

			switch (next_random(&seed) % 4) {
			case 0:
				break;
			case 1:
				start = sizeof(Elf64_Ehdr);
				size = image->header->e_phnum * sizeof(Elf64_Phdr);
				break;
			case 2:
				start = image->size - 40 * sizeof(Elf64_Shdr);
				size = 40 * sizeof(Elf64_Shdr);
				break;
			default:
				section = image_section(image, types[next_random(&seed) % 6]);
				start = section->sh_offset;
				size = section->sh_size;
			}
			at[i] = start + next_random(&seed) % size;
			mask[i] = (unsigned char)(1u << next_random(&seed) % 8);
		}
		for (size_t i = 0; i < count; i++)
			image->bytes[at[i]] ^= mask[i];
		if (try_open(image, &file))
			refused++;
		else {
			accepted++;
			ask_everything(file);
			elf_file_close(file);
		}
		for (size_t i = 0; i < count; i++)
			image->bytes[at[i]] ^= mask[i];
	}
	/* Both must be common, or the flips hit nothing relevant. */
	assert_true(refused > 100);
	assert_true(accepted > 100);
}

/* A sparse file of one terabyte, with a table as large: refused, not loaded. */
static void sparse_giants_are_refused(void **state)
{
	struct image *image = *state;
	Elf64_Shdr *symtab = image_section(image, SHT_SYMTAB);
	Elf64_Shdr *sections = (Elf64_Shdr *)(image->bytes + image->header->e_shoff);
	uint64_t before;

	if (ftruncate(image->fd, (off_t)1 << 40)) {
		print_message("skipped: no sparse files of that size\n");
		skip();
	}
	before = symtab->sh_size;
	symtab->sh_size = 24ull << 20; /* small enough to be loaded if it is not checked */
	assert_refused(image);
	symtab->sh_size = before;

	before = sections[symtab->sh_link].sh_size;
	sections[symtab->sh_link].sh_size = 1ull << 39;
	assert_refused(image);
	sections[symtab->sh_link].sh_size = before;

	sections[image->header->e_shstrndx].sh_size = 1ull << 39;
	assert_refused(image);
	/* The number of sections, stored in section 0 because the header has no room for it. */
	image->header->e_shnum = 0;
	sections[0].sh_size = 1ull << 32;
	assert_refused(image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_image(other_files_are_refused),   with_image(truncated_files_are_refused),
		with_image(file_truncated_while_open), with_image(flipped_bits_do_no_harm),
		with_image(sparse_giants_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

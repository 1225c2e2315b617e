/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A JIT, as GDB sees one: registers the ELF image of a file, unregisters it again. Then: names code
 * in a function of its own, maps, names and unmaps memory. A step is a line on stdin; it answers
 * with one.
 */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct jit_code_entry {
	struct jit_code_entry *next, *prev;
	const char *symfile_addr;
	uint64_t symfile_size;
};

struct jit_descriptor {
	uint32_t version, action_flag;
	struct jit_code_entry *relevant_entry, *first_entry;
};

struct jit_descriptor __jit_debug_descriptor = {1, 0, NULL, NULL};

__attribute__((noinline)) void __jit_debug_register_code(void)
{
	__asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) void note_code(const char *name, size_t bytes, void *address)
{
	__asm__ volatile("" ::"r"(name), "r"(bytes), "r"(address) : "memory");
}

static char line[64];

static void answer(void)
{
	puts("ok");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

/* As a JIT linker does: every section gets an address. */
static char *image_load(const char *path, long *bytes)
{
	FILE *file = fopen(path, "rb");
	char *image;

	if (!file || fseek(file, 0, SEEK_END) || (*bytes = ftell(file)) <= 0)
		exit(1);
	rewind(file);
	image = malloc(*bytes);
	if (fread(image, 1, *bytes, file) != (size_t)*bytes)
		exit(1);
	Elf64_Ehdr *header = (void *)image;
	Elf64_Shdr *sections = (void *)(image + header->e_shoff);
	for (int i = 1; i < header->e_shnum; i++)
		sections[i].sh_addr = 0x700000000000 + i * 0x10000ul;
	fclose(file);
	return image;
}

int main(int argc, char **argv)
{
	struct jit_code_entry entry = {0};
	long bytes;
	void *memory;

	(void)argc;
	entry.symfile_addr = image_load(argv[1], &bytes);
	entry.symfile_size = bytes;
	puts("ready");
	answer();
	__jit_debug_descriptor.relevant_entry = __jit_debug_descriptor.first_entry = &entry;
	__jit_debug_descriptor.action_flag = 1;
	__jit_debug_register_code();
	answer();
	__jit_debug_descriptor.first_entry = NULL;
	__jit_debug_descriptor.action_flag = 2;
	__jit_debug_register_code();
	answer();
	memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	*(volatile char *)memory = (char)0xc3;
	note_code("noted", 0x100000010, (void *)0x600000000000);
	note_code("fleeting", 64, memory);
	answer();
	munmap(memory, 4096);
	answer();
	return 0;
}

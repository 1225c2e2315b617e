/* SPDX-License-Identifier: Apache-2.0 */
/* Core files: what is mapped, what is in them, and what corrupt ones are refused for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/procfs.h>
#include <unistd.h>

#include "proc/core/core_file.h"
#include "util/error.h"

#define PAGE  4096u
#define BASE  0x10000000ull
#define STACK 0x7ffff0000000ull

/* Words of notes, which are aligned by 4. */
typedef uint64_t note_word __attribute__((aligned(4)));

/*
 * A core of four maps: a file's first page, which is in it; the file's second page, which is not;
 * the file's variables, of which one of two pages is; a stack.
 */
struct core_image {
	Elf64_Ehdr header;
	Elf64_Phdr segments[5];
	struct {
		Elf64_Nhdr head;
		char owner[8];
		note_word count, page, maps[3][3];
		char names[96];
	} files;
	struct {
		Elf64_Nhdr head;
		char owner[8];
		struct elf_prpsinfo info __attribute__((packed, aligned(4)));
	} process;
	struct {
		Elf64_Nhdr head;
		char owner[8];
		note_word entries[4];
	} aux;
	uint8_t memory[3 * PAGE];
};

#define CORE_BYTES (offsetof(struct core_image, memory) + 3 * PAGE)

static void note_fill(Elf64_Nhdr *head, char owner[8], uint32_t type, size_t bytes)
{
	*head = (Elf64_Nhdr){.n_namesz = 5, .n_descsz = (uint32_t)bytes, .n_type = type};
	memcpy(owner, "CORE", 5);
}

static void core_fill(struct core_image *core, const char *file)
{
	const struct {
		uint64_t start, bytes, stored;
		uint32_t flags;
	} maps[4] = {{BASE, PAGE, PAGE, PF_R},
		     {BASE + PAGE, PAGE, 0, PF_R | PF_X},
		     {BASE + 2 * PAGE, 2 * PAGE, PAGE, PF_R | PF_W},
		     {STACK, PAGE, PAGE, PF_R | PF_W}};
	uint64_t at = offsetof(struct core_image, memory);

	memset(core, 0, sizeof(*core));
	memcpy(core->header.e_ident, ELFMAG "\x02\x01\x01", 7);
	core->header.e_type = ET_CORE;
	core->header.e_machine = EM_X86_64;
	core->header.e_version = EV_CURRENT;
	core->header.e_ehsize = sizeof(core->header);
	core->header.e_phoff = offsetof(struct core_image, segments);
	core->header.e_phentsize = sizeof(Elf64_Phdr);
	core->header.e_phnum = 5;
	core->segments[0] = (Elf64_Phdr){.p_type = PT_NOTE,
					 .p_offset = offsetof(struct core_image, files),
					 .p_filesz = at - offsetof(struct core_image, files),
					 .p_align = 4};
	for (int i = 0; i < 4; i++) {
		core->segments[i + 1] = (Elf64_Phdr){.p_type = PT_LOAD,
						     .p_flags = maps[i].flags,
						     .p_vaddr = maps[i].start,
						     .p_memsz = maps[i].bytes,
						     .p_offset = at,
						     .p_filesz = maps[i].stored};
		memset((uint8_t *)core + at, 'a' + i, maps[i].stored);
		at += maps[i].stored;
	}
	note_fill(&core->files.head, core->files.owner, NT_FILE,
		  sizeof(core->files) - offsetof(typeof(core->files), count));
	core->files.count = 3;
	core->files.page = PAGE;
	for (uint64_t i = 0; i < 3; i++) {
		core->files.maps[i][0] = BASE + i * PAGE;
		core->files.maps[i][1] = BASE + (i + 1) * PAGE;
		core->files.maps[i][2] = i;
		snprintf(core->files.names + i * (strlen(file) + 1), 50, "%s", file);
	}
	note_fill(&core->process.head, core->process.owner, NT_PRPSINFO,
		  sizeof(struct elf_prpsinfo));
	core->process.info.pr_pid = 4711;
	memcpy(core->process.info.pr_fname, "shop", 5);
	note_fill(&core->aux.head, core->aux.owner, NT_AUXV, sizeof(core->aux.entries));
	memcpy(core->aux.entries, (uint64_t[]){AT_ENTRY, BASE + PAGE, AT_RANDOM, STACK + 8},
	       sizeof(core->aux.entries));
}

static int bytes_open(struct core_file *out, const void *bytes, size_t size, const char *sysroot)
{
	int fd = memfd_create("core", MFD_CLOEXEC), err;

	assert_int_equal(write(fd, bytes, size), size);
	error_clear();
	err = core_open_fd(out, fd, sysroot);
	if (err)
		close(fd);
	return err;
}

static void refused(const struct core_image *core, const char *why)
{
	struct core_file file;

	assert_int_equal(bytes_open(&file, core, CORE_BYTES, NULL), -EINVAL);
	assert_non_null(strstr(error_reason(-EINVAL), why));
}

static void maps_and_notes_are_read(void **state)
{
	struct core_image core;
	struct core_file file;

	(void)state;
	core_fill(&core, "/usr/bin/shop");
	assert_int_equal(bytes_open(&file, &core, CORE_BYTES, NULL), 0);
	assert_int_equal(file.maps.count, 4);
	for (int i = 0; i < 3; i++) {
		assert_string_equal(file.maps.entries[i].path, "/usr/bin/shop");
		assert_int_equal(file.maps.entries[i].offset, i * PAGE);
		assert_int_equal(file.maps.entries[i].inode, 1);
	}
	assert_string_equal(file.maps.entries[3].path, "[stack]");
	assert_true(file.maps.entries[1].executable && !file.maps.entries[1].writable);
	assert_int_equal(file.executable, 1);
	assert_int_equal(file.pid, 4711);
	assert_string_equal(file.name, "shop");
	assert_int_equal(file.bytes_cut, 0);
	core_close(&file);
}

/* The second page comes from the file; what of the variables is neither in it nor there is lost. */
static void memory_comes_from_the_core_and_the_file(void **state)
{
	char path[] = "/tmp/test_core_XXXXXX";
	struct core_image core;
	struct core_file file;
	uint8_t page[PAGE], read[2 * PAGE];
	int fd = mkstemp(path);

	(void)state;
	core_fill(&core, path);
	memset(page, 'a', PAGE);
	assert_int_equal(write(fd, page, PAGE), PAGE);
	memset(page, 'F', PAGE);
	assert_int_equal(write(fd, page, PAGE), PAGE);
	assert_int_equal(bytes_open(&file, &core, CORE_BYTES, NULL), 0);
	assert_int_equal(core_read(&file, BASE + PAGE - 8, read, 16), 0);
	assert_memory_equal(read, "aaaaaaaaFFFFFFFF", 16);
	assert_int_equal(core_read(&file, BASE + 2 * PAGE - 8, read, 16), 0);
	assert_memory_equal(read, "FFFFFFFFcccccccc", 16);
	assert_int_equal(core_read(&file, BASE + 3 * PAGE, read, 8), -EFAULT);
	assert_int_equal(core_read(&file, STACK + PAGE - 8, read, 9), -EFAULT);
	assert_int_equal(core_read(&file, UINT64_MAX, read, 9), -EFAULT);
	core_close(&file);

	/* Another first page: it is another file. */
	assert_int_equal(pwrite(fd, "x", 1, 99), 1);
	assert_int_equal(bytes_open(&file, &core, CORE_BYTES, NULL), 0);
	assert_int_equal(core_map_open(&file, &file.maps.entries[1]), -ESTALE);
	assert_string_equal(file.absent, path);
	assert_int_equal(core_read(&file, BASE + PAGE, read, 8), -EFAULT);
	core_close(&file);
	assert_int_equal(bytes_open(&file, &core, CORE_BYTES, "/proc/self"), 0);
	assert_int_equal(core_map_open(&file, &file.maps.entries[1]), -ENOENT);
	core_close(&file);
	unlink(path);
	close(fd);
}

/* Texts that are known of a file's constants are read where the file is not at hand. */
static void texts_stand_for_a_file(void **state)
{
	struct core_image core;
	struct core_file file;
	char long_text[2 * CORE_TEXT], read[PAGE], zeros[PAGE] = "";

	(void)state;
	memset(long_text, 'x', sizeof(long_text));
	long_text[sizeof(long_text) - 1] = 0;
	core_fill(&core, "/nothing/is/here");
	assert_int_equal(bytes_open(&file, &core, CORE_BYTES, NULL), 0);
	assert_int_equal(core_put(&file, BASE + 2 * PAGE - 4, "set"), 0);
	assert_int_equal(core_put(&file, BASE + PAGE + 100, long_text), 0);
	assert_int_equal(core_put(&file, BASE + PAGE + 16, "tuple"), 0);
	assert_int_equal(core_put(&file, BASE + PAGE + 16, "dict"), 0);
	assert_int_equal(core_read(&file, BASE + PAGE, read, PAGE), 0);
	assert_memory_equal(read + 16, "dict\0", 6);
	assert_memory_equal(read + 100, long_text, CORE_TEXT - 1);
	assert_int_equal(read[100 + CORE_TEXT - 1], 0);
	assert_memory_equal(read, zeros, 16);
	assert_memory_equal(read + PAGE - 4, "set", 4);
	assert_int_equal(core_read(&file, BASE + PAGE + 18, read, 2), 0);
	assert_memory_equal(read, "ct", 2);
	/* What the core has, and pages without a text, are not replaced. */
	assert_int_equal(core_put(&file, BASE + 8, "type"), 0);
	assert_int_equal(core_read(&file, BASE + 8, read, 4), 0);
	assert_memory_equal(read, "aaaa", 4);
	assert_int_equal(core_read(&file, BASE + 3 * PAGE, read, 8), -EFAULT);
	core_close(&file);
}

/* What the core was to have is not taken from the file: it was written to since. */
static void short_cores_have_what_is_left(void **state)
{
	struct core_image core;
	struct core_file file;
	uint8_t byte;

	(void)state;
	core_fill(&core, "/proc/self/exe");
	assert_int_equal(bytes_open(&file, &core, CORE_BYTES - PAGE - 1, NULL), 0);
	assert_int_equal(file.bytes_cut, PAGE + 1);
	assert_int_equal(core_read(&file, BASE + 3 * PAGE - 2, &byte, 1), 0);
	assert_int_equal(core_read(&file, BASE + 3 * PAGE - 1, &byte, 1), -EFAULT);
	assert_int_equal(core_read(&file, STACK, &byte, 1), -EFAULT);
	core_close(&file);
	assert_int_equal(bytes_open(&file, &core, offsetof(struct core_image, process), NULL),
			 -EINVAL);
	assert_int_equal(bytes_open(&file, &core, 40, NULL), -EINVAL);
	assert_int_equal(bytes_open(&file, &core, 0, NULL), -EINVAL);
}

/* gdb writes no segment for what is in a file alone: the list of files has it. */
static void maps_that_only_the_notes_have_are_added(void **state)
{
	struct core_image core;
	struct core_file file;

	(void)state;
	core_fill(&core, "/usr/bin/shop");
	core.segments[2].p_type = PT_NULL;
	assert_int_equal(bytes_open(&file, &core, CORE_BYTES, NULL), 0);
	assert_int_equal(file.maps.count, 4);
	assert_int_equal(file.maps.entries[1].start, BASE + PAGE);
	assert_int_equal(file.maps.entries[1].offset, PAGE);
	assert_int_equal(file.maps.entries[1].inode, 1);
	assert_int_equal(file.contents[1].guessed, 1);
	assert_int_equal(file.contents[2].stored, PAGE);
	assert_int_equal(file.executable, 1);
	core_close(&file);
	core.files.maps[1][1] = BASE + 2 * PAGE + 1;
	refused(&core, "overlap");
}

static void segments_that_lie_are_refused(void **state)
{
	struct core_image core;

	(void)state;
	core_fill(&core, "/usr/bin/shop");
	core.segments[2].p_vaddr = BASE;
	refused(&core, "overlap");
	core_fill(&core, "/usr/bin/shop");
	core.segments[4].p_memsz = UINT64_MAX - PAGE + 1;
	refused(&core, "overlap");
	core_fill(&core, "/usr/bin/shop");
	core.segments[4].p_filesz = 2 * PAGE;
	refused(&core, "overlap");
	core_fill(&core, "/usr/bin/shop");
	core.segments[0].p_filesz = UINT64_MAX;
	refused(&core, "notes");
	core_fill(&core, "/usr/bin/shop");
	core.header.e_phnum = 60000;
	refused(&core, "corrupt");
	core_fill(&core, "/usr/bin/shop");
	core.header.e_phnum = 1;
	refused(&core, "no memory");
	core.header.e_phnum = 0;
	refused(&core, "segments");
	core_fill(&core, "/usr/bin/shop");
	core.header.e_shoff = 64;
	refused(&core, "sections");
	core_fill(&core, "/usr/bin/shop");
	core.header.e_type = ET_DYN;
	refused(&core, "no core file");
	core_fill(&core, "/usr/bin/shop");
	core.header.e_machine = EM_AARCH64;
	refused(&core, "no core file");
}

static void notes_that_lie_are_refused(void **state)
{
	struct core_image core;
	struct core_file file;

	(void)state;
	core_fill(&core, "/usr/bin/shop");
	core.files.count = 1ull << 60;
	refused(&core, "list of files");
	core_fill(&core, "/usr/bin/shop");
	memset(core.files.names, 'x', sizeof(core.files.names));
	refused(&core, "no end");
	/* A page of 2^60 bytes: the file's offset is unknown, and so is the file. */
	core_fill(&core, "/usr/bin/shop");
	core.files.page = 1ull << 60;
	core.files.maps[1][2] = 1ull << 60;
	assert_int_equal(bytes_open(&file, &core, CORE_BYTES, NULL), 0);
	assert_string_equal(file.maps.entries[1].path, "");
	core_close(&file);
	/* A note that is longer than its segment ends the notes. */
	core_fill(&core, "/usr/bin/shop");
	core.process.head.n_descsz = UINT32_MAX;
	assert_int_equal(bytes_open(&file, &core, CORE_BYTES, NULL), 0);
	assert_int_equal(file.pid, 0);
	assert_int_equal(file.executable, file.maps.count);
	core_close(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(maps_and_notes_are_read),
		cmocka_unit_test(memory_comes_from_the_core_and_the_file),
		cmocka_unit_test(texts_stand_for_a_file),
		cmocka_unit_test(short_cores_have_what_is_left),
		cmocka_unit_test(maps_that_only_the_notes_have_are_added),
		cmocka_unit_test(segments_that_lie_are_refused),
		cmocka_unit_test(notes_that_lie_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

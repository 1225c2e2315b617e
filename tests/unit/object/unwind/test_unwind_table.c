/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of small programs that are built for the test, and of damaged ones. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "assembly.h"
#include "object/elf/elf_file.h"
#include "object/unwind/unwind_table.h"
#include "programs.h"
#include "ranges.h"

static char folder[PATH_MAX]; /* of this run */

static int folder_make(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/tracer-unwind-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
	(void)state;
	return run("rm -rf %s", folder);
}

/* The table of a file, and the file for looking up symbols. */
struct built {
	struct elf_file *file;
	struct unwind_table *table;
};

/* Takes ownership of fd. */
static void built_open(struct built *built, int fd)
{
	assert_true(fd >= 0);
	assert_int_equal(unwind_table_build(&built->table, fd, -1, ABI_UNWIND_ROWS_CALLS), 0);
	assert_int_equal(elf_file_open(&built->file, fd, "/built", "/nonexistent"), 0);
}

/* Of an assembly in tests/unit/data/assembly. */
static void built_assemble(struct built *built, const char *name)
{
	built->file = assembly_open("-Wa,-Itests/unit/data/assembly", ".include \"%s.s\"\n", name);
	assert_int_equal(unwind_table_build(&built->table, elf_file_fd(built->file), -1,
					    ABI_UNWIND_ROWS_CALLS),
			 0);
}

static void built_close(struct built *built)
{
	elf_file_close(built->file);
	unwind_table_free(built->table);
}

/* The rule of the byte before a symbol: of the return address that the symbol names. */
static struct abi_unwind_rule rule_before(const struct built *built, const char *symbol)
{
	struct elf_symbol found;
	uint64_t offset;

	assert_int_equal(elf_file_symbol(built->file, symbol, &found), 0);
	assert_int_equal(elf_file_offset(built->file, found.vaddr - 1, &offset), 0);
	return *unwind_table_find(built->table, offset);
}

static void check(const struct built *built, const char *symbol, int kind, int cfa, int rbp)
{
	struct abi_unwind_rule rule = rule_before(built, symbol);

	if (rule.kind != kind || rule.cfa != cfa || rule.rbp != rbp)
		fail_msg("%s: kind %d cfa %d rbp %d", symbol, rule.kind, rule.cfa, rule.rbp);
}

static void each_kind_has_its_rule(void **state)
{
	struct abi_unwind_rule rule;
	struct built built;

	(void)state;
	built_assemble(&built, "unwind");
	check(&built, "in_plain", ABI_UNWIND_RSP, 32, 0);
	check(&built, "in_with_pointer", ABI_UNWIND_RBP, 16, -2);
	check(&built, "in_realigned", ABI_UNWIND_AT_RBP, ABI_UNWIND_CFA_AT(-8, 0), 0);
	assert_int_equal(rule_before(&built, "in_realigned").flags, ABI_UNWIND_RBP_AT_RBP);
	check(&built, "in_saved", ABI_UNWIND_AT_RSP, ABI_UNWIND_CFA_AT(64, 8), -3);
	check(&built, "in_after_expression", ABI_UNWIND_RSP, 56, 0);
	check(&built, "in_outermost", ABI_UNWIND_END, 0, 0);
	check(&built, "restore", ABI_UNWIND_SIGNAL, 0, 0);
	check(&built, "in_two_gigabytes", ABI_UNWIND_RSP, 0x7ffffff8, 0);
	/* Covered, but no kind has it: told from what is not covered, which is rule 0. */
	check(&built, "in_other_register", ABI_UNWIND_NONE, -1, 0);
	check(&built, "in_more", ABI_UNWIND_NONE, -1, 0);
	check(&built, "in_bare", ABI_UNWIND_NONE, 0, 0);
	check(&built, "nowhere", ABI_UNWIND_NONE, 0, 0);
	assert_int_equal(built.table->origin.odd, 2);
	rule = *unwind_table_find(built.table, UINT64_MAX);
	assert_int_equal(rule.kind, ABI_UNWIND_NONE);
	built_close(&built);
}

static const char c_source[] =
	"extern void out(void *);\n"
	"__attribute__((noinline)) void aligned(void) { char a[64] __attribute__((aligned(64)));\n"
	"	out(a); __asm__ volatile(\".globl in_aligned\\nin_aligned:\" ::: \"memory\"); }\n"
	"__attribute__((noinline)) void sized(long n) { char a[n];\n"
	"	out(a); __asm__ volatile(\".globl in_sized\\nin_sized:\" ::: \"memory\"); }\n"
	"__attribute__((noinline)) void flat(void) { char a[40];\n"
	"	out(a); __asm__ volatile(\".globl in_flat\\nin_flat:\" ::: \"memory\"); }\n";

/* Both compilers, without frame pointers. */
static void compiled_functions(void **state)
{
	static const char *const compilers[] = {"gcc", "clang"};
	struct abi_unwind_rule flat;
	char path[PATH_MAX + 32];
	struct built built;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		need(compilers[i]);
		snprintf(path, sizeof(path), "%s/in.c", folder);
		text_write(path, c_source);
		assert_int_equal(run("cd %s && %s -shared -nostdlib -fPIC -O2 -fomit-frame-pointer "
				     "-o out in.c",
				     folder, compilers[i]),
				 0);
		snprintf(path, sizeof(path), "%s/out", folder);
		built_open(&built, open(path, O_RDONLY | O_CLOEXEC));
		check(&built, "in_aligned", ABI_UNWIND_RBP, 16, -2);
		check(&built, "in_sized", ABI_UNWIND_RBP, 16, -2);
		/* the array, the return address, and what the compiler adds */
		flat = rule_before(&built, "in_flat");
		assert_int_equal(flat.kind, ABI_UNWIND_RSP);
		assert_uint_in_range(flat.cfa, 48, 80);
		assert_int_equal(flat.rbp, 0);
		assert_int_equal(built.table->origin.odd, 0);
		built_close(&built);
	}
}

/* Without .eh_frame, as both compilers write it on demand. */
static void debug_frames(void **state)
{
	static const char *const compilers[] = {"gcc", "clang"};
	char path[PATH_MAX + 32];
	uint64_t vaddr, bytes;
	struct built built;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		need(compilers[i]);
		snprintf(path, sizeof(path), "%s/in.c", folder);
		text_write(path, c_source);
		assert_int_equal(run("cd %s && %s -shared -nostdlib -fPIC -O2 -g "
				     "-fomit-frame-pointer -fno-asynchronous-unwind-tables "
				     "-Wl,--no-ld-generated-unwind-info -o out in.c",
				     folder, compilers[i]),
				 0);
		snprintf(path, sizeof(path), "%s/out", folder);
		built_open(&built, open(path, O_RDONLY | O_CLOEXEC));
		assert_int_equal(elf_file_section(built.file, ".eh_frame", &vaddr, &bytes),
				 -ENOENT);
		check(&built, "in_aligned", ABI_UNWIND_RBP, 16, -2);
		check(&built, "in_sized", ABI_UNWIND_RBP, 16, -2);
		assert_int_equal(rule_before(&built, "in_flat").kind, ABI_UNWIND_RSP);
		assert_int_equal(built.table->origin.derived, 0);
		built_close(&built);
	}
}

/* The header of a section. */
static Elf64_Shdr section_of(int fd, const char *name)
{
	Elf64_Shdr names, section = {0};
	Elf64_Ehdr header;
	char text[32];

	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	assert_int_equal(pread(fd, &names, sizeof(names),
			       (off_t)(header.e_shoff + header.e_shstrndx * sizeof(names))),
			 sizeof(names));
	for (unsigned i = 0; i < header.e_shnum; i++) {
		assert_int_equal(pread(fd, &section, sizeof(section),
				       (off_t)(header.e_shoff + i * sizeof(section))),
				 sizeof(section));
		memset(text, 0, sizeof(text));
		pread(fd, text, sizeof(text) - 1, (off_t)(names.sh_offset + section.sh_name));
		if (!strcmp(text, name))
			return section;
	}
	fail_msg("no section %s", name);
	return section;
}

/* A library with .debug_frame alone; then `more` is run in its folder. */
static int debug_frames_build(const char *more)
{
	char path[PATH_MAX + 32];

	need("gcc");
	need("objcopy");
	snprintf(path, sizeof(path), "%s/in.c", folder);
	text_write(path, c_source);
	assert_int_equal(run("cd %s && gcc -shared -nostdlib -fPIC -O2 -g -fomit-frame-pointer "
			     "-fno-asynchronous-unwind-tables -Wl,--no-ld-generated-unwind-info "
			     "-o out in.c && %s",
			     folder, more),
			 0);
	snprintf(path, sizeof(path), "%s/out", folder);
	return open(path, O_RDWR | O_CLOEXEC);
}

static void packed_debug_frames(void **state)
{
	int fd = debug_frames_build("objcopy --compress-debug-sections=zlib-gabi out");
	Elf64_Shdr section = section_of(fd, ".debug_frame");
	struct unwind_table *table;
	Elf64_Chdr packed, wrong;
	struct built built;

	(void)state;
	assert_true(section.sh_flags & SHF_COMPRESSED);
	built_open(&built, fd);
	check(&built, "in_aligned", ABI_UNWIND_RBP, 16, -2);
	check(&built, "in_sized", ABI_UNWIND_RBP, 16, -2);
	assert_int_equal(rule_before(&built, "in_flat").kind, ABI_UNWIND_RSP);
	assert_int_equal(built.table->origin.uncovered, 0);

	/* Sizes that are not its own, an unknown packer: then it is none. */
	assert_int_equal(pread(fd, &packed, sizeof(packed), (off_t)section.sh_offset),
			 sizeof(packed));
	for (int i = 0; i < 4; i++) {
		static const uint64_t sizes[] = {1ull << 62, 200u << 20, 0};

		wrong = packed;
		if (i < 3)
			wrong.ch_size = sizes[i];
		else
			wrong.ch_type = 77;
		assert_int_equal(pwrite(fd, &wrong, sizeof(wrong), (off_t)section.sh_offset),
				 sizeof(wrong));
		assert_int_equal(unwind_table_build(&table, fd, -1, ABI_UNWIND_ROWS_CALLS),
				 -ENOENT);
	}
	built_close(&built);
}

/* The program is stripped, and the debug file has what describes its code. */
static void debug_file(void **state)
{
	int fd = debug_frames_build("objcopy --only-keep-debug --compress-debug-sections=zlib-gabi "
				    "out out.debug && strip out"),
	    debug_fd;
	char path[PATH_MAX + 32];
	struct built built;

	(void)state;
	snprintf(path, sizeof(path), "%s/out.debug", folder);
	debug_fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(debug_fd >= 0);
	assert_int_equal(unwind_table_build(&built.table, fd, -1, ABI_UNWIND_ROWS_CALLS), -ENOENT);
	assert_int_equal(unwind_table_build(&built.table, fd, debug_fd, ABI_UNWIND_ROWS_CALLS), 0);
	assert_int_equal(elf_file_open(&built.file, fd, "/built", "/nonexistent"), 0);
	check(&built, "in_aligned", ABI_UNWIND_RBP, 16, -2);
	check(&built, "in_sized", ABI_UNWIND_RBP, 16, -2);
	assert_int_equal(rule_before(&built, "in_flat").kind, ABI_UNWIND_RSP);
	close(debug_fd);
	built_close(&built);
}

static void rows_of_all_pages(void **state)
{
	struct built built;
	char symbol[32];

	(void)state;
	built_assemble(&built, "unwind_pages");
	for (int i = 0; i < 40; i++) {
		snprintf(symbol, sizeof(symbol), "in_%d", i);
		check(&built, symbol, ABI_UNWIND_RSP, 16 + 8 * i, 0);
	}
	assert_uint_in_range(built.table->page_count, 25, 26);
	/* Two rows a function, for it and for the gap, and one for a page that begins within. */
	assert_uint_in_range(built.table->row_count, 80, 80 + built.table->page_count);
	built_close(&built);
}

/* The body begins within a page that has rows, and ends within one. */
static void large_body_without_entries(void **state)
{
	struct built built;

	(void)state;
	built_assemble(&built, "unwind_body");
	check(&built, "in_first", ABI_UNWIND_RSP, 8, 0);
	check(&built, "in_large", ABI_UNWIND_FRAME, 0, 0);
	check(&built, "second", ABI_UNWIND_FRAME, 0, 0);
	check(&built, "in_second", ABI_UNWIND_RSP, 8, 0);
	check(&built, "in_small", ABI_UNWIND_NONE, 0, 0);
	check(&built, "in_third", ABI_UNWIND_RSP, 8, 0);
	built_close(&built);
}

/* What the run-time unwinder needs is there without section headers, too. */
static void without_section_headers(void **state)
{
	struct built built, bare;
	Elf64_Ehdr header;
	struct stat st;
	int fd;

	(void)state;
	built_assemble(&built, "unwind");
	fd = memfd_create("bare", MFD_CLOEXEC);
	assert_int_equal(fstat(elf_file_fd(built.file), &st), 0);
	assert_int_equal(sendfile(fd, elf_file_fd(built.file), &(off_t){0}, (size_t)st.st_size),
			 st.st_size);
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	header.e_shoff = header.e_shnum = header.e_shstrndx = 0;
	assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	built_open(&bare, fd);
	assert_int_equal(bare.table->row_count, built.table->row_count);
	assert_memory_equal(bare.table->rows, built.table->rows,
			    built.table->row_count * sizeof(*built.table->rows));
	built_close(&bare);
	built_close(&built);
}

/* Constants that a linker has put into the segment of the code, and that look like calls. */
static void constants_beside_code(void **state)
{
	char path[PATH_MAX + 32];
	struct unwind_table *table;
	int fd;

	(void)state;
	need("gcc");
	snprintf(path, sizeof(path), "%s/constants.c", folder);
	text_write(path, "const short constants[1 << 15] = {[0 ... (1 << 15) - 1] = 0x10ff};\n"
			 "int g(int); int f(int x) { return g(x) + 1; }\n");
	assert_int_equal(run("cd %s && gcc -O2 -shared -fPIC -nostdlib "
			     "-fasynchronous-unwind-tables "
			     "-Wl,-z,noseparate-code -o constants constants.c",
			     folder),
			 0);
	snprintf(path, sizeof(path), "%s/constants", folder);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(unwind_table_build(&table, fd, -1, ABI_UNWIND_ROWS_CALLS), 0);
	assert_uint_in_range(table->origin.uncovered, 0, 64);
	unwind_table_free(table);
	close(fd);
}

static void a_file_without_any(void **state)
{
	char path[PATH_MAX + 32];
	struct unwind_table *table;
	int fd;

	(void)state;
	need("gcc");
	snprintf(path, sizeof(path), "%s/none.c", folder);
	text_write(path, "int f(int x) { return x; }\n");
	assert_int_equal(run("cd %s && gcc -O2 -shared -nostdlib -fno-asynchronous-unwind-tables "
			     "-o none none.c",
			     folder),
			 0);
	snprintf(path, sizeof(path), "%s/none", folder);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(unwind_table_build(&table, fd, -1, ABI_UNWIND_ROWS_CALLS), -ENOENT);
	close(fd);
	fd = open(folder, O_RDONLY | O_CLOEXEC);
	assert_true(unwind_table_build(&table, fd, -1, ABI_UNWIND_ROWS_CALLS) < 0);
	close(fd);
}

static void packed_tables(void **state)
{
	struct unwind_table *copy;
	struct built built;
	const void *packed;
	uint8_t *bytes;
	size_t size;

	(void)state;
	built_assemble(&built, "unwind_pages");
	packed = unwind_table_pack(built.table, &size);
	assert_true(size <= UNWIND_PACKED_MAX);
	assert_int_equal(unwind_table_unpack(&copy, packed, size), 0);
	assert_int_equal(copy->row_count, built.table->row_count);
	assert_memory_equal(copy->rows, built.table->rows, copy->row_count * sizeof(*copy->rows));
	assert_ptr_not_equal(copy->rows, built.table->rows);
	unwind_table_free(copy);
	/* Any damage is refused, or leaves every index in bounds. */
	bytes = malloc(size);
	for (size_t at = 0; at < size; at++) {
		memcpy(bytes, packed, size);
		bytes[at] ^= 0x80;
		if (unwind_table_unpack(&copy, bytes, size))
			continue;
		for (uint64_t page = 0; page < copy->page_count; page++)
			unwind_table_find(copy, (copy->first_page + page) << 16 | 0xffff);
		unwind_table_free(copy);
	}
	assert_int_equal(unwind_table_unpack(&copy, packed, size - 1), -EPROTO);
	assert_int_equal(unwind_table_unpack(&copy, packed, sizeof(*copy) - 1), -EPROTO);
	free(bytes);
	built_close(&built);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind_has_its_rule),
		cmocka_unit_test(compiled_functions),
		cmocka_unit_test(debug_frames),
		cmocka_unit_test(packed_debug_frames),
		cmocka_unit_test(debug_file),
		cmocka_unit_test(rows_of_all_pages),
		cmocka_unit_test(a_file_without_any),
		cmocka_unit_test(large_body_without_entries),
		cmocka_unit_test(without_section_headers),
		cmocka_unit_test(constants_beside_code),
		cmocka_unit_test(packed_tables),
	};

	return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols of real ELF files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elf_images.h"
#include "large_elf.h"
#include "object/elf/elf_file.h"
#include "object/elf/elf_symbols.h"
#include "proc/process.h"
#include "pythons.h"
#include "sanitized.h"
#include "util/error.h"

static void own_symbols_are_where_they_say(void **state)
{
	struct elf_file *file = open_elf("/proc/self/exe", NO_DEBUG);
	uint64_t bias = own_bias(file, (void *)landmark_data), offset, vaddr, block, word = 0;
	struct elf_symbol symbol, at;
	struct elf_segment segment;

	(void)state;
	assert_true(landmark_function(1) > 0);
	assert_int_equal(elf_file_is_executable(file), 1);
	assert_int_equal(elf_file_has_symtab(file), 1);
	assert_string_equal(elf_file_soname(file), "");

	assert_int_equal(elf_file_symbol(file, "landmark_function", &symbol), 0);
	assert_string_equal(symbol.name, "landmark_function");
	assert_int_equal(symbol.vaddr + bias, (uintptr_t)landmark_function);
	assert_int_equal(symbol.source, ELF_FROM_SYMTAB);
	assert_int_equal(symbol.function, 1);
	assert_int_equal(symbol.tls, 0);
	assert_int_equal(symbol.ifunc, 0);
	assert_true(symbol.size > 1);
	assert_int_equal(elf_file_symbol_at(file, symbol.vaddr + symbol.size - 1, &at), 0);
	assert_string_equal(at.name, "landmark_function");
	assert_int_equal(elf_file_offset(file, symbol.vaddr, &offset), 0);
	assert_int_equal(elf_file_vaddr(file, offset, &vaddr), 0);
	assert_int_equal(vaddr, symbol.vaddr);
	assert_int_equal(elf_file_segment(file, offset, &segment), 0);
	assert_int_equal(offset - segment.offset, vaddr - segment.start);
	assert_true(vaddr < segment.limit);
	assert_int_equal((segment.start | segment.limit | segment.offset) & 4095, 0);
	assert_int_equal(elf_file_read(file, symbol.vaddr, &word, 8), 8);
	assert_memory_equal(&word, (void *)(uintptr_t)landmark_function, 8);

	assert_int_equal(elf_file_symbol(file, "landmark_data", &symbol), 0);
	assert_int_equal(symbol.vaddr + bias, (uintptr_t)landmark_data);
	assert_true(symbol.size >= sizeof(landmark_data)); /* ASan pads */
	assert_int_equal(symbol.function, 0);
	assert_int_equal(elf_file_read(file, symbol.vaddr, &word, 8), 8);
	assert_true(word == landmark_data[0]);
	assert_int_equal(elf_file_symbol_at(file, symbol.vaddr, &at), -ENOENT); /* not a function */

	assert_int_equal(elf_file_symbol(file, "landmark_tls", &symbol), 0);
	assert_int_equal(symbol.tls, 1);
	assert_int_equal(elf_file_tls(file, &block), 0);
	assert_true(symbol.vaddr + symbol.size <= block);

	assert_int_equal(elf_file_symbol(file, "landmark", &symbol), -ENOENT);
	assert_int_equal(elf_file_symbol(file, "", &symbol), -ENOENT);
	assert_int_equal(elf_file_symbol_at(file, UINT64_MAX, &symbol), -ENOENT);
	assert_int_equal(elf_file_offset(file, UINT64_MAX, &offset), -ENOENT);
	assert_int_equal(elf_file_vaddr(file, UINT64_MAX, &offset), -ENOENT);
	assert_int_equal(elf_file_segment(file, UINT64_MAX, &segment), -ENOENT);
	assert_int_equal(elf_file_bias(file, 4096, 1ull << 40, &offset), -ENOENT);
	assert_int_equal(elf_file_read(file, UINT64_MAX - 2, &word, 8), 0);
	assert_int_equal(elf_file_section(file, ".nonsense", &vaddr, &block), -ENOENT);
	elf_file_close(file);
	elf_file_close(NULL);
}

/*
 * A process that has other work reads a file only up to a number of symbols that takes a moment. A
 * process that has no other work reads four times as many.
 */
static void large_tables_are_for_a_process_of_their_own(void **state)
{
	uint64_t last = LARGE_BASE + (uint64_t)ELF_SYMBOLS_HERE * LARGE_STEP;
	struct elf_symbol symbol;
	struct elf_file *file;

	(void)state;
	assert_int_equal(elf_file_open(&file, large_elf(ELF_SYMBOLS_HERE), "/large", NO_DEBUG), 0);
	assert_int_equal(elf_file_symbol(file, "z", &symbol), 0);
	assert_int_equal(elf_file_symbol(file, "zz", &symbol), -ENOENT);
	elf_file_close(file);

	assert_int_equal(elf_file_open(&file, large_elf(ELF_SYMBOLS_HERE + 1), "/large", NO_DEBUG),
			 0);
	assert_int_equal(elf_file_symbol(file, "z", &symbol), -ENOEXEC);
	assert_int_equal(elf_file_symbol_at(file, last, &symbol), -ENOEXEC);
	assert_non_null(strstr(error_reason(-ENOEXEC), "1048576 symbols"));
	assert_int_equal(elf_file_symbol_memory(file), 0); /* nothing was read */
	elf_file_close(file);

	assert_int_equal(elf_file_open_apart(&file, large_elf(ELF_SYMBOLS_HERE + 1), -1), 0);
	assert_int_equal(elf_file_symbol_at(file, last, &symbol), 0);
	assert_int_equal(symbol.name[0], large_elf_name(last));
	assert_int_equal(elf_file_symbol_at(file, last + LARGE_STEP, &symbol), -ENOENT);
	elf_file_close(file);
}

static uint64_t anonymous_bytes(void)
{
	uint64_t bytes, anonymous;

	malloc_trim(0);
	assert_int_equal(process_rss_read(getpid(), &bytes, &anonymous), 0);
	return anonymous;
}

/*
 * A file that is kept for its descriptor does not keep its symbols. The next query loads them
 * again.
 */
static void what_is_forgotten_takes_no_memory(void **state)
{
	enum { TABLE = ELF_SYMBOLS_HERE * sizeof(Elf64_Sym) };
	int fd = large_elf(ELF_SYMBOLS_HERE);
	struct elf_symbol symbol;
	struct elf_file *file;
	uint64_t before;

	(void)state;
#if SANITIZED
	print_message("the sanitizer keeps what was freed\n");
	skip();
#endif
	before = anonymous_bytes();
	assert_int_equal(elf_file_open(&file, fd, "/large", NO_DEBUG), 0);
	assert_int_equal(elf_file_symbol(file, "z", &symbol), 0);
	assert_true(anonymous_bytes() > before + TABLE);
	elf_file_forget(file);
	assert_true(anonymous_bytes() < before + TABLE / 4);
	assert_int_equal(elf_file_symbol_memory(file), 0);
	assert_int_equal(elf_file_symbol(file, "y", &symbol), 0);
	assert_int_equal(symbol.name[0], 'y');
	elf_file_close(file);
}

/*
 * Of several versions of a name, the one that a linker would take is found. Many names exist twice
 * in glibc.
 */
static void libc_has_default_versions(void **state)
{
	static const char *const names[] = {
		"qsort_r", "getenv", "regexec", "realpath", "pthread_cond_wait", "posix_spawn"};
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	struct elf_symbol symbol;
	struct elf_file *file;
	uint64_t bias;
	char *path;
	Dl_info info;

	(void)state;
	if (!libc) {
		print_message("skipped: no glibc\n");
		skip();
	}
	assert_true(dladdr(dlsym(libc, "qsort_r"), &info) != 0);
	path = realpath(info.dli_fname, NULL);
	assert_non_null(path);
	file = open_elf(path, NO_DEBUG);
	bias = own_bias(file, info.dli_fbase);
	assert_int_equal(bias, (uintptr_t)info.dli_fbase);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_int_equal(elf_file_symbol(file, names[i], &symbol), 0);
		assert_int_equal(symbol.source, ELF_FROM_DYNSYM);
		assert_int_equal(symbol.vaddr + bias, (uintptr_t)dlsym(libc, names[i]));
	}
	assert_int_equal(elf_file_symbol(file, "memcpy", &symbol), 0);
	assert_int_equal(symbol.ifunc, 1);
	assert_int_equal(symbol.function, 1);
	/* Of several names of one function, the one that programs know is returned. */
	assert_int_equal(elf_file_symbol(file, "malloc", &symbol), 0);
	assert_int_equal(elf_file_symbol_at(file, symbol.vaddr + 1, &symbol), 0);
	assert_string_equal(symbol.name, "malloc");
	/* It can be executed, but it is a library. */
	assert_int_equal(elf_file_is_executable(file), 0);
	assert_string_equal(elf_file_soname(file), "libc.so.6");
	assert_true(strlen(elf_file_build_id(file)) >= 32);
	elf_file_close(file);
	free(path);
	dlclose(libc);
}

static void check_libpython(struct elf_file *file, unsigned int minor)
{
	struct elf_symbol runtime, function, at, symbol;
	uint64_t vaddr, size, slot, block;
	char soname[32];

	snprintf(soname, sizeof(soname), "libpython3.%u.so.1.0", minor);
	assert_string_equal(elf_file_soname(file), soname);
	assert_int_equal(elf_file_is_executable(file), 0);
	assert_int_equal(elf_file_symbol(file, "PyObject_Malloc", &function), 0);
	assert_int_equal(function.source, ELF_FROM_DYNSYM);
	assert_int_equal(function.function, 1);
	assert_int_equal(elf_file_symbol_at(file, function.vaddr + 1, &at), 0);
	assert_int_equal(at.vaddr, function.vaddr);
	assert_int_equal(elf_file_symbol(file, "_PyRuntime", &runtime), 0);
	assert_int_equal(runtime.function, 0);
	assert_true(runtime.size > 0);
	assert_int_equal(elf_file_symbol(file, "PyNoSuchThing", &symbol), -ENOENT);

	if (minor >= 11) {
		assert_int_equal(elf_file_section(file, ".PyRuntime", &vaddr, &size), 0);
		assert_int_equal(vaddr, runtime.vaddr);
		assert_true(size >= runtime.size);
	}
	if (elf_file_has_symtab(file)) {
		assert_int_equal(elf_file_symbol(file, "_PyObject_Malloc", &symbol), 0);
		assert_int_not_equal(symbol.source, ELF_FROM_DYNSYM);
		assert_int_equal(symbol.function, 1);
	}
	if (minor >= 12) {
		assert_int_equal(elf_file_dtpmod_slot(file, &slot), 0);
		assert_int_equal(elf_file_tls(file, &block), 0);
		assert_int_equal(block % 8, 0);
		/* The slot is in the GOT, which the loader fills. */
		assert_int_equal(elf_file_section(file, ".got", &vaddr, &size), 0);
		assert_true(slot >= vaddr && slot + 16 <= vaddr + size);
		if (elf_file_has_symtab(file)) {
			assert_int_equal(elf_file_symbol(file, "_Py_tss_tstate", &symbol), 0);
			assert_int_equal(symbol.tls, 1);
			assert_true(symbol.vaddr + 8 <= block);
		}
	} else {
		assert_int_equal(elf_file_dtpmod_slot(file, &slot), -ENOENT);
		assert_int_equal(elf_file_tls(file, &block), -ENOENT);
	}
}

static void libpythons_have_their_symbols(void **state)
{
	char path[PATH_MAX];
	int found = 0;

	(void)state;
	for (unsigned int minor = 8; minor <= 13; minor++) {
		struct elf_file *file;

		if (!libpython_path(minor, path))
			continue;
		file = open_elf(path, NO_DEBUG);
		check_libpython(file, minor);
		elf_file_close(file);
		found++;
	}
	if (!found) {
		print_message("skipped: no shared libpython\n");
		skip();
	}
}

static void stripped_python_has_exported_symbols(void **state)
{
	struct elf_symbol symbol;
	struct elf_file *file;

	(void)state;
	if (access("/usr/bin/python3.11", R_OK)) {
		print_message("skipped: no /usr/bin/python3.11\n");
		skip();
	}
	file = open_elf("/usr/bin/python3.11", NO_DEBUG);
	if (elf_file_has_symtab(file)) {
		elf_file_close(file);
		print_message("skipped: /usr/bin/python3.11 is not stripped\n");
		skip();
	}
	assert_int_equal(elf_file_is_executable(file), 1);
	assert_int_equal(elf_file_symbol(file, "PyObject_Malloc", &symbol), 0);
	assert_int_equal(symbol.source, ELF_FROM_DYNSYM);
	assert_int_equal(elf_file_symbol(file, "_PyRuntime", &symbol), 0);
	assert_int_equal(elf_file_symbol(file, "_PyObject_Malloc", &symbol), -ENOENT);
	elf_file_close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_symbols_are_where_they_say),
		cmocka_unit_test(large_tables_are_for_a_process_of_their_own),
		cmocka_unit_test(what_is_forgotten_takes_no_memory),
		cmocka_unit_test(libc_has_default_versions),
		cmocka_unit_test(libpythons_have_their_symbols),
		cmocka_unit_test(stripped_python_has_exported_symbols),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Functions, files and lines of real programs, compared with addr2line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "object/symbols/files.h"
#include "object/symbols/symbols.h"
#include "programs.h"
#include "symbols_programs.h"

static const char rust_source[] =
	"use std::os::raw::c_void;\n"
	"extern \"C\" { fn backtrace(at: *mut *mut c_void, n: i32) -> i32;\n"
	"  fn write(fd: i32, at: *const c_void, n: usize) -> isize; fn read(fd: i32, at: *mut "
	"c_void, n: usize) -> isize; }\n"
	"#[inline(never)] fn tell() { unsafe { let mut at = [std::ptr::null_mut::<c_void>(); 64];\n"
	"  let n = backtrace(at.as_mut_ptr(), 64) as i64; let mut c = 0u8;\n"
	"  write(1, &n as *const i64 as *const c_void, 8); write(1, at.as_ptr() as *const c_void, "
	"n as usize * 8);\n"
	"  read(0, &mut c as *mut u8 as *mut c_void, 1); } }\n"
	"mod shop { pub struct Basket<T> { pub items: Vec<T> }\n"
	"  impl<T: Copy> Basket<T> {\n"
	"    #[inline(always)] fn inner(&mut self, x: T) {\n"
	"      super::tell();\n"
	"      self.items.push(x); }\n"
	"    #[inline(never)] pub fn add(&mut self, x: T) {\n"
	"      self.inner(x);\n"
	"      unsafe { std::ptr::read_volatile(&self.items.len()); } } } }\n"
	"fn main() { let mut b = shop::Basket { items: Vec::new() };\n"
	"  [1, 2].iter().take(1).for_each(|x| b.add(*x)); unsafe { "
	"std::ptr::read_volatile(&b.items.len()); } }\n";

/* The address in the file, as addr2line takes it. */
static int file_vaddr(const struct modules *modules, const char *path, uint64_t address,
		      uint64_t *vaddr)
{
	const struct module *module = modules_find(modules, address);

	assert_non_null(module);
	if (strcmp(module->path, path) != 0)
		return 0;
	assert_int_equal(file_read(module->file), 0);
	assert_int_equal(
		elf_file_vaddr(module->file->elf, address - module->start + module->offset, vaddr),
		0);
	return 1;
}

static void line_read(FILE *from, char *line, int capacity)
{
	assert_non_null(fgets(line, capacity, from));
	line[strcspn(line, "\n")] = '\0';
}

/*
 * addr2line gives the same result for this address: functions, files and lines, and no more frames.
 */
static void same_as_addr2line(const char *path, uint64_t vaddr, const struct symbols_frame *frames,
			      int count)
{
	char command[PATH_MAX + 64], function[4096], place[PATH_MAX + 8], ours[PATH_MAX + 16];
	FILE *answer;

	snprintf(command, sizeof(command), "addr2line -fiCe %s 0x%llx", path,
		 (unsigned long long)vaddr);
	answer = popen(command, "re");
	assert_non_null(answer);
	for (int i = 0; i < count; i++) {
		char *note;

		line_read(answer, function, sizeof(function));
		line_read(answer, place, sizeof(place));
		note = strstr(place, " (discriminator");
		if (note)
			*note = '\0';
		snprintf(ours, sizeof(ours), "%s:%u", frames[i].filename, frames[i].line);
		/* addr2line has no name for the file; ours is the module's */
		if (!strncmp(place, "??:", 3))
			snprintf(place, sizeof(place), "%s:0", path);
		assert_string_equal(frames[i].function, function);
		assert_string_equal(ours, place);
		assert_int_equal(frames[i].inlined, i < count - 1);
	}
	assert_null(fgets(place, sizeof(place), answer));
	pclose(answer);
}

/*
 * Compares every address of the stack that lies in the program itself with addr2line. Returns the
 * number of frames; *inlined: of inlined frames.
 */
static int stack_compare(struct symbols *symbols, const char *path, int *inlined)
{
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	struct symbols_binary binary;
	struct program program;
	struct modules *modules;
	uint64_t vaddr;
	int total = 0;

	need("addr2line");
	program_start(&program, path);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	assert_int_equal(modules->refused, 0);
	for (size_t i = 0; i < program.depth; i++) {
		int count = symbols_resolve(symbols, modules, program.stack[i], NULL, frames,
					    SYMBOLS_FRAMES_MAX);

		assert_true(count > 0);
		if (!file_vaddr(modules, path, program.stack[i] - 1, &vaddr) ||
		    !strncmp(frames[0].function, "_start", 6))
			continue; /* assembler code has a file, but addr2line shows no line */
		assert_true(symbols_binary(modules, program.stack[i], &binary));
		assert_string_equal(binary.path, path);
		assert_true(vaddr >= binary.segment.start && vaddr < binary.segment.limit);
		same_as_addr2line(path, vaddr, frames, count);
		total += count;
		*inlined += count - 1;
	}
	program_end(&program);
	modules_free(modules);
	return total;
}

static void compare_built(const char *name, const char *compiler, const char *suffix,
			  const char *source, const char *flags, int least, int least_inlined)
{
	struct symbols *symbols;
	struct symbols_stats stats;
	char path[PATH_MAX];
	int inlined = 0, total;

	build(path, name, compiler, suffix, source, flags);
	assert_int_equal(symbols_new(&symbols), 0);
	total = stack_compare(symbols, path, &inlined);
	assert_true(total >= least);
	assert_true(inlined >= least_inlined);
	symbols_stats(symbols, &stats);
	assert_int_equal(stats.dwarf_given_up + stats.names_given_up, 0);
	assert_int_equal(stats.worker_starts, 2); /* for tables, and for DWARF */
	symbols_free(symbols);
}

static void c_is_as_addr2line_has_it(void **state)
{
	(void)state;
	compare_built("c-pie", "gcc", "c", c_source, "-O2 -g -pie -fPIE", 6, 2);
	compare_built("c-fixed", "gcc", "c", c_source, "-O2 -g -no-pie", 6, 2);
	compare_built("c-dwarf4", "gcc", "c", c_source, "-O2 -gdwarf-4", 6, 2);
	compare_built("c-plain", "gcc", "c", c_source, "-O0 -g", 4, 0);
	compare_built("c-compressed", "gcc", "c", c_source, "-O2 -g -gz=zlib", 6, 2);
}

/* Without .debug_aranges, and with addresses by index. */
static void clang_is_as_addr2line_has_it(void **state)
{
	(void)state;
	compare_built("clang", "clang", "c", c_source, "-O2 -g", 6, 2);
}

static void cxx_is_as_addr2line_has_it(void **state)
{
	(void)state;
	compare_built("cxx", "g++", "cc", cxx_source, "-O2 -g", 4, 1);
}

static void rust_is_as_addr2line_has_it(void **state)
{
	(void)state;
	compare_built("rust", "rustc", "rs", rust_source, "-g -C opt-level=2", 4, 1);
	compare_built("rust-v0", "rustc", "rs", rust_source,
		      "-g -C opt-level=2 -C symbol-mangling-version=v0", 4, 1);
}

static void without_dwarf_symbols_name_what_they_cover(void **state)
{
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	struct symbols *symbols;
	struct program program;
	struct modules *modules;
	char path[PATH_MAX], names[4096], *open;

	(void)state;
	build(path, "no-dwarf", "gcc", "c", c_source, "-O2");
	assert_int_equal(symbols_new(&symbols), 0);
	names_of(symbols, path, names, sizeof(names));
	assert_string_equal(names, "tell outer hidden main");

	/*
	 * Exported functions only: the others have no name, and do not get their neighbours' names.
	 */
	build(path, "stripped", "gcc", "c", c_source, "-O2 -rdynamic -s");
	program_start(&program, path);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	stack_names(symbols, modules, &program, names, sizeof(names));
	open = strstr(names, "] outer [");
	assert_non_null(open);
	assert_int_equal(strncmp(names, "[stripped+0x", 12), 0);
	assert_int_equal(strncmp(open + 8, "[stripped+0x", 12), 0);
	assert_int_equal(symbols_resolve(symbols, modules, program.stack[1], NULL, frames, 1), 1);
	assert_string_equal(frames[0].function, "outer");
	assert_string_equal(frames[0].filename, path);
	assert_int_equal(frames[0].line, 0);
	program_end(&program);
	modules_free(modules);
	symbols_free(symbols);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(c_is_as_addr2line_has_it),
		cmocka_unit_test(clang_is_as_addr2line_has_it),
		cmocka_unit_test(cxx_is_as_addr2line_has_it),
		cmocka_unit_test(rust_is_as_addr2line_has_it),
		cmocka_unit_test(without_dwarf_symbols_name_what_they_cover),
	};

	return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

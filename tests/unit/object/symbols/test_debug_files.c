/* SPDX-License-Identifier: Apache-2.0 */
/* Separate debug files: found by build ID, in another root, and with parts moved by dwz. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "object/symbols/dwarf.h"
#include "object/symbols/files.h"
#include "object/symbols/symbols.h"
#include "programs.h"
#include "symbols_programs.h"

/*
 * Moves the debug file of a program to place within the folder, where it is found by its build ID.
 */
static void split_debug(const char *name, const char *place)
{
	need("objcopy");
	need("readelf");
	assert_int_equal(run("set -e; cd %s; objcopy --only-keep-debug %s debug; strip %s;"
			     "id=$(readelf -n %s | sed -n 's/.*Build ID: //p'); rest=${id#??};"
			     "to=$(echo %s | sed \"s/ID/$id/; s/XX/${id%%$rest}/; s/YY/$rest/\");"
			     "mkdir -p ${to%%/*}; mv debug $to",
			     folder, name, name, name, place),
			 0);
}

static void debug_files_that_were_fetched_are_found(void **state)
{
	struct symbols *symbols;
	char path[PATH_MAX], cache[PATH_MAX], names[4096];

	(void)state;
	build(path, "split", "gcc", "c", c_source, "-O2 -g -Wl,--build-id=sha1");
	split_debug("split", "cache/ID/debuginfo");
	assert_int_equal(symbols_new(&symbols), 0);
	names_of(symbols, path, names, sizeof(names));
	assert_null(strstr(names, "innermost"));
	symbols_free(symbols);

	assert_int_equal(setenv("DEBUGINFOD_CACHE_PATH", in_folder(cache, "cache"), 1), 0);
	assert_int_equal(symbols_new(&symbols), 0);
	names_of(symbols, path, names, sizeof(names));
	unsetenv("DEBUGINFOD_CACHE_PATH");
	assert_string_equal(names, all_names);
	symbols_free(symbols);
}

/*
 * As in a container: the debug file lies in another root, and a link that leads out of that root
 * does not resolve.
 */
static void debug_files_of_another_root_are_found(void **state)
{
	char path[PATH_MAX], base[PATH_MAX];
	struct elf_file *file;
	int root, fd, debug, alternate;

	(void)state;
	build(path, "inside", "gcc", "c", c_source, "-O2 -g -Wl,--build-id=sha1");
	split_debug("inside", "root/usr/lib/debug/.build-id/XX/YY.debug");
	root = open(in_folder(base, "root"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(root >= 0);

	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, path, NULL), 0);
	assert_int_equal(elf_file_dwarf(file, &debug, &alternate), -ENOENT);
	elf_file_close(file);

	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, path, NULL), 0);
	assert_int_equal(elf_file_find_debug(file, root), 0);
	assert_int_equal(elf_file_dwarf(file, &debug, &alternate), 0);
	assert_int_not_equal(debug, elf_file_fd(file));
	assert_int_equal(alternate, -1);
	elf_file_close(file);

	assert_int_equal(run("cd %s && mv root/usr/lib/debug/.build-id away &&"
			     " ln -s %s/away root/usr/lib/debug/.build-id",
			     folder, folder),
			 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, path, NULL), 0);
	assert_int_equal(elf_file_find_debug(file, root), -ENOENT);
	elf_file_close(file);
	close(root);
}

/*
 * A stripped program with the symbols of its functions in .gnu_debugdata, made as gdb's manual says
 * ("MiniDebugInfo"). filter: a command that changes the packed file.
 */
static void build_packed(char path[PATH_MAX], const char *filter)
{
	need("objcopy");
	need("xz");
	build(path, "packed", "gcc", "c", c_source, "-O2 -g");
	assert_int_equal(
		run("set -e; cd %s; nm packed --format=posix --defined-only | "
		    "awk '$2 == \"T\" || $2 == \"t\" { print $1 }' >keep;"
		    "objcopy --only-keep-debug packed debug;"
		    "objcopy -S --remove-section .comment --keep-symbols=keep debug mini;"
		    "strip --strip-all packed; rm -f mini.xz; xz mini; (%s) <mini.xz >mini.in;"
		    "objcopy --add-section .gnu_debugdata=mini.in packed",
		    folder, filter),
		0);
}

static void symbols_in_the_file_itself_are_unpacked(void **state)
{
	char path[PATH_MAX], names[4096];
	struct symbols *symbols;

	(void)state;
	build_packed(path, "cat");
	assert_int_equal(symbols_new(&symbols), 0);
	names_of(symbols, path, names, sizeof(names));
	assert_string_equal(names, "tell outer hidden main");
	symbols_free(symbols);
}

/* What cannot be unpacked leaves the names out, and the process that reads them runs on. */
static void damaged_symbols_in_the_file_do_no_harm(void **state)
{
	static const char *const filters[] = {
		"head -c 100",                         /* cut off */
		"tr '\\000-\\377' '\\001-\\377\\000'", /* not packed */
		"head -c 100000000 /dev/zero | xz",    /* beyond the limit */
		"echo no ELF file | xz",
	};
	char path[PATH_MAX], names[4096];
	struct symbols_stats stats;
	struct symbols *symbols;

	(void)state;
	assert_int_equal(symbols_new(&symbols), 0);
	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
		build_packed(path, filters[i]);
		names_of(symbols, path, names, sizeof(names));
		assert_null(strstr(names, "hidden"));
		assert_non_null(strstr(names, "[packed+0x"));
		symbols_stats(symbols, &stats);
		assert_int_equal(stats.tables_given_up, i + 1);
		assert_int_equal(stats.worker_starts, 2); /* one for DWARF */
	}
	symbols_free(symbols);
}

/*
 * dwz moves what several debug files have in common to a separate file, which then holds most
 * names.
 */
static void what_dwz_has_moved_is_found(void **state)
{
	struct dwarf_frame frames[DWARF_INLINE_MAX + 1];
	char path[PATH_MAX], base[PATH_MAX];
	int root, fd, debug, alternate;
	struct dwarf_file *dwarf;
	struct elf_symbol symbol;
	struct elf_file *file;

	(void)state;
	need("dwz");
	need("objcopy");
	need("readelf");
	build(path, "other", "gcc", "c", c_source, "-O1 -g -Wl,--build-id=sha1");
	build(path, "moved", "gcc", "c", c_source, "-O2 -g -Wl,--build-id=sha1");
	assert_int_equal(
		run("set -e; cd %s; to=dwz/usr/lib/debug; mkdir -p $to/.dwz $to/.build-id;"
		    "for f in other moved; do objcopy --only-keep-debug $f $f.debug; done;"
		    "dwz -m $to/.dwz/common -M ../../.dwz/common other.debug moved.debug; strip "
		    "moved;"
		    "id=$(readelf -n moved | sed -n 's/.*Build ID: //p'); rest=${id#??};"
		    "to=$to/.build-id/${id%%$rest}; mkdir $to; mv moved.debug $to/$rest.debug",
		    folder),
		0);
	root = open(in_folder(base, "dwz"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, path, NULL), 0);
	assert_int_equal(elf_file_find_debug(file, root), 0);
	assert_int_equal(elf_file_dwarf(file, &debug, &alternate), 0);
	assert_true(alternate >= 0);
	assert_int_equal(elf_file_symbol(file, "outer", &symbol), 0);
	assert_int_equal(dwarf_file_open(&dwarf, debug, alternate), 0);
	assert_true(dwarf_file_frames(dwarf, symbol.vaddr + symbol.size - 1, frames,
				      DWARF_INLINE_MAX + 1) > 0);
	assert_string_equal(frames[0].function, "outer");
	assert_true(frames[0].line > 0);
	dwarf_file_close(dwarf);
	elf_file_close(file);
	close(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(debug_files_that_were_fetched_are_found),
		cmocka_unit_test(debug_files_of_another_root_are_found),
		cmocka_unit_test(symbols_in_the_file_itself_are_unpacked),
		cmocka_unit_test(damaged_symbols_in_the_file_do_no_harm),
		cmocka_unit_test(what_dwz_has_moved_is_found),
	};

	return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

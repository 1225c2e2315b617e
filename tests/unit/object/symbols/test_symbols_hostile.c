/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on what a target can cost: damaged or slow DWARF, huge names, bounded memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "object/symbols/files.h"
#include "object/symbols/jit_map.h"
#include "object/symbols/symbols.h"
#include "programs.h"
#include "symbols_programs.h"
#include "util/account.h"
#include "util/clock.h"

/*
 * A mangled name of some hundred bytes that expands to 2^60 times its size, and the name of an
 * ordinary function. The first one costs a worker, and is shown mangled.
 */
static void names_that_explode_are_left_alone(void **state)
{
	static const char format[] =
		"sed 's/void outer(int x) {/void outer(int x) __asm__(\"%s\");\\n&/' c-bomb-in.c "
		">c-bomb.c && gcc -O2 -rdynamic -o bomb c-bomb.c";
	char name[1024] = "_Z1fPFviiE", path[PATH_MAX], names[8192];
	struct symbols_stats stats;
	struct symbols *symbols;

	(void)state;
	need("gcc");
	for (int level = 0; level < 60; level++) {
		/*
		 * A pointer to the previous function type: S_ is the function, S0_ its pointer, and
		 * so on.
		 */
		static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
		int number = 2 * level;
		char base[8];

		snprintf(base, sizeof(base), number < 36 ? "S%c_" : "S%c%c_",
			 number < 36 ? digits[number] : digits[number / 36], digits[number % 36]);
		sprintf(name + strlen(name), "PFv%s%sE", base, base);
	}
	in_folder(path, "c-bomb-in.c");
	text_write(path, c_source);
	assert_true(snprintf(names, sizeof(names), format, name) < (int)sizeof(names));
	assert_int_equal(run("cd %s && %s", folder, names), 0);

	assert_int_equal(symbols_new(&symbols), 0);
	names_of(symbols, in_folder(path, "bomb"), names, sizeof(names));
	assert_int_equal(strncmp(names, "tell _Z1fPFviiEPFv", 18), 0);
	symbols_stats(symbols, &stats);
	assert_int_equal(stats.names_given_up, 1);
	/* Other names are still demangled. */
	build(path, "after", "g++", "cc", cxx_source, "-O2");
	names_of(symbols, path, names, sizeof(names));
	assert_non_null(strstr(names, "shop::Basket<int>::add(std::map<"));
	symbols_free(symbols);
}

/*
 * Damaged DWARF: whatever the worker reads in it, the process survives, and other files keep their
 * names.
 */
static void damaged_dwarf_does_no_harm(void **state)
{
	static const char *const sections[] = {".debug_info", ".debug_abbrev", ".debug_line",
					       ".debug_rnglists"};
	char path[PATH_MAX], names[8192];
	struct symbols *symbols;

	(void)state;
	need("objcopy");
	build(path, "whole", "gcc", "c", c_source, "-O2 -g");
	assert_int_equal(symbols_new(&symbols), 0);
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		for (int seed = 1; seed < 8; seed++) {
			assert_int_equal(
				run("cd %s && objcopy -O binary --only-section=%s "
				    "--set-section-flags %s=alloc whole part &&"
				    " awk -v seed=%d 'BEGIN { srand(seed); for (i = 0; i < 4000; "
				    "i++) printf \"%%c\", 1 + int(rand() * 126) }' >noise &&"
				    " dd if=noise of=part bs=1 seek=$((seed * 40)) count=200 "
				    "conv=notrunc status=none &&"
				    " objcopy --update-section %s=part whole damaged",
				    folder, sections[i], sections[i], seed, sections[i]),
				0);
			names_of(symbols, in_folder(path, "damaged"), names, sizeof(names));
			assert_non_null(strstr(names, "main"));
		}
	}
	names_of(symbols, in_folder(path, "whole"), names, sizeof(names));
	assert_string_equal(names, all_names);
	symbols_free(symbols);
}

/*
 * The worker takes some tenths of a second for each address in main(): it visits a million blocks
 * that do not contain the address.
 */
static const char slow_dwarf[] =
	".section .note.GNU-stack,\"\",@progbits\n"
	".section .debug_abbrev,\"\",@progbits\n"
	".uleb128 1; .uleb128 0x11; .byte 1; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; "
	".uleb128 3; .uleb128 8; .byte 0,0\n"
	".uleb128 2; .uleb128 0x2e; .byte 1; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; "
	".uleb128 3; .uleb128 8; .byte 0,0\n"
	".uleb128 3; .uleb128 0x0b; .byte 0; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 6; "
	".byte 0,0\n"
	".byte 0\n"
	".section .debug_info,\"\",@progbits\n"
	".long .Lend - .Lbegin\n"
	".Lbegin: .short 4; .long 0; .byte 8\n"
	".uleb128 1; .quad main; .quad 4096; .asciz \"slow.c\"\n"
	".uleb128 2; .quad main; .quad 4096; .asciz \"slowly\"\n"
	".rept 1000\n"
	".incbin \"blocks\"\n"
	".endr\n"
	".byte 0,0\n"
	".Lend:\n";

static void slow_program_build(char path[PATH_MAX])
{
	static const unsigned char block[] = {3, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0};
	char file[PATH_MAX];
	FILE *blocks = fopen(in_folder(file, "blocks"), "we");

	assert_non_null(blocks);
	for (int i = 0; i < 3000; i++)
		assert_int_equal(fwrite(block, sizeof(block), 1, blocks), 1);
	fclose(blocks);
	text_write(in_folder(file, "dwarf.s"), slow_dwarf);
	text_write(in_folder(file, "slow.c"),
		   PROGRAM_TELL "int main(void) { tell(); __asm__ volatile(\"\"); return 0; }\n");
	assert_int_equal(run("cd %s && gcc -O1 -o slow slow.c dwarf.s", folder), 0);
	in_folder(path, "slow");
}

static uint64_t soon_ns(uint64_t after_ns)
{
	return clock_ns(CLOCK_MONOTONIC) + after_ns;
}

/*
 * A caller that cannot wait for slow DWARF gets the symbol, and results that are already cached;
 * the full result comes later.
 */
static void nobody_has_to_wait(void **state)
{
	struct symbols_ask ask = {0};
	const struct module *module;
	struct symbols_frame frames[2];
	struct symbols *symbols;
	struct modules *modules;
	struct program program;
	char path[PATH_MAX];
	uint64_t address;
	int count;

	(void)state;
	need("gcc");
	slow_program_build(path);
	assert_int_equal(symbols_new(&symbols), 0);
	program_start(&program, path);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	address = program.stack[1];
	assert_int_equal(symbols_resolve(symbols, modules, address, &ask, frames, 2), -EAGAIN);
	ask.until_ns = soon_ns(1);
	assert_int_equal(symbols_resolve(symbols, modules, address, &ask, frames, 2), -EAGAIN);
	ask.until_ns = soon_ns(1000000);
	assert_int_equal(symbols_resolve(symbols, modules, address, &ask, frames, 2), -EAGAIN);
	assert_int_equal(symbols_resolve_plain(symbols, modules, address, frames), 1);
	assert_string_equal(frames[0].function, "main");
	/* The worker still processes the first request, and then answers both. */
	assert_int_equal(symbols_resolve(symbols, modules, address + 1, NULL, frames, 2), 1);
	assert_string_equal(frames[0].function, "slowly");
	ask.until_ns = 0;
	assert_int_equal(symbols_resolve(symbols, modules, address, &ask, frames, 2), 1);
	assert_string_equal(frames[0].function, "slowly");

	/*
	 * For a process whose files have used up its share no further DWARF is read; cached answers
	 * are still given.
	 */
	ask.until_ns = UINT64_MAX;
	assert_int_equal(symbols_share_new(&ask.share, 50000000), 0);
	for (uint64_t i = 2; (count = symbols_prepare(symbols, modules, address + i, &ask)) == 0;
	     i++)
		assert_true(i < 1000);
	assert_int_equal(count, -ETIME);
	assert_int_equal(symbols_resolve(symbols, modules, address + 1000, &ask, frames, 2),
			 -ETIME);
	assert_int_equal(symbols_resolve(symbols, modules, address, &ask, frames, 2), 1);
	symbols_share_free(ask.share);
	/* This process itself has not read any symbol. */
	module = modules_find(modules, address);
	assert_non_null(module);
	assert_int_equal(elf_file_symbol_memory(module->file->elf), 0);
	program_end(&program);
	modules_free(modules);
	symbols_free(symbols);
}

/*
 * A process that maps an unlimited number of files, or writes an endless perf map, leaves memory to
 * the other processes of the session.
 */
static void names_have_a_share(void **state)
{
	enum { LIMIT = 4 << 20, PLACES = 8000, NAMES = 100000 };
	struct account session = {.limit = LIMIT};
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	struct jit_map *list = NULL, *map;
	struct modules *modules;
	struct symbols *symbols;
	uint64_t address = (uintptr_t)printf;
	char path[64];
	FILE *text;

	(void)state;
	assert_int_equal(symbols_new_in(&symbols, &session), 0);
	assert_int_equal(modules_new(&modules, symbols, getpid()), 0);
	for (uint64_t i = 0; i < PLACES; i++)
		assert_true(symbols_resolve(symbols, modules, address + i, NULL, frames,
					    SYMBOLS_FRAMES_MAX) > 0);
	assert_true(session.used > 0 && session.used <= LIMIT / 8);
	modules_free(modules);
	symbols_free(symbols);
	assert_int_equal(session.used, 0);

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	text = fopen(path, "we");
	assert_non_null(text);
	for (int i = 0; i < NAMES; i++)
		fprintf(text,
			"%x 10 a function whose name is long enough to take much memory, number "
			"%d\n",
			0x10000 + i * 16, i);
	fclose(text);
	assert_int_equal(jit_map_get(&list, &map, getpid(), &session), 0);
	unlink(path);
	for (int i = 0; i < 10; i++)
		jit_map_find(map, 0x10000);
	assert_string_equal(jit_map_find(map, 0x10000),
			    "a function whose name is long enough to take much memory, number 0");
	assert_true(session.refused > 0);
	assert_true(account_left(&session) >= LIMIT / 5 - LIMIT / 64);
	jit_map_put(&list, map);
	assert_int_equal(session.used, 0);
}

/*
 * libdw keeps everything that it has read: a worker that holds too much ends, and the next one
 * gives the same results.
 */
static void a_worker_that_holds_much_begins_anew(void **state)
{
	enum { LIMIT = 1 << 20, PLACES = 1 << 20 };
	struct account session = {.limit = LIMIT};
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	const uint64_t address = (uintptr_t)names_have_a_share;
	struct symbols_stats stats = {0};
	struct modules *modules;
	struct symbols *symbols;

	(void)state;
	alarm(120);
	assert_int_equal(symbols_new_in(&symbols, &session), 0);
	assert_int_equal(modules_new(&modules, symbols, getpid()), 0);
	/* Places in many units: few names are kept here for much that the worker keeps. */
	for (uint64_t i = 0; stats.worker_starts < 3; i = (i + 61) % PLACES) {
		symbols_resolve(symbols, modules, address + i, NULL, frames, SYMBOLS_FRAMES_MAX);
		symbols_stats(symbols, &stats);
	}
	assert_int_equal(stats.dwarf_given_up, 0);
	assert_int_equal(
		symbols_resolve(symbols, modules, address - 1 + sizeof(int), NULL, frames, 1), 1);
	assert_string_equal(frames[0].function, "names_have_a_share");
	alarm(0);
	modules_free(modules);
	symbols_free(symbols);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_that_explode_are_left_alone),
		cmocka_unit_test(damaged_dwarf_does_no_harm),
		cmocka_unit_test(nobody_has_to_wait),
		cmocka_unit_test(names_have_a_share),
		cmocka_unit_test(a_worker_that_holds_much_begins_anew),
	};

	return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Which of this process's files have a table when, by a real worker. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "attach/unwind/loader.h"
#include "programs.h"
#include "util/clock.h"

#define ROWS       (1u << 20)
#define PAGES      (1u << 16)
#define RULES      (1u << 14)
#define TABLES     256
#define PATIENT_NS 60000000000ull

struct place {
	struct unwind_loader *loader;
	struct unwind_areas areas;
	char folder[64];
	uint64_t small, large; /* inodes */
	int small_tables, large_tables, tables;
};

static void note_table(void *context, const struct abi_unwind_key *key, uint32_t number)
{
	struct place *place = context;
	int is_table = number != ABI_UNWIND_ABSENT && number != ABI_UNWIND_WANTED;

	place->tables += is_table;
	place->small_tables += is_table && key->inode == place->small;
	place->large_tables += is_table && key->inode == place->large;
}

/* Loads a library with so many MiB of code. Returns its inode. */
static uint64_t library_load(struct place *place, const char *name, int mib)
{
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s.c", place->folder, name);
	text_write(path, "int g(void);\n"
			 "int f(void) { __asm__(\".fill \" SIZE \"<<20, 1, 0x90\"); "
			 "return g() + 1; }\n"
			 "int g(void) { return 0; }\n");
	assert_int_equal(run("cd %s && gcc -shared -fPIC -O0 -DSIZE='\"%d\"' -o %s.so %s.c",
			     place->folder, mib, name, name),
			 0);
	snprintf(path, sizeof(path), "%s/%s.so", place->folder, name);
	assert_non_null(dlopen(path, RTLD_NOW));
	assert_int_equal(stat(path, &st), 0);
	return st.st_ino;
}

static int setup(void **state)
{
	struct place *place = calloc(1, sizeof(*place));
	struct unwind_loader_opts opts = {.publish = note_table, .context = place};

	place->areas =
		(struct unwind_areas){.rows = calloc(ROWS, sizeof(struct abi_unwind_row)),
				      .pages = calloc(PAGES, sizeof(uint32_t)),
				      .rules = calloc(RULES, sizeof(struct abi_unwind_rule)),
				      .tables = calloc(TABLES, sizeof(struct abi_unwind_table)),
				      .row_count = ROWS,
				      .page_count = PAGES,
				      .rule_count = RULES,
				      .table_count = TABLES};
	opts.areas = place->areas;
	strcpy(place->folder, "/tmp/tracer-loader-XXXXXX");
	*state = place;
	return mkdtemp(place->folder) ? unwind_loader_new(&place->loader, &opts) : -1;
}

static int teardown(void **state)
{
	struct place *place = *state;

	unwind_loader_free(place->loader);
	run("rm -rf %s", place->folder);
	free(place->areas.rows);
	free(place->areas.pages);
	free(place->areas.rules);
	free(place->areas.tables);
	free(place);
	return 0;
}

/* Who attaches waits for the small library alone. The large one's table comes all the same. */
static void large_libraries_are_not_waited_for(void **state)
{
	struct place *place = *state;
	uint64_t until = clock_ns(CLOCK_MONOTONIC) + PATIENT_NS;

	need("gcc");
	place->large = library_load(place, "large", 9);
	place->small = library_load(place, "small", 1);
	unwind_loader_prepare(place->loader, getpid(), ABI_UNWIND_ROWS_CALLS);
	assert_int_equal(unwind_loader_hurry(place->loader, until), 1);
	assert_int_equal(place->small_tables, 1);
	assert_int_equal(place->large_tables, 0);

	while (!unwind_loader_step(place->loader, until)) {
		assert_true(clock_ns(CLOCK_MONOTONIC) < until);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	assert_int_equal(place->large_tables, 1);

	/* Each file has one table, however often it is met. */
	unwind_loader_prepare(place->loader, getpid(), ABI_UNWIND_ROWS_CALLS);
	assert_int_equal(unwind_loader_step(place->loader, until), 1);
	assert_int_equal(place->small_tables, 1);
	assert_int_equal(place->large_tables, 1);
}

/* Whose code is large. A mapping event has queued it before, as when a program calls exec. */
static void a_program_itself_is_waited_for(void **state)
{
	struct place *place = *state;
	struct program program;
	struct process_maps maps;
	char path[128];
	struct stat st;

	need("gcc");
	snprintf(path, sizeof(path), "%s/own.c", place->folder);
	text_write(path, PROGRAM_TELL
		   "void f(void) { __asm__(\".fill 9<<20, 1, 0x90\"); tell(); }\n"
		   "int main(int n, char **v) { if (n > 1) f(); tell(); return !v; }\n");
	assert_int_equal(run("cd %s && gcc -O1 -o own own.c", place->folder), 0);
	snprintf(path, sizeof(path), "%s/own", place->folder);
	assert_int_equal(stat(path, &st), 0);
	place->large = st.st_ino;
	program_start(&program, path);

	assert_int_equal(process_maps_read(program.pid, &maps), 0);
	for (size_t i = 0; i < maps.count; i++)
		if (maps.entries[i].inode == place->large)
			unwind_loader_map(place->loader, program.pid, &maps.entries[i]);
	process_maps_free(&maps);
	unwind_loader_prepare(place->loader, program.pid, ABI_UNWIND_ROWS_CALLS);
	assert_int_equal(unwind_loader_hurry(place->loader, clock_ns(CLOCK_MONOTONIC) + PATIENT_NS),
			 1);
	assert_int_equal(place->large_tables, 1);
	program_end(&program);
}

/*
 * A program in FOLDER/bin that stands for an interpreter, 3.11, and the modules of its library: so
 * many that have code.
 */
static void interpreter_start(const struct place *place, struct program *program, struct stat *file,
			      int modules)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/bin", place->folder);
	assert_int_equal(run("mkdir -p %s %s/lib/python3.11/lib-dynload", path, place->folder), 0);
	snprintf(path, sizeof(path), "%s/own.c", place->folder);
	text_write(path, PROGRAM_TELL "int main(void) { tell(); return 0; }\n");
	snprintf(path, sizeof(path), "%s/module.c", place->folder);
	text_write(path, "int g(int *p) { return *p + 1; }\n"
			 "int f(int a) { return g(&a) + 1; }\n");
	assert_int_equal(run("cd %s && gcc -O1 -o bin/own own.c && "
			     "gcc -shared -fPIC -O0 -o module.so module.c && "
			     "for i in $(seq %d); do "
			     "cp module.so lib/python3.11/lib-dynload/m$i.so; done",
			     place->folder, modules),
			 0);
	snprintf(path, sizeof(path), "%s/bin/own", place->folder);
	assert_int_equal(stat(path, file), 0);
	program_start(program, path);
}

static uint64_t patience(void)
{
	return clock_ns(CLOCK_MONOTONIC) + PATIENT_NS;
}

/* Before they are mapped; not those of another version, nor what is no module. */
static void modules_of_an_interpreter_are_expected(void **state)
{
	struct place *place = *state;
	struct program program;
	struct stat file;

	need("gcc");
	interpreter_start(place, &program, &file, 3);
	assert_int_equal(
		run("cd %s/lib/python3.11/lib-dynload && ln -s ../../../module.so l.so && "
		    "mkfifo f.so && cp m1.so m1.txt && mkdir d.so && "
		    "cp m1.so big.so && truncate -s 5M big.so && mkdir -p "
		    "../../python3.12/lib-dynload && cp m1.so ../../python3.12/lib-dynload",
		    place->folder),
		0);
	assert_int_equal(unwind_loader_expect(place->loader, program.pid, &file, 0x030b0000), 1);
	assert_int_equal(unwind_loader_hurry_expected(place->loader, patience()), 1);
	assert_int_equal(place->tables, 3);

	/* Once for a folder. */
	assert_int_equal(unwind_loader_expect(place->loader, program.pid, &file, 0x030b0000), 0);
	/* And where the folder is a link, it is another's. */
	assert_int_equal(run("cd %s/lib && ln -s python3.11 python3.13", place->folder), 0);
	assert_int_equal(unwind_loader_expect(place->loader, program.pid, &file, 0x030d0000), 0);
	assert_int_equal(place->tables, 3);
	program_end(&program);
}

static void expected_modules_are_limited(void **state)
{
	struct place *place = *state;
	struct program program;
	struct stat file;

	need("gcc");
	interpreter_start(place, &program, &file, UNWIND_EXPECTED_MAX + 2);
	unwind_loader_expect(place->loader, program.pid, &file, 0x030b0000);
	assert_int_equal(unwind_loader_hurry_expected(place->loader, patience()), 1);
	assert_int_equal(place->tables, UNWIND_EXPECTED_MAX);
	program_end(&program);
}

/* It does not wait for all those before it. */
static void an_expected_module_that_is_mapped_is_next(void **state)
{
	struct place *place = *state;
	struct program program;
	struct process_maps maps;
	char path[128];
	struct stat file;

	need("gcc");
	interpreter_start(place, &program, &file, 60);
	assert_int_equal(unwind_loader_expect(place->loader, program.pid, &file, 0x030b0000), 1);
	snprintf(path, sizeof(path), "%s/lib/python3.11/lib-dynload/m60.so", place->folder);
	assert_non_null(dlopen(path, RTLD_NOW));
	assert_int_equal(stat(path, &file), 0);
	place->small = file.st_ino;
	assert_int_equal(process_maps_read(getpid(), &maps), 0);
	for (size_t i = 0; i < maps.count; i++)
		if (maps.entries[i].inode == place->small)
			unwind_loader_map(place->loader, getpid(), &maps.entries[i]);
	process_maps_free(&maps);
	assert_int_equal(unwind_loader_hurry(place->loader, patience()), 1);
	assert_int_equal(place->small_tables, 1);
	assert_true(place->tables <= 2); /* the one that was first is being compiled */

	assert_int_equal(unwind_loader_hurry_expected(place->loader, patience()), 1);
	assert_int_equal(place->tables, 60);
	assert_int_equal(place->small_tables, 1);
	program_end(&program);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(large_libraries_are_not_waited_for, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_program_itself_is_waited_for, setup, teardown),
		cmocka_unit_test_setup_teardown(modules_of_an_interpreter_are_expected, setup,
						teardown),
		cmocka_unit_test_setup_teardown(expected_modules_are_limited, setup, teardown),
		cmocka_unit_test_setup_teardown(an_expected_module_that_is_mapped_is_next, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Modules of a process: after it ended, deleted, shared, JIT-compiled, and in the vDSO. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/resource.h>

#include "object/symbols/files.h"
#include "object/symbols/symbols.h"
#include "programs.h"
#include "symbols_programs.h"

/* The maps of the process at the time the modules were taken are sufficient. */
static void ended_processes_keep_their_names(void **state)
{
	char path[PATH_MAX], names[4096];
	struct symbols *symbols;
	struct program program;
	struct modules *modules;

	(void)state;
	build(path, "short", "gcc", "c", c_source, "-O2 -g");
	assert_int_equal(symbols_new(&symbols), 0);
	program_start(&program, path);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	program_end(&program);
	assert_int_equal(unlink(path), 0);
	stack_names(symbols, modules, &program, names, sizeof(names));
	assert_string_equal(names, all_names);
	modules_free(modules);
	assert_int_equal(modules_new(&modules, symbols, program.pid), -ESRCH);
	symbols_free(symbols);
}

/*
 * Modules to which every map was reported need no process any more. A fork has the same modules,
 * until it maps something else there.
 */
static void reported_of_maps_they_name_what_has_ended(void **state)
{
	char path[PATH_MAX], names[4096];
	struct process_map other = {
		.end = 4096, .executable = 1, .inode = 1, .path = (char *)"/nowhere"};
	struct process_maps maps;
	struct symbols *symbols;
	struct program program;
	struct modules *modules, *child;

	(void)state;
	build(path, "told", "gcc", "c", c_source, "-O2 -g");
	assert_int_equal(symbols_new(&symbols), 0);
	program_start(&program, path);
	assert_int_equal(process_maps_read(program.pid, &maps), 0);
	program_end(&program);
	assert_int_equal(modules_begin(&modules, symbols, program.pid), 0);
	for (size_t i = maps.count; i-- > 0;)
		if (maps.entries[i].executable && maps.entries[i].inode)
			assert_int_equal(modules_map(modules, &maps.entries[i]), 0);
	assert_int_equal(modules->refused, 0);
	stack_names(symbols, modules, &program, names, sizeof(names));
	assert_string_equal(names, all_names);
	assert_int_equal(modules_copy(&child, modules, program.pid + 1), 0);
	other.start = modules_find(modules, program.stack[0])->start;
	other.end += other.start;
	assert_int_equal(modules_map(modules, &other), 0);
	assert_int_equal(modules->refused, 1);
	assert_string_equal(modules_find(modules, other.start)->path, "/nowhere");
	modules_free(modules);
	stack_names(symbols, child, &program, names, sizeof(names));
	assert_string_equal(names, all_names);
	modules_free(child);
	process_maps_free(&maps);
	symbols_free(symbols);
}

static void deleted_files_keep_their_names(void **state)
{
	char path[PATH_MAX], names[4096];
	struct symbols *symbols;
	struct program program;
	struct modules *modules;
	size_t refused;

	(void)state;
	build(path, "deleted", "gcc", "c", c_source, "-O2 -g");
	assert_int_equal(symbols_new(&symbols), 0);
	program_start(&program, path);
	assert_int_equal(run("cd %s && rm deleted && cp /bin/true deleted", folder), 0);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	stack_names(symbols, modules, &program, names, sizeof(names));
	refused = modules->refused;
	program_end(&program);
	modules_free(modules);
	symbols_free(symbols);
	if (refused) {
		/* Never the names of the file that now has its path. */
		assert_int_equal(strncmp(names, "[deleted", 8), 0);
		print_message("skipped: no right to open /proc/PID/map_files\n");
		skip();
	}
	assert_string_equal(names, all_names);
}

/* A file is opened once for all processes, and again after it was rewritten in place. */
static void processes_share_files(void **state)
{
	struct symbols_stats stats, again;
	char path[PATH_MAX], names[4096];
	struct symbols *symbols;

	(void)state;
	build(path, "shared", "gcc", "c", c_source, "-O2 -g");
	assert_int_equal(symbols_new(&symbols), 0);
	names_of(symbols, path, names, sizeof(names));
	symbols_stats(symbols, &stats);
	assert_true(stats.files > 1);
	names_of(symbols, path, names, sizeof(names));
	symbols_stats(symbols, &again);
	assert_int_equal(again.files, stats.files);
	assert_int_equal(again.addresses, stats.addresses);

	assert_int_equal(
		run("cd %s && sed 's/hidden/secret/g' shared.c >other.c && gcc -O2 -g -o other "
		    "other.c &&"
		    " cat other >shared",
		    folder),
		0);
	names_of(symbols, path, names, sizeof(names));
	assert_string_equal(names, "tell innermost middle outer secret main");
	symbols_free(symbols);
}

/*
 * A process that may open few files holds few, and reports those it could not open; files that are
 * in use are not closed.
 */
static void few_descriptors_are_enough(void **state)
{
	struct rlimit limit, few;
	struct symbols_stats stats;
	struct symbols *symbols;
	struct modules *modules;
	size_t files = 0;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	few.rlim_cur = 20;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(symbols_new(&symbols), 0);
	assert_int_equal(modules_new(&modules, symbols, getpid()), 0);
	for (size_t i = 0; i < modules->count; i++)
		files += modules->entries[i].inode != 0;
	symbols_stats(symbols, &stats);
	assert_true(files > 5);
	assert_int_equal(stats.files, 5);
	assert_true(modules->refused >= 1 && modules->refused + 5 <= files);
	modules_free(modules);
	assert_int_equal(modules_new(&modules, symbols, getpid()), 0);
	assert_true(modules->refused >= 1);
	modules_free(modules);
	symbols_free(symbols);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static const char jit_source[] =
	"#define _GNU_SOURCE\n#include <stdio.h>\n#include <sys/mman.h>\n#include <unistd.h>\n"
	"int main(void) {\n"
	"	char name[64], c; long n = 1;\n"
	"	void *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | "
	"MAP_ANONYMOUS, -1, 0);\n"
	"	FILE *file;\n"
	"	snprintf(name, sizeof(name), \"/tmp/perf-%d.map\", getpid());\n"
	"	file = fopen(name, \"w\");\n"
	"	fprintf(file, \"%lx 40 js:one\\n%lx 40 js:\\033two\\n\", (long)at, (long)at + "
	"0x40); fflush(file);\n"
	"	if (write(1, &n, 8) != 8 || write(1, &at, 8) != 8) return 1;\n"
	"	if (read(0, &c, 1) < 0) return 1;\n"
	"	fprintf(file, \"%lx 40 js:three\\n\", (long)at); fclose(file);\n"
	"	if (write(1, &n, 8) != 8 || read(0, &c, 1) < 0) return 1;\n"
	"	return 0; }\n";

static void code_without_a_file_is_in_the_perf_map(void **state)
{
	char path[PATH_MAX], map[64];
	struct symbols_frame frame;
	struct symbols *symbols;
	struct program program;
	struct modules *modules;
	long again;

	(void)state;
	build(path, "jit", "gcc", "c", jit_source, "-O1");
	assert_int_equal(symbols_new(&symbols), 0);
	program_start(&program, path);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	assert_int_equal(symbols_resolve(symbols, modules, program.stack[0] + 8, NULL, &frame, 1),
			 1);
	assert_string_equal(frame.function, "js:one");
	assert_string_equal(frame.filename, "[anon]");
	assert_int_equal(
		symbols_resolve(symbols, modules, program.stack[0] + 0x41, NULL, &frame, 1), 1);
	assert_string_equal(frame.function, "js:\\x1btwo");
	assert_int_equal(
		symbols_resolve(symbols, modules, program.stack[0] + 0x81, NULL, &frame, 1), 1);
	assert_string_equal(frame.function, "[anon]");
	/* More entries are appended to the map. */
	assert_int_equal(write(program.in, "x", 1), 1);
	assert_int_equal(read(program.out, &again, sizeof(again)), sizeof(again));
	assert_int_equal(symbols_resolve(symbols, modules, program.stack[0] + 8, NULL, &frame, 1),
			 1);
	assert_string_equal(frame.function, "js:three");
	/* An address outside of all maps. */
	assert_int_equal(symbols_resolve(symbols, modules, 1, NULL, &frame, 1), 0);
	assert_int_equal(symbols_resolve(symbols, modules, 0, NULL, &frame, 1), 0);
	snprintf(map, sizeof(map), "/tmp/perf-%d.map", program.pid);
	program_end(&program);
	unlink(map);
	modules_free(modules);
	symbols_free(symbols);
}

static const char dump_source[] =
	"#define _GNU_SOURCE\n#include <stdio.h>\n#include <sys/mman.h>\n#include <unistd.h>\n"
	"#define U(...) fwrite((unsigned[]){__VA_ARGS__}, sizeof((unsigned[]){__VA_ARGS__}), 1, "
	"file)\n"
	"#define L(...) fwrite((long[]){__VA_ARGS__}, sizeof((long[]){__VA_ARGS__}), 1, file)\n"
	"int main(void) {\n"
	"	char name[64], c; long n = 1;\n"
	"	void *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | "
	"MAP_ANONYMOUS, -1, 0);\n"
	"	FILE *file;\n"
	"	snprintf(name, sizeof(name), \"/tmp/jit-%d.dump\", getpid());\n"
	"	file = fopen(name, \"w+\");\n"
	"	U(0x4a695444, 1, 40, 62, 0, getpid()); L(0, 0);\n"
	"	U(0, 64); L(0); U(getpid(), getpid()); L(at, at, 0x40, 1);\n"
	"	fwrite(\"jit one\", 8, 1, file); fflush(file);\n"
	"	if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0) == "
	"MAP_FAILED) return 1;\n"
	"	if (write(1, &n, 8) != 8 || write(1, &at, 8) != 8) return 1;\n"
	"	if (read(0, &c, 1) < 0) return 1;\n"
	"	U(1, 64); L(0); U(getpid(), getpid()); L(at, at, at + 0x80, 0x40, 1); "
	"fclose(file);\n"
	"	if (write(1, &n, 8) != 8 || read(0, &c, 1) < 0) return 1;\n"
	"	return 0; }\n";

static void expect_name(struct symbols *symbols, const struct modules *modules, uint64_t address,
			const char *name)
{
	struct symbols_frame frame;

	assert_int_equal(symbols_resolve(symbols, modules, address, NULL, &frame, 1), 1);
	assert_string_equal(frame.function, name);
	assert_string_equal(frame.filename, "[anon]");
}

static void code_without_a_file_is_in_a_jitdump(void **state)
{
	char path[PATH_MAX], dump[64];
	struct symbols *symbols;
	struct program program;
	struct modules *modules, *child;
	uint64_t at;
	long again;

	(void)state;
	build(path, "dump", "gcc", "c", dump_source, "-O1 -Wno-int-conversion");
	assert_int_equal(symbols_new(&symbols), 0);
	program_start(&program, path);
	at = program.stack[0];
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	expect_name(symbols, modules, at + 8, "jit one");
	expect_name(symbols, modules, at + 0x88, "[anon]");
	assert_int_equal(write(program.in, "x", 1), 1);
	assert_int_equal(read(program.out, &again, sizeof(again)), sizeof(again));
	expect_name(symbols, modules, at + 8, "[anon]");
	expect_name(symbols, modules, at + 0x88, "jit one");
	snprintf(dump, sizeof(dump), "/tmp/jit-%d.dump", program.pid);
	program_end(&program);
	unlink(dump);
	/* A forked child has its parent's code. */
	assert_int_equal(modules_copy(&child, modules, getpid()), 0);
	modules_free(modules);
	expect_name(symbols, child, at + 0x88, "jit one");
	modules_free(child);
	symbols_free(symbols);
}

static const char late_source[] =
	"#define _GNU_SOURCE\n#include <stdio.h>\n#include <sys/mman.h>\n#include <unistd.h>\n"
	"int main(void) {\n"
	"	char name[64], c; long n = 1;\n"
	"	void *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | "
	"MAP_ANONYMOUS, -1, 0);\n"
	"	FILE *file;\n"
	"	if (write(1, &n, 8) != 8 || write(1, &at, 8) != 8) return 1;\n"
	"	if (read(0, &c, 1) < 0) return 1;\n"
	"	snprintf(name, sizeof(name), \"/tmp/perf-%d.map\", getpid());\n"
	"	file = fopen(name, \"w\");\n"
	"	fprintf(file, \"%lx 40 js:late\\n\", (long)at); fclose(file);\n"
	"	if (write(1, &n, 8) != 8 || read(0, &c, 1) < 0) return 1;\n"
	"	return 0; }\n";

static void perf_maps_may_come_late(void **state)
{
	char path[PATH_MAX], map[64];
	struct symbols *symbols;
	struct program program;
	struct modules *modules, *other;
	uint64_t at;
	long again;

	(void)state;
	build(path, "late", "gcc", "c", late_source, "-O1");
	assert_int_equal(symbols_new(&symbols), 0);
	program_start(&program, path);
	at = program.stack[0];
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	assert_int_equal(modules_new(&other, symbols, program.pid), 0);
	expect_name(symbols, modules, at + 8, "[anon]");
	assert_true(modules_jit_missing(modules, modules_find(modules, at)));
	assert_int_equal(modules_jit_look(modules), -ENOENT);
	assert_int_equal(write(program.in, "x", 1), 1);
	assert_int_equal(read(program.out, &again, sizeof(again)), sizeof(again));
	assert_int_equal(modules_jit_look(modules), 0);
	assert_false(modules_jit_missing(modules, modules_find(modules, at)));
	expect_name(symbols, modules, at + 8, "js:late");
	expect_name(symbols, other, at + 8, "[anon]");
	modules_jit_share(other, modules);
	modules_jit_share(other, modules);
	assert_int_equal(other->jit_count, 1);
	expect_name(symbols, other, at + 8, "js:late");
	snprintf(map, sizeof(map), "/tmp/perf-%d.map", program.pid);
	program_end(&program);
	unlink(map);
	modules_free(modules);
	modules_free(other);
	symbols_free(symbols);
}

static void the_kernels_page_has_its_name(void **state)
{
	struct symbols *symbols;
	struct modules *modules;
	struct symbols_frame frame;
	int found = 0;

	(void)state;
	assert_int_equal(symbols_new(&symbols), 0);
	assert_int_equal(modules_new(&modules, symbols, getpid()), 0);
	for (size_t i = 0; i < modules->count; i++) {
		if (strcmp(modules->entries[i].path, "[vdso]") != 0)
			continue;
		assert_int_equal(symbols_resolve(symbols, modules, modules->entries[i].start + 16,
						 NULL, &frame, 1),
				 1);
		assert_string_equal(frame.function, "[vdso]");
		found = 1;
	}
	assert_int_equal(found, 1);
	modules_free(modules);
	symbols_free(symbols);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ended_processes_keep_their_names),
		cmocka_unit_test(reported_of_maps_they_name_what_has_ended),
		cmocka_unit_test(deleted_files_keep_their_names),
		cmocka_unit_test(processes_share_files),
		cmocka_unit_test(few_descriptors_are_enough),
		cmocka_unit_test(code_without_a_file_is_in_the_perf_map),
		cmocka_unit_test(code_without_a_file_is_in_a_jitdump),
		cmocka_unit_test(perf_maps_may_come_late),
		cmocka_unit_test(the_kernels_page_has_its_name),
	};

	return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

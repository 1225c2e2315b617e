/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime of stripped and static builds, and of a process that has not initialised it yet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>

#include <cmocka.h>

#include "python_spin.h"
#include "pythons.h"
#include "runtime/cpython/code.h"
#include "runtime/cpython/runtime.h"
#include "runtime/cpython/tstate.h"

/*
 * A stripped libpython has no symbol for the thread-local variable: its offset comes from the
 * machine code.
 */
static void check_stripped(unsigned int minor)
{
	char path[PATH_MAX], copy[PATH_MAX], command[3 * PATH_MAX], preload[PATH_MAX + 16];
	char directory[] = "/tmp/test_runtime.XXXXXX";
	struct python_runtime runtime;
	struct python_child child = {0};
	uint64_t ident;
	int status;

	if (!python_path(minor, path))
		skip();
	assert_non_null(mkdtemp(directory));
	snprintf(copy, sizeof(copy), "%s/libpython3.%u.so.1.0", directory, minor);
	snprintf(command, sizeof(command),
		 "strip -o %s \"$(dirname %s)\"/../lib/libpython3.%u.so.1.0 2>/dev/null", copy,
		 path, minor);
	status = system(command);
	if (status == 0) {
		snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", copy);
		assert_int_equal(spin_start(&child, path, preload, &ident), 0);
		assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
		assert_string_equal(elf_file_path(runtime.file), copy);
		assert_int_equal(runtime.target.tstate_source, ABI_TSTATE_DTV);
		check_spinning(&runtime, ident);
		python_runtime_close(&runtime);
		python_stop(&child);
		unlink(copy);
	}
	rmdir(directory);
	if (status) {
		printf("no shared library of it, or no strip, on this machine\n");
		skip();
	}
}

static void test_stripped_312(void **state)
{
	(void)state;
	check_stripped(12);
}

static void test_stripped_313(void **state)
{
	(void)state;
	check_stripped(13);
}

/*
 * An interpreter that is a single executable, with and without symbols: linked here from the static
 * library.
 */
static void check_static(unsigned int minor)
{
	char path[PATH_MAX], command[4 * PATH_MAX], program[64], home[PATH_MAX + 16];
	char directory[] = "/tmp/test_runtime.XXXXXX";
	struct python_runtime runtime;
	struct python_child child = {0};
	uint64_t ident;
	int status;

	if (!python_path(minor, path))
		skip();
	assert_non_null(mkdtemp(directory));
	snprintf(program, sizeof(program), "%s/python", directory);
	*strrchr(path, '/') = 0; /* …/bin */
	snprintf(home, sizeof(home), "PYTHONHOME=%s/..", path);
	snprintf(command, sizeof(command),
		 "echo 'int Py_BytesMain(int, char **); int main(int n, char **a) { return "
		 "Py_BytesMain(n, a); }' |"
		 " cc -x c - -x none -o %s %s/../lib/python3.%u/config-*/libpython3.%u.a -rdynamic "
		 "-lm -ldl"
		 " -lpthread -lutil 2>/dev/null",
		 program, path, minor, minor);
	status = system(command);
	for (int stripped = 0; stripped < 2 && status == 0; stripped++) {
		assert_int_equal(spin_start(&child, program, home, &ident), 0);
		assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
		assert_int_equal(elf_file_has_symtab(runtime.file), !stripped);
		assert_true(runtime.static_exe);
		assert_int_equal(runtime.target.tstate_source, ABI_TSTATE_TLS);
		check_spinning(&runtime, ident);
		python_runtime_close(&runtime);
		python_stop(&child);
		snprintf(command, sizeof(command), "strip %s", program);
		if (!stripped)
			status = system(command);
	}
	unlink(program);
	rmdir(directory);
	if (status) {
		printf("no static library of it, or no compiler, on this machine\n");
		skip();
	}
}

static void test_static_312(void **state)
{
	(void)state;
	check_static(12);
}

static void test_static_313(void **state)
{
	(void)state;
	check_static(13);
}

static int has_libpython(pid_t pid)
{
	struct process_maps maps;
	int found = 0;

	assert_int_equal(process_maps_read(pid, &maps), 0);
	for (size_t i = 0; i < maps.count; i++)
		found |= maps.entries[i].executable && strstr(maps.entries[i].path, "libpython");
	process_maps_free(&maps);
	return found;
}

/*
 * The process is stopped as soon as libpython is mapped: no relocation has been applied, so the
 * place of the thread state is still unknown.
 */
static void check_early(unsigned int minor, unsigned int source)
{
	struct python_runtime runtime;
	char path[PATH_MAX];
	int status, found = 0;
	pid_t pid;

	if (!python_path(minor, path))
		skip();
	pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execl(path, path, "-c", "", NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	if (!WIFSTOPPED(status)) {
		printf("no ptrace here\n");
		skip();
	}
	for (int i = 0; i < MAX_STEPS && !found && WIFSTOPPED(status); i++) {
		ptrace(PTRACE_SYSCALL, pid, 0, 0);
		waitpid(pid, &status, 0);
		found = WIFSTOPPED(status) && has_libpython(pid);
	}
	if (found) {
		assert_int_equal(python_runtime_find(pid, NULL, &runtime), 0);
		assert_int_equal(runtime.offsets->version, 0x0300 | minor);
		assert_int_equal(runtime.target.tstate_source, source);
		python_runtime_close(&runtime);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	if (!found) {
		printf("%s does not map a libpython\n", path);
		skip();
	}
}

static void test_early_310(void **state)
{
	(void)state;
	check_early(10, ABI_TSTATE_SLOT);
}

static void test_early_313(void **state)
{
	(void)state;
	check_early(13, ABI_TSTATE_MATCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stripped_312), cmocka_unit_test(test_stripped_313),
		cmocka_unit_test(test_static_312),   cmocka_unit_test(test_static_313),
		cmocka_unit_test(test_early_310),    cmocka_unit_test(test_early_313),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

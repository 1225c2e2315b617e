/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that map the same files, and files that differ only in their names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe/process/plan_native_process.h"
#include "util/error.h"

#define COMMAND                                                                                    \
	"cd %s && printf 'void *je_malloc(unsigned long n) { return (void *)n; }\\n' >a.c && "     \
	"printf 'int none;\\n' >n.c && cc -shared -fPIC -O2 -o a.so a.c && "                       \
	"cc -shared -o n.so n.c && "                                                               \
	"cp a.so b.so && ln a.so hard.so && cp a.so gone.so"

struct fixture {
	char directory[32];
};

static int set_up(void **state)
{
	static struct fixture fixture;
	char command[512];

	*state = NULL;
	if (system("command -v cc >/dev/null"))
		return 0;
	strcpy(fixture.directory, "/tmp/test-native-XXXXXX");
	if (!mkdtemp(fixture.directory))
		return -1;
	snprintf(command, sizeof(command), COMMAND, fixture.directory);
	*state = &fixture;
	return system(command);
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;
	char command[64];

	if (!fixture)
		return 0;
	snprintf(command, sizeof(command), "rm -r %s", fixture->directory);
	return system(command);
}

/*
 * Starts cat with these libraries (names in the folder) loaded first. It has mapped all of them
 * when it answers.
 */
static pid_t start(const struct fixture *fixture, const char *libraries, int *end)
{
	char preload[256] = "", names[128], byte = 'x';
	int in[2], out[2];
	pid_t pid;

	snprintf(names, sizeof(names), "%s", libraries);
	for (char *name = strtok(names, " "); name; name = strtok(NULL, " "))
		snprintf(preload + strlen(preload), sizeof(preload) - strlen(preload), "%s/%s ",
			 fixture->directory, name);
	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (!pid) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[1]);
		close(out[0]);
		setenv("LD_PRELOAD", preload, 1);
		execlp("cat", "cat", "-u", NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	assert_int_equal(write(in[1], &byte, 1), 1);
	assert_int_equal(read(out[0], &byte, 1), 1);
	close(out[0]);
	*end = in[1];
	return pid;
}

static void process_stop(pid_t pid, int end)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(end);
}

static size_t count_of(const struct plan_file *list, size_t count, const char *symbol)
{
	size_t found = 0;

	for (size_t i = 0; i < count; i++)
		for (size_t s = 0; s < list[i].plan->count; s++)
			found += !strcmp(list[i].plan->sites[s].symbol, symbol);
	return found;
}

static void test_files(void **state)
{
	struct plan_native_cache *cache;
	struct plan_file *first, *second;
	size_t first_count, second_count, files;
	int ends[2];
	pid_t pids[2];

	if (!*state) {
		print_message("no cc on this machine\n");
		skip();
	}
	/* Two inodes, one of them under two names. */
	pids[0] = start(*state, "a.so b.so hard.so n.so", &ends[0]);
	pids[1] = start(*state, "b.so", &ends[1]);
	assert_int_equal(plan_native_cache_new(&cache, NULL), 0);
	assert_int_equal(plan_native_process(pids[0], cache, &first, &first_count), 0);
	assert_int_equal(count_of(first, first_count, "je_malloc"), 2);
	assert_int_equal(count_of(first, first_count, "malloc"), 1);
	files = plan_native_files(cache);
	assert_true(files > first_count); /* files without an allocator are cached, too */
	assert_int_equal(plan_native_process(pids[1], cache, &second, &second_count), 0);
	assert_int_equal(plan_native_files(cache), files);
	assert_int_equal(second_count, 2);
	for (size_t i = 0; i < second_count; i++) {
		size_t same = 0;

		for (size_t j = 0; j < first_count; j++)
			same += first[j].plan == second[i].plan && first[j].file == second[i].file;
		assert_int_equal(same, 1);
	}
	free(first);
	free(second);
	plan_native_cache_free(cache);
	plan_native_cache_free(NULL);
	process_stop(pids[0], ends[0]);
	process_stop(pids[1], ends[1]);
	assert_int_equal(plan_native_cache_new(&cache, NULL), 0);
	assert_int_equal(plan_native_process(pids[0], cache, &first, &first_count), -ESRCH);
	plan_native_cache_free(cache);
}

/* A file that was written to is a different file. So is another file with the same name. */
static void test_changed(void **state)
{
	const struct fixture *fixture = *state;
	struct plan_native_cache *cache;
	struct plan_file *list;
	char command[128];
	size_t count;
	pid_t pid;
	int end;

	if (!fixture || geteuid()) {
		print_message("only root may open the file of a map that has no name\n");
		skip();
	}
	assert_int_equal(plan_native_cache_new(&cache, NULL), 0);
	for (int i = 0; i < 2; i++) {
		pid = start(fixture, "gone.so", &end);
		snprintf(command, sizeof(command), "cd %s && cp n.so new.so && mv new.so gone.so",
			 fixture->directory);
		assert_int_equal(system(command), 0);
		assert_int_equal(plan_native_process(pid, cache, &list, &count), 0);
		assert_int_equal(count_of(list, count, "je_malloc"), i ? 0 : 1);
		free(list);
		process_stop(pid, end);
	}
	plan_native_cache_free(cache);
}

static void expect_unfound(pid_t pid, const char *option, const char *why)
{
	struct plan_alloc alloc;
	const struct plan_native_opts opts = {.allocs = &alloc, .alloc_count = 1};
	struct plan_native_cache *cache;
	struct plan_file *list;
	size_t count;

	assert_int_equal(plan_alloc_parse(option, &alloc), 0);
	assert_int_equal(plan_native_cache_new(&cache, &opts), 0);
	assert_int_equal(plan_native_process(pid, cache, &list, &count), 0);
	assert_int_equal(plan_native_unfound(cache), why ? -ENOENT : 0);
	if (why)
		assert_non_null(strstr(error_reason(-ENOENT), why));
	free(list);
	plan_native_cache_free(cache);
	plan_alloc_free(&alloc);
}

static void test_unfound(void **state)
{
	pid_t pid;
	int end;

	if (!*state) {
		print_message("no cc on this machine\n");
		skip();
	}
	pid = start(*state, "a.so n.so", &end);
	expect_unfound(pid, "a.so:je_malloc:malloc", NULL);
	expect_unfound(pid, "*.so:je_malloc:malloc", NULL); /* not every file has it */
	expect_unfound(pid, "n.so:none:malloc", "the targets' n.so has no function none");
	expect_unfound(pid, "b.so:je_malloc:malloc",
		       "no target has mapped a file b.so with a function je_malloc");
	process_stop(pid, end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_changed),
		cmocka_unit_test(test_unfound),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}

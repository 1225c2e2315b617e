/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that is left under limits: the arithmetic, and real cgroups if this machine lets the
 * test create one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc/container/memory_files.h"
#include "proc/container/memory_headroom.h"
#include "ranges.h"

#define MIB (1ll << 20)

static void arithmetic(void **state)
{
	static const struct {
		struct memory_level level;
		struct memory_left left;
	} rows[] = {
		{{100, 60, 60, 0, 40}, {40, 40, 80}},
		{{100, 60, 60, 50, 40}, {90, 90, 80}},
		{{100, 60, 60, 70, 40}, {100, 100, 80}},
		{{100, 160, 160, 10, 40}, {0, 0, 0}},
		{{100, 60, 90, 0, 40}, {40, 10, 80}},
		{{100, 60, 90, 30, 40}, {70, 40, 80}},
		{{100, 60, 100, 0, 40}, {40, 0, 80}},
		/* A higher limit allowed that, or it is not known. */
		{{100, 60, 101, 0, 40}, {40, 40, 80}},
		{{100, 60, UINT64_MAX, 0, 40}, {40, 40, 80}},
	};
	static const char stat[] =
		"cache 5\nactive_file 7\nxactive_file 1\ntotal_active_file 9\nlast 12";
	(void)state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct memory_left left = memory_level_left(&rows[i].level);

		assert_int_equal(left.now, rows[i].left.now);
		assert_int_equal(left.at_peak, rows[i].left.at_peak);
		assert_int_equal(left.last, rows[i].left.last);
	}
	assert_int_equal(memory_stat_value(stat, "active_file"), 7);
	assert_int_equal(memory_stat_value(stat, "total_active_file"), 9);
	assert_int_equal(memory_stat_value(stat, "last"), 12);
	assert_int_equal(memory_stat_value(stat, "active"), 0);
	assert_int_equal(memory_stat_value("", "last"), 0);
}

/* A request for more memory than any machine has. Memory that is given back is available again. */
static void machine(void **state)
{
	struct memory_short missing;
	struct memory_headroom *capacity;
	(void)state;

	assert_int_equal(memory_headroom_new(&capacity), 0);
	assert_false(memory_headroom_is_short(capacity, &missing));
	assert_int_equal(memory_headroom_take(capacity, getpid(), 1ll << 50), 0);
	assert_true(memory_headroom_is_short(capacity, &missing));
	assert_string_equal(missing.where, "the machine");
	assert_int_equal(missing.wanted, (1ull << 50) + (1ull << 49));
	assert_uint_in_range(missing.left, 1, 1ull << 50);
	assert_int_equal(memory_headroom_take(capacity, getpid(), -(1ll << 50)), 0);
	assert_false(memory_headroom_is_short(capacity, &missing));
	assert_int_equal(memory_headroom_take(capacity, 1 << 30, 1), -ESRCH);
	memory_headroom_free(capacity);
	memory_headroom_free(NULL);
}

static int file_write(const char *folder, const char *name, long long value)
{
	char path[256];
	FILE *file;
	int failed;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	if (!file)
		return -errno;
	failed = fprintf(file, "%lld\n", value) < 0;
	return fclose(file) || failed ? -EIO : 0;
}

/* A memory cgroup with a limit, and a cgroup inside it without one, of either version. */
static int cgroups_make(char outer[128], char inner[160], long long limit)
{
	static const char *const roots[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
					       {"/sys/fs/cgroup", "memory.max"}};

	for (size_t i = 0; i < 2; i++) {
		snprintf(outer, 128, "%s/tracer-unit-%d", roots[i][0], getpid());
		snprintf(inner, 160, "%s/inner", outer);
		if (mkdir(outer, 0755))
			continue;
		if (!file_write(outer, roots[i][1], limit) && !mkdir(inner, 0755))
			return 0;
		rmdir(outer);
	}
	return -ENOTSUP;
}

static pid_t sleeper(const char *folder)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	assert_int_equal(file_write(folder, "cgroup.procs", pid), 0);
	return pid;
}

/* The limit of the outer cgroup applies to both of its processes together. */
static void cgroups(void **state)
{
	char outer[128], inner[160], name[64];
	struct memory_short missing;
	struct memory_headroom *capacity;
	pid_t one, two;
	(void)state;

	if (cgroups_make(outer, inner, 64 * MIB)) {
		print_message("no memory cgroup can be made here\n");
		skip();
	}
	one = sleeper(inner);
	two = sleeper(inner);
	assert_int_equal(memory_headroom_new(&capacity), 0);
	assert_int_equal(memory_headroom_take(capacity, one, 24 * MIB), 0);
	assert_false(memory_headroom_is_short(capacity, &missing));
	assert_int_equal(memory_headroom_take(capacity, two, 24 * MIB), 0);
	assert_true(memory_headroom_is_short(capacity, &missing));
	snprintf(name, sizeof(name), "the cgroup /tracer-unit-%d", getpid());
	assert_string_equal(missing.where, name);
	assert_int_equal(missing.wanted, 72 * MIB);
	assert_uint_in_range(missing.left, 48 * MIB, 64 * MIB);
	assert_int_equal(memory_headroom_take(capacity, one, -24 * MIB), 0);
	assert_false(memory_headroom_is_short(capacity, &missing));
	memory_headroom_free(capacity);
	for (int i = 0; i < 2; i++) {
		kill(i ? one : two, SIGKILL);
		waitpid(i ? one : two, NULL, 0);
	}
	for (int i = 0; i < 500 && rmdir(inner); i++)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	assert_int_equal(rmdir(outer), 0);
}

static void text_write(const char *folder, const char *name, const char *text)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void files_remove(const char *folder, const char *const *names, size_t count)
{
	char path[64];

	for (size_t i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(rmdir(folder), 0);
}

/*
 * The files of a cgroup of version 1. What inodes and dentries take is the kernel's memory, and is
 * taken back before a limit kills.
 */
static void version_1(void **state)
{
	char folder[] = "/tmp/memory-XXXXXX";
	static const char *const names[] = {"memory.stat", "memory.limit_in_bytes",
					    "memory.usage_in_bytes", "memory.kmem.usage_in_bytes"};
	struct memory_left left;
	(void)state;

	assert_non_null(mkdtemp(folder));
	text_write(folder, "memory.stat",
		   "cache 4194304\nrss 8388608\ninactive_file 1\nactive_file 1\n"
		   "total_cache 4194304\ntotal_inactive_file 3145728\n"
		   "total_active_file 1048576\n");
	assert_int_equal(file_write(folder, "memory.limit_in_bytes", 48 * MIB), 0);
	assert_int_equal(file_write(folder, "memory.usage_in_bytes", 46 * MIB), 0);
	assert_int_equal(file_write(folder, "memory.kmem.usage_in_bytes", 34 * MIB), 0);
	assert_true(memory_directory_left(folder, &left));
	assert_int_equal(left.now, 2 * MIB + 3 * MIB + MIB / 2);
	assert_int_equal(left.last, (2 + 4 + 34) * MIB);
	files_remove(folder, names, sizeof(names) / sizeof(names[0]));
}

/* The files of a cgroup of version 2, as Linux 6.12 writes them. */
static void version_2(void **state)
{
	static const char stat[] =
		"anon 73400320\nfile 20971520\nkernel 3145728\nshmem 0\nfile_mapped 4194304\n"
		"inactive_anon 73396224\nactive_anon 4096\ninactive_file 8388608\n"
		"active_file 12582912\nunevictable 0\nslab_reclaimable 1048576\n";
	char folder[] = "/tmp/memory-XXXXXX";
	static const char *const names[] = {"memory.stat", "memory.max", "memory.high",
					    "memory.current", "memory.peak"};
	struct memory_left left = {7, 7, 7};
	(void)state;

	assert_non_null(mkdtemp(folder));
	assert_false(memory_directory_left(folder, &left)); /* the root cgroup has none of them */
	text_write(folder, "memory.stat", stat);
	text_write(folder, "memory.max", "max\n");
	assert_int_equal(file_write(folder, "memory.current", 100 * MIB), 0);
	assert_false(memory_directory_left(folder, &left));
	assert_int_equal(left.now, 7);
	assert_int_equal(file_write(folder, "memory.max", 128 * MIB), 0);
	assert_true(memory_directory_left(folder, &left));
	assert_int_equal(left.now, (128 - 100 + 8 + 6) * MIB);
	assert_int_equal(left.last, (128 - 100 + 8 + 12 + 1) * MIB);
	assert_int_equal(file_write(folder, "memory.high", 110 * MIB), 0);
	assert_true(memory_directory_left(folder, &left));
	assert_int_equal(left.now, (110 - 100 + 8 + 6) * MIB);
	assert_int_equal(left.at_peak, left.now);
	assert_int_equal(file_write(folder, "memory.peak", 109 * MIB), 0);
	assert_true(memory_directory_left(folder, &left));
	assert_int_equal(left.now, (110 - 100 + 8 + 6) * MIB);
	assert_int_equal(left.at_peak, (110 - 109 + 8 + 6) * MIB);
	files_remove(folder, names, sizeof(names) / sizeof(names[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arithmetic), cmocka_unit_test(machine),
		cmocka_unit_test(version_1),  cmocka_unit_test(version_2),
		cmocka_unit_test(cgroups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

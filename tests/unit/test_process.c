/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process/memory.h"
#include "process/process.h"

#define NOBODY 65534

/* A child that sleeps until it is killed. */
static pid_t start_sleeper(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		alarm(120); /* not to outlive a test that crashes */
		for (;;)
			pause();
	}
	return pid;
}

static void stop_sleeper(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/*
 * --- what a process is -----------------------------------------------------------------------
 */

static void info_of_ourselves(void **state)
{
	struct process_info info, child;
	pid_t pid;

	(void)state;
	assert_int_equal(process_info_read(getpid(), &info), 0);
	assert_int_equal(info.pid, getpid());
	assert_int_equal(info.tgid, getpid());
	assert_int_equal(info.ns_pid, getpid()); /* /proc and we are of one namespace */
	assert_int_equal(info.uid, geteuid());
	assert_int_equal(info.seccomp, prctl(PR_GET_SECCOMP));
	assert_int_equal(info.kernel_thread, 0);
	assert_int_equal(info.zombie, 0);
	assert_int_equal(info.threads, 1);
	assert_true(info.start_ticks > 0);
	assert_non_null(strstr(info.command, "test_process"));
	assert_int_equal(info.ppid, getppid());
	assert_int_equal(info.ns_pids[info.ns_count - 1], info.ns_pid);

	pid = start_sleeper();
	assert_int_equal(process_info_read(pid, &child), 0);
	assert_int_equal(child.pid, pid);
	assert_true(child.start_ticks >= info.start_ticks);
	stop_sleeper(pid);
}

static void info_of_a_misleading_name(void **state)
{
	static const char name[] = "a) Z 1 (b\n\\c";
	struct process_info info;
	char before[16];

	(void)state;
	prctl(PR_GET_NAME, before);
	assert_int_equal(prctl(PR_SET_NAME, name), 0);
	assert_int_equal(process_info_read(getpid(), &info), 0);
	prctl(PR_SET_NAME, before);
	assert_string_equal(info.name, name);
	assert_int_equal(info.zombie, 0);
	assert_int_equal(info.tgid, getpid());
	assert_int_equal(info.uid, geteuid());
	assert_int_equal(info.threads, 1);
}

static void info_of_a_command_line(void **state)
{
	char *argv[] = {"sh", "-c", "read line", "two words", "", "last", NULL};
	struct process_info info;
	int fds[2], status;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		dup2(fds[0], STDIN_FILENO);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(fds[0]);
	do
		assert_int_equal(process_info_read(pid, &info), 0);
	/* until it has exec'ed */
	while (strcmp(info.name, "sh") || strncmp(info.command, "sh ", 3));
	close(fds[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_string_equal(info.command, "sh -c read line two words  last");
	assert_string_equal(info.name, "sh");
}

static void info_of_a_zombie(void **state)
{
	struct process_info info;
	siginfo_t ended;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (!pid)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0);
	assert_int_equal(process_info_read(pid, &info), 0);
	assert_int_equal(info.zombie, 1);
	assert_string_equal(info.command, "");
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(process_info_read(pid, &info), -ESRCH);
	assert_int_equal(process_info_read(0, &info), -ESRCH);
	assert_int_equal(process_info_read(-1, &info), -ESRCH);
}

static void *read_own_info(void *out)
{
	return (void *)(intptr_t)process_info_read((pid_t)syscall(SYS_gettid), out);
}

static void info_of_a_thread(void **state)
{
	struct process_info info;
	pthread_t thread;
	void *err;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, read_own_info, &info), 0);
	assert_int_equal(pthread_join(thread, &err), 0);
	assert_null(err);
	assert_int_not_equal(info.pid, getpid());
	assert_int_equal(info.tgid, getpid());
	assert_int_equal(info.threads, 2);
}

static void info_of_a_kernel_thread(void **state)
{
	struct process_info info;

	(void)state;
	if (process_info_read(2, &info) || strcmp(info.name, "kthreadd")) {
		print_message("skipped: no kernel thread to be seen\n");
		skip();
	}
	assert_int_equal(info.kernel_thread, 1);
	assert_string_equal(info.command, "");
}

static void list_holds_us_in_order(void **state)
{
	pid_t *pids = NULL, child = start_sleeper();
	size_t count = 0;
	int found = 0;

	(void)state;
	assert_int_equal(process_list(&pids, &count), 0);
	for (size_t i = 0; i < count; i++) {
		found += pids[i] == getpid() || pids[i] == child;
		assert_true(!i || pids[i - 1] < pids[i]);
	}
	free(pids);
	stop_sleeper(child);
	assert_int_equal(found, 2);
}

/*
 * --- its memory ------------------------------------------------------------------------------
 */

static void memory_of_a_child(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *area, *copy = malloc(4 * page);
	uint64_t value = 0;
	pid_t pid;
	int err;

	(void)state;
	assert_non_null(copy);
	area = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(area, MAP_FAILED);
	for (size_t i = 0; i < 4 * page; i++)
		area[i] = (unsigned char)(i * 7 >> 2);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		munmap(area + 3 * page, page);
		area[0] = 1;
		alarm(120);
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
	memset(area + page, 0, page); /* ours, not the child's */
	err = memory_read(pid, (uintptr_t)area, copy, 3 * page);
	if (err == -EPERM) {
		stop_sleeper(pid);
		free(copy);
		print_message("skipped: this system forbids reading a child's memory\n");
		skip();
	}
	assert_int_equal(err, 0);
	assert_int_equal(copy[0], 1);
	for (size_t i = 1; i < 3 * page; i++)
		assert_int_equal(copy[i], (unsigned char)(i * 7 >> 2));

	assert_int_equal(memory_read(pid, (uintptr_t)area + 1, copy, 3 * page), -EFAULT);
	assert_int_equal(memory_read(pid, (uintptr_t)area + 3 * page, copy, 1), -EFAULT);
	assert_int_equal(memory_read(pid, (uintptr_t)area + 3 * page, copy, 0), 0);
	assert_int_equal(memory_read(pid, 0, copy, 8), -EFAULT);
	assert_int_equal(memory_read(pid, UINT64_MAX - 3, copy, 8), -EFAULT);
	assert_int_equal(memory_read_u64(pid, (uintptr_t)area + 3 * page - 8, &value), 0);
	assert_memory_equal(&value, area + 3 * page - 8, 8);
	assert_int_equal(memory_read_u64(pid, (uintptr_t)area + 3 * page - 7, &value), -EFAULT);
	stop_sleeper(pid);
	assert_int_equal(memory_read(pid, (uintptr_t)area, copy, 1), -ESRCH);
	munmap(area, 4 * page);
	free(copy);
}

/*
 * --- its maps --------------------------------------------------------------------------------
 */

static char directory[] = "/tmp/tracer-test-XXXXXX";

static int make_directory(void **state)
{
	(void)state;
	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	return mkdtemp(directory) && !chmod(directory, 0755) && !chdir(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	return chdir("/") || system(command) ? -1 : 0;
}

static void put_file(const char *name, const char *text)
{
	FILE *file = fopen(name, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void *map_file(const char *name, int flags)
{
	int fd = open(name, flags | O_CLOEXEC);
	void *area = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);

	assert_ptr_not_equal(area, MAP_FAILED);
	close(fd);
	return area;
}

/* Our own map at that address; borrowed from maps. */
static struct process_map *find_map(struct process_maps *maps, const void *address)
{
	assert_int_equal(process_maps_read(getpid(), maps), 0);
	for (size_t i = 0; i < maps->count; i++) {
		assert_true(!i || maps->entries[i - 1].end <= maps->entries[i].start);
		if (maps->entries[i].start == (uintptr_t)address)
			return &maps->entries[i];
	}
	fail_msg("no map at %p", address);
	return NULL;
}

static void maps_show_what_is_mapped(void **state)
{
	struct process_maps maps;
	struct process_map *map;
	struct stat st;
	char expected[128];
	void *area;

	(void)state;
	put_file("plain file", "x");
	area = map_file("plain file", O_RDONLY);
	map = find_map(&maps, area);
	snprintf(expected, sizeof(expected), "%s/plain file", directory);
	assert_string_equal(map->path, expected);
	assert_int_equal(map->end - map->start, 4096);
	assert_int_equal(map->offset, 0);
	assert_int_equal(map->readable, 1);
	assert_int_equal(map->writable, 0);
	assert_int_equal(map->executable, 0);
	assert_int_equal(stat("plain file", &st), 0);
	assert_int_equal(map->inode, st.st_ino);
	process_maps_free(&maps);
	assert_null(maps.entries);
	munmap(area, 4096);

	area = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1,
		    0);
	if (area != MAP_FAILED) {
		map = find_map(&maps, area);
		assert_int_equal(map->writable, 1);
		assert_int_equal(map->executable, 1);
		process_maps_free(&maps);
		munmap(area, 4096);
	}
	assert_int_equal(process_maps_read(0, &maps), -ESRCH);
}

/* The content behind a map, or -errno. */
static int read_map(const struct process_map *map, char content[32])
{
	int fd = process_map_open(getpid(), map);
	ssize_t n;

	if (fd < 0)
		return fd;
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	n = read(fd, content, 31);
	close(fd);
	assert_true(n >= 0);
	content[n] = '\0';
	return 0;
}

/* What the map at area opens; a wrong file is worse than none. */
static void assert_opens(const void *area, const char *text, int err, const char *path_end)
{
	struct process_maps maps;
	struct process_map *map = find_map(&maps, area);
	size_t length = strlen(map->path), end = strlen(path_end);
	char content[32] = "";

	assert_true(length >= end);
	assert_string_equal(map->path + length - end, path_end);
	assert_int_equal(read_map(map, content), err);
	if (!err)
		assert_string_equal(content, text);
	process_maps_free(&maps);
}

/* privileged: map_files can be read, so that even nameless files open. */
static void check_opening(int privileged)
{
	void *odd, *literal, *gone, *replaced, *moved, *device;

	odd = map_file("new\nline (x)", O_RDONLY);
	literal = map_file("back\\012slash", O_RDONLY);
	gone = map_file("gone", O_RDONLY);
	replaced = map_file("replaced", O_RDONLY);
	moved = map_file("dir/file", O_RDONLY);
	device = map_file("/dev/zero", O_RDONLY);
	assert_opens(odd, "odd", 0, "/new\\012line (x)");
	assert_opens(literal, "literal", 0, "/back\\012slash");
	assert_opens(device, "", -EINVAL, "/dev/zero");

	assert_int_equal(unlink("gone"), 0);
	assert_opens(gone, "gone", privileged ? 0 : -EPERM, "/gone (deleted)");
	/* Another file now has exactly the name that the kernel shows. */
	put_file("gone (deleted)", "trap");
	assert_opens(gone, "gone", privileged ? 0 : -ESTALE, "/gone (deleted)");

	assert_int_equal(mkdir("other", 0755), 0);
	put_file("other/file", "trap");
	assert_int_equal(rename("dir", "dir2"), 0);
	assert_opens(moved, "moved", 0, "/dir2/file");
	assert_int_equal(unlink("replaced"), 0);
	assert_int_equal(mkfifo("replaced (deleted)", 0600), 0);
	assert_opens(replaced, "replaced", privileged ? 0 : -EINVAL, "/replaced (deleted)");
	munmap(odd, 4096);
	munmap(literal, 4096);
	munmap(gone, 4096);
	munmap(replaced, 4096);
	munmap(moved, 4096);
	munmap(device, 4096);
}

static void put_files_to_open(void)
{
	put_file("new\nline (x)", "odd");
	put_file("back\\012slash", "literal");
	put_file("gone", "gone");
	put_file("replaced", "replaced");
	assert_int_equal(mkdir("dir", 0755), 0);
	put_file("dir/file", "moved");
}

static void mapped_files_open_with_privileges(void **state)
{
	(void)state;
	if (geteuid()) {
		print_message("skipped: needs root\n");
		skip();
	}
	put_files_to_open();
	check_opening(1);
}

/* Without privileges only the name leads to the file; root becomes nobody to see that. */
static void mapped_files_open_without_privileges(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	put_files_to_open();
	assert_int_equal(chmod(directory, 0777), 0);
	assert_int_equal(chmod("dir", 0777), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (!geteuid() &&
		    (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)))
			_exit(77);
		/* Without this /proc/self would stay root's. */
		prctl(PR_SET_DUMPABLE, 1);
		check_opening(0);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("skipped: cannot become another user\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static void a_program_is_past_when_the_next_is_called(void **state)
{
	int ready[2], go[2], program;
	char byte;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		if (read(go[0], &byte, 1) == 1)
			execl("/bin/sleep", "sleep", "60", NULL);
		_exit(1);
	}
	program = process_program_open(pid);
	assert_true(program >= 0);
	assert_int_equal(process_program_is_past(pid, program), 0);
	close(ready[1]);
	assert_int_equal(write(go[1], "", 1), 1);
	assert_int_equal(read(ready[0], &byte, 1), 0); /* closed by the exec */
	assert_int_equal(process_program_is_past(pid, program), 1);
	close(program);
	program = process_program_open(pid);
	assert_int_equal(process_program_is_past(pid, program), 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(process_program_is_past(pid, program), 0); /* there is no next one */
	close(program);
	close(ready[0]);
	close(go[0]);
	close(go[1]);
}

static void anonymous_memory_has_no_file(void **state)
{
	struct process_map map = {.start = 4096, .end = 8192, .path = ""};

	(void)state;
	assert_int_equal(process_map_open(getpid(), &map), -EINVAL);
}

#define with_directory(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(info_of_ourselves),
		cmocka_unit_test(info_of_a_misleading_name),
		cmocka_unit_test(info_of_a_command_line),
		cmocka_unit_test(info_of_a_zombie),
		cmocka_unit_test(info_of_a_thread),
		cmocka_unit_test(info_of_a_kernel_thread),
		cmocka_unit_test(list_holds_us_in_order),
		cmocka_unit_test(memory_of_a_child),
		with_directory(maps_show_what_is_mapped),
		with_directory(mapped_files_open_with_privileges),
		with_directory(mapped_files_open_without_privileges),
		cmocka_unit_test(anonymous_memory_has_no_file),
		cmocka_unit_test(a_program_is_past_when_the_next_is_called),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

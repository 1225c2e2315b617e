/* SPDX-License-Identifier: Apache-2.0 */
/* The mappings of a process, and its mapped files. */
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/process.h"

#define NOBODY 65534

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

/* This process's own map at that address; borrowed from maps. */
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

/* Reads the content behind a map. Returns -errno on failure. */
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

/* Checks what the map at area opens; opening a wrong file is worse than opening none. */
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

/* privileged: map_files can be read, so that files without a name can be opened, too. */
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

/* Without privileges a file is found only by its name; as root, the test becomes user nobody. */
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
		/* Otherwise /proc/self would still belong to root. */
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
	assert_int_equal(process_program_is_past(pid, program), 0); /* there is no next program */
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
		with_directory(maps_show_what_is_mapped),
		with_directory(mapped_files_open_with_privileges),
		with_directory(mapped_files_open_without_privileges),
		cmocka_unit_test(anonymous_memory_has_no_file),
		cmocka_unit_test(a_program_is_past_when_the_next_is_called),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

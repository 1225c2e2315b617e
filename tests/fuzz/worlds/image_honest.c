/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the image of a real Python process, and maps it in the process of the fuzz target. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image_honest.h"
#include "image_process.h"
#include "proc/memory.h"
#include "report/report.h"
#include "runtime/cpython/heap.h"
#include "runtime/cpython/heap_place.h"
#include "runtime/heap/census.h"

#define PROGRAM                                                                                    \
	"import sys, os\nkeep = [bytearray(n * 7 % 700) for n in range(3000)] + [(str(n), "        \
	"{n: [n]}) for n in range(3000)]\nos.write(1, b'r')\nsys.stdin.read()\n"

struct part image_parts[PARTS_MAX];
struct honest_file image_files[FILES_MAX];
uint64_t image_points[POINTS_MAX];
size_t image_part_count, image_file_count, image_point_count;
pid_t image_pid;
int image_maps_changed;
static int orders, answers;

void image_must(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "fuzz_image: %s: %s\n", what, strerror(errno));
	abort();
}

static pid_t child_start(const char *const argv[], int *to, int *from)
{
	int in[2], out[2];
	pid_t pid;

	image_must(!pipe2(in, O_CLOEXEC) && !pipe2(out, O_CLOEXEC), "pipe");
	pid = fork();
	if (!pid) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		for (size_t i = 0; i < image_file_count; i++)
			dup2(image_files[i].fd, FILES_FROM + (int)i);
		/* The same addresses at each start, with the stack apart from the image. */
		personality(ADDR_NO_RANDOMIZE);
		execvp(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	*to = in[1];
	*from = out[0];
	return pid;
}

long image_order(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
		 uint64_t f)
{
	const struct image_order reported = {(uint64_t)number, {a, b, c, d, e, f}};
	long result = -EIO;

	/* libFuzzer's timer interrupts system calls. */
	image_must(TEMP_FAILURE_RETRY(write(orders, &reported, sizeof(reported))) ==
				   sizeof(reported) &&
			   TEMP_FAILURE_RETRY(read(answers, &result, sizeof(result))) ==
				   sizeof(result),
		   "the process with the image");
	return result;
}

int image_memory_write(uint64_t address, const void *bytes, size_t count)
{
	char name[40];
	ssize_t done;
	int fd;

	snprintf(name, sizeof(name), "/proc/%d/mem", image_pid);
	fd = open(name, O_RDWR | O_CLOEXEC);
	image_must(fd >= 0, name);
	done = pwrite(fd, bytes, count, (off_t)address); /* also read-only memory */
	close(fd);
	return done == (ssize_t)count;
}

void image_part_map(const struct part *part)
{
	long flags = MAP_PRIVATE | MAP_FIXED | (part->file < 0 ? MAP_ANONYMOUS : 0);
	long at = image_order(
		SYS_mmap, part->start, part->bytes, (uint64_t)part->protection, (uint64_t)flags,
		part->file < 0 ? UINT64_MAX : (uint64_t)(FILES_FROM + part->file), part->offset);

	image_must(at == (long)part->start, "a map of the image");
	image_must(!part->content || image_memory_write(part->start, part->content, part->bytes),
		   "its content");
}

void image_process_start(void)
{
	const char *const argv[] = {getenv("FUZZ_IMAGE_PROCESS") ?: "build/fuzz/image_process",
				    NULL};

	if (image_pid) {
		close(orders);
		close(answers);
		kill(image_pid, SIGKILL);
		waitpid(image_pid, NULL, 0);
	}
	image_pid = child_start(argv, &orders, &answers);
	for (size_t i = 0; i < image_part_count; i++)
		image_part_map(&image_parts[i]);
	image_maps_changed = 0;
}

static int file_copy(pid_t pid, const struct process_map *map)
{
	static uint64_t inodes[FILES_MAX];
	char name[] = "/tmp/fuzz_image.XXXXXX";
	struct honest_file *file = &image_files[image_file_count];
	struct stat st;
	int fd, copy;

	for (size_t i = 0; i < image_file_count; i++)
		if (inodes[i] == map->inode)
			return (int)i;
	image_must(image_file_count < FILES_MAX, "too many files");
	fd = process_map_open(pid, map);
	image_must(fd >= 0 && !fstat(fd, &st), map->path);
	file->bytes = (size_t)st.st_size;
	file->content = malloc(file->bytes);
	image_must(file->content &&
			   pread(fd, file->content, file->bytes, 0) == (ssize_t)file->bytes,
		   map->path);
	close(fd);
	copy = mkstemp(name);
	image_must(copy >= 0 && write(copy, file->content, file->bytes) == (ssize_t)file->bytes,
		   name);
	unlink(name);
	/* Above the descriptor numbers that the file gets in the process. */
	file->fd = fcntl(copy, F_DUPFD_CLOEXEC, 100);
	close(copy);
	inodes[image_file_count] = map->inode;
	return (int)image_file_count++;
}

static void part_take(pid_t pid, const struct process_map *map)
{
	struct part *part = &image_parts[image_part_count];

	if (map->path[0] == '[' && strcmp(map->path, "[heap]") != 0)
		return;
	image_must(image_part_count < PARTS_MAX, "too many maps");
	*part = (struct part){.start = map->start, .bytes = map->end - map->start, .file = -1};
	part->protection = (map->readable ? PROT_READ : 0) | (map->writable ? PROT_WRITE : 0) |
			   (map->executable ? PROT_EXEC : 0);
	part->offset = map->offset;
	if (map->inode)
		part->file = file_copy(pid, map);
	if (map->writable || (part->file < 0 && map->readable)) {
		part->content = malloc(part->bytes);
		image_must(part->content &&
				   !memory_read(pid, part->start, part->content, part->bytes),
			   map->path);
	}
	image_part_count++;
}

static void point_add(uint64_t address)
{
	if (image_point_count < POINTS_MAX)
		image_points[image_point_count++] = address;
}

static int pool_point(const struct heap_pool *pool, void *context)
{
	unsigned int *seen = context;

	if ((*seen)++ % 8 == 0)
		point_add(pool->address & ~0xfffull);
	return image_point_count >= POINTS_MAX - 16;
}

/*
 * Addresses that the tracer reads: the runtime, what it points to, the heap's own structures, some
 * pools, the files' tables.
 */
static void points_take(void)
{
	struct python_runtime runtime;
	struct heap_walk walk;
	struct abi_heap heap;
	unsigned int seen = 0;
	uint64_t word;

	image_must(!python_runtime_find(image_pid, NULL, &runtime),
		   "no runtime in the honest image");
	point_add(runtime.target.runtime);
	if (!space_read_u64(runtime.space,
			    runtime.target.runtime + runtime.offsets->abi.runtime_interpreters_head,
			    &word))
		point_add(word);
	if (!heap_describe(&runtime, &heap))
		for (size_t i = 0; i + 8 <= sizeof(heap); i += 8) {
			memcpy(&word, (const uint8_t *)&heap + i, 8);
			if (word > 65536 && !memory_read(image_pid, word, &word, sizeof(word))) {
				memcpy(&word, (const uint8_t *)&heap + i, 8);
				point_add(word);
				if (!space_read_u64(runtime.space, word, &word) && word > 65536)
					point_add(word);
			}
		}
	image_must(!heap_read_pools(&runtime, pool_point, &seen, &walk),
		   "the honest heap cannot be read");
	python_runtime_close(&runtime);
}

void image_take(const char *interpreter)
{
	const char *const python[] = {interpreter, "-I", "-S", "-c", PROGRAM, NULL};
	struct process_maps maps;
	int to, from;
	char ready;
	pid_t pid;

	pid = child_start(python, &to, &from);
	image_must(read(from, &ready, 1) == 1, python[0]);
	image_must(!process_maps_read(pid, &maps), "maps");
	for (size_t i = 0; i < maps.count; i++)
		part_take(pid, &maps.entries[i]);
	process_maps_free(&maps);
	close(to);
	close(from);
	waitpid(pid, NULL, 0);
	image_process_start();
	points_take();
}

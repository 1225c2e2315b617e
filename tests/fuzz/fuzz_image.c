/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole process that lies: its memory, its maps and the files behind them. At the start the image
 * of a real Python process is taken, with copies of its files, and a process of a few instructions
 * (image_process.c) maps the same at the same addresses. The input is a list of lies: bytes and
 * pointers in memory or in a file, maps that go, move or become unreadable, files that are cut. The
 * tracer's own code is then led through that process: runtime, heap, types, census and report; the
 * plan of all layers; symbols. Everything is put right again for the next input.
 *
 * FUZZ_IMAGE_PROCESS: the program; FUZZ_IMAGE_PYTHON: the interpreter (else python3), whose version
 * the corpus is good for.
 */
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
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "image_process.h"
#include "plan/plan_native_process.h"
#include "plan/plan_target.h"
#include "process/memory.h"
#include "python/heap.h"
#include "python/heap_place.h"
#include "python/heap_types.h"
#include "report/report.h"
#include "session/census.h"
#include "symbols/modules.h"
#include "symbols/symbols.h"
#include "trace/trace.h"

#define PARTS_MAX  96
#define FILES_MAX  16
#define FILES_FROM 10 /* their descriptors in the process */
#define POINTS_MAX 64
#define LIES_MAX   64
#define LIE_BYTES  64
#define ASKED      8
#define PROGRAM                                                                                    \
	"import sys, os\nkeep = [bytearray(n * 7 % 700) for n in range(3000)] + [(str(n), "        \
	"{n: [n]}) for n in range(3000)]\nos.write(1, b'r')\nsys.stdin.read()\n"

/* A map of the honest process. */
struct part {
	uint64_t start, bytes, offset;
	int file, protection; /* file: -1 anonymous */
	uint8_t *content;     /* of what it may have written to; NULL: it is the file's */
};

struct honest_file {
	int fd; /* of our copy */
	uint8_t *content;
	size_t bytes;
};

struct lie {
	uint64_t address; /* or the place in the file */
	int file;         /* -1: memory */
	size_t bytes;
	uint8_t before[LIE_BYTES];
};

static struct part parts[PARTS_MAX];
static struct honest_file files[FILES_MAX];
static uint64_t points[POINTS_MAX]; /* addresses where something that the tracer reads begins */
static size_t part_count, file_count, point_count;
static struct lie lies[LIES_MAX];
static size_t lie_count;
static uint32_t files_cut; /* one bit each */
static int maps_changed;
static pid_t process;
static int orders, answers;
static FILE *nowhere;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The worker that reads DWARF has no way to a symbolizer, and would wait for one. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "symbolize=0";
}

static void must(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "fuzz_image: %s: %s\n", what, strerror(errno));
	abort();
}

/* --- the process ------------------------------------------------------------------------------ */

static pid_t child_start(const char *const argv[], int *to, int *from)
{
	int in[2], out[2];
	pid_t pid;

	must(!pipe2(in, O_CLOEXEC) && !pipe2(out, O_CLOEXEC), "pipe");
	pid = fork();
	if (!pid) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		for (size_t i = 0; i < file_count; i++)
			dup2(files[i].fd, FILES_FROM + (int)i);
		/* Where everything lies every time, the stack apart from the image. */
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

static long order(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
		  uint64_t f)
{
	const struct image_order told = {(uint64_t)number, {a, b, c, d, e, f}};
	long result = -EIO;

	/* libFuzzer's clock comes between. */
	must(TEMP_FAILURE_RETRY(write(orders, &told, sizeof(told))) == sizeof(told) &&
		     TEMP_FAILURE_RETRY(read(answers, &result, sizeof(result))) == sizeof(result),
	     "the process with the image");
	return result;
}

static int memory_write(uint64_t address, const void *bytes, size_t count)
{
	char name[40];
	ssize_t done;
	int fd;

	snprintf(name, sizeof(name), "/proc/%d/mem", process);
	fd = open(name, O_RDWR | O_CLOEXEC);
	must(fd >= 0, name);
	done = pwrite(fd, bytes, count, (off_t)address); /* read-only memory, too */
	close(fd);
	return done == (ssize_t)count;
}

static void part_map(const struct part *part)
{
	long flags = MAP_PRIVATE | MAP_FIXED | (part->file < 0 ? MAP_ANONYMOUS : 0);
	long at = order(
		SYS_mmap, part->start, part->bytes, (uint64_t)part->protection, (uint64_t)flags,
		part->file < 0 ? UINT64_MAX : (uint64_t)(FILES_FROM + part->file), part->offset);

	must(at == (long)part->start, "a map of the image");
	must(!part->content || memory_write(part->start, part->content, part->bytes),
	     "its content");
}

static void process_start(void)
{
	const char *const argv[] = {getenv("FUZZ_IMAGE_PROCESS") ?: "build/fuzz/image_process",
				    NULL};

	if (process) {
		close(orders);
		close(answers);
		kill(process, SIGKILL);
		waitpid(process, NULL, 0);
	}
	process = child_start(argv, &orders, &answers);
	for (size_t i = 0; i < part_count; i++)
		part_map(&parts[i]);
	maps_changed = 0;
}

/* --- the honest image ------------------------------------------------------------------------- */

static int file_copy(pid_t pid, const struct process_map *map)
{
	static uint64_t inodes[FILES_MAX];
	char name[] = "/tmp/fuzz_image.XXXXXX";
	struct honest_file *file = &files[file_count];
	struct stat st;
	int fd, copy;

	for (size_t i = 0; i < file_count; i++)
		if (inodes[i] == map->inode)
			return (int)i;
	must(file_count < FILES_MAX, "too many files");
	fd = process_map_open(pid, map);
	must(fd >= 0 && !fstat(fd, &st), map->path);
	file->bytes = (size_t)st.st_size;
	file->content = malloc(file->bytes);
	must(file->content && pread(fd, file->content, file->bytes, 0) == (ssize_t)file->bytes,
	     map->path);
	close(fd);
	copy = mkstemp(name);
	must(copy >= 0 && write(copy, file->content, file->bytes) == (ssize_t)file->bytes, name);
	unlink(name);
	/* Out of the way of the numbers that it gets in the process. */
	file->fd = fcntl(copy, F_DUPFD_CLOEXEC, 100);
	close(copy);
	inodes[file_count] = map->inode;
	return (int)file_count++;
}

static void part_take(pid_t pid, const struct process_map *map)
{
	struct part *part = &parts[part_count];

	if (map->path[0] == '[' && strcmp(map->path, "[heap]") != 0)
		return;
	must(part_count < PARTS_MAX, "too many maps");
	*part = (struct part){.start = map->start, .bytes = map->end - map->start, .file = -1};
	part->protection = (map->readable ? PROT_READ : 0) | (map->writable ? PROT_WRITE : 0) |
			   (map->executable ? PROT_EXEC : 0);
	part->offset = map->offset;
	if (map->inode)
		part->file = file_copy(pid, map);
	if (map->writable || (part->file < 0 && map->readable)) {
		part->content = malloc(part->bytes);
		must(part->content && !memory_read(pid, part->start, part->content, part->bytes),
		     map->path);
	}
	part_count++;
}

static void point_add(uint64_t address)
{
	if (point_count < POINTS_MAX)
		points[point_count++] = address;
}

static int pool_point(const struct heap_pool *pool, void *context)
{
	unsigned int *seen = context;

	if ((*seen)++ % 8 == 0)
		point_add(pool->address & ~0xfffull);
	return point_count >= POINTS_MAX - 16;
}

/*
 * Where the tracer reads: the runtime, what it points to, the heap's own structures, some pools,
 * the files' tables.
 */
static void points_take(void)
{
	struct python_runtime runtime;
	struct heap_reading reading;
	struct abi_heap heap;
	unsigned int seen = 0;
	uint64_t word;

	must(!python_runtime_find(process, NULL, &runtime), "no runtime in the honest image");
	point_add(runtime.target.runtime);
	if (!memory_read_u64(
		    process,
		    runtime.target.runtime + runtime.offsets->abi.runtime_interpreters_head, &word))
		point_add(word);
	if (!heap_describe(&runtime, &heap))
		for (size_t i = 0; i + 8 <= sizeof(heap); i += 8) {
			memcpy(&word, (const uint8_t *)&heap + i, 8);
			if (word > 65536 && !memory_read(process, word, &word, sizeof(word))) {
				memcpy(&word, (const uint8_t *)&heap + i, 8);
				point_add(word);
				if (!memory_read_u64(process, word, &word) && word > 65536)
					point_add(word);
			}
		}
	must(!heap_read_pools(&runtime, pool_point, &seen, &reading),
	     "the honest heap cannot be read");
	python_runtime_close(&runtime);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *const python[] = {
		getenv("FUZZ_IMAGE_PYTHON") ?: "python3", "-I", "-S", "-c", PROGRAM, NULL};
	struct process_maps maps;
	int to, from;
	char ready;
	pid_t pid;

	(void)argc, (void)argv;
	setenv("PYTHONHASHSEED", "0", 1);
	log_level = 0;
	nowhere = fopen("/dev/null", "w");
	must(nowhere && freopen("/dev/null", "w", stdout), "/dev/null");
	signal(SIGPIPE, SIG_IGN);
	pid = child_start(python, &to, &from);
	must(read(from, &ready, 1) == 1, python[0]);
	must(!process_maps_read(pid, &maps), "maps");
	for (size_t i = 0; i < maps.count; i++)
		part_take(pid, &maps.entries[i]);
	process_maps_free(&maps);
	close(to);
	close(from);
	waitpid(pid, NULL, 0);
	process_start();
	points_take();
	return 0;
}

/* --- lies ------------------------------------------------------------------------------------- */

struct input {
	const uint8_t *at;
	size_t left;
};

static uint64_t take(struct input *input, size_t bytes)
{
	uint64_t value = 0;

	if (bytes > input->left)
		bytes = input->left;
	memcpy(&value, input->at, bytes);
	input->at += bytes;
	input->left -= bytes;
	return value;
}

/* An address: at one of the points, or in one of the maps. */
static uint64_t address_take(struct input *input)
{
	uint64_t which = take(input, 1);
	const struct part *part = &parts[which % part_count];

	if (which & 0x80)
		return points[which % 0x80 % point_count] + (uint64_t)(int16_t)take(input, 2);
	return part->start + take(input, 4) % part->bytes;
}

static void lie_tell(int file, uint64_t address, const uint8_t *bytes, size_t count)
{
	struct lie *lie = &lies[lie_count];

	if (lie_count == LIES_MAX || !count)
		return;
	*lie = (struct lie){.address = address, .file = file, .bytes = count};
	if (file < 0) {
		if (memory_read(process, address, lie->before, count) ||
		    !memory_write(address, bytes, count))
			return;
	} else if (pread(files[file].fd, lie->before, count, (off_t)address) != (ssize_t)count ||
		   pwrite(files[file].fd, bytes, count, (off_t)address) != (ssize_t)count) {
		return;
	}
	lie_count++;
}

static void bytes_lie(struct input *input, int file, uint64_t address)
{
	size_t count = take(input, 1) % LIE_BYTES + 1;

	count = count > input->left ? input->left : count;
	lie_tell(file, address, input->at, count);
	input->at += count;
	input->left -= count;
}

static void map_lie(struct input *input)
{
	const struct part *part = &parts[take(input, 1) % part_count];
	uint64_t how = take(input, 1), page = take(input, 2) * 4096 % part->bytes;
	long flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;

	maps_changed = 1;
	if (how % 4 == 0)
		order(SYS_munmap, part->start + page, part->bytes - page, 0, 0, 0, 0);
	else if (how % 4 == 1)
		order(SYS_mprotect, part->start + page, part->bytes - page, (how >> 2) & 7, 0, 0,
		      0);
	else if (how % 4 == 2)
		order(SYS_mremap, part->start, part->bytes, part->bytes + take(input, 2) * 4096,
		      MREMAP_MAYMOVE, 0, 0);
	else
		order(SYS_mmap, part->start + page, part->bytes - page, (how >> 2) & 7,
		      (uint64_t)flags, FILES_FROM + take(input, 1) % file_count,
		      take(input, 2) * 4096);
}

static void lie_take(struct input *input)
{
	uint64_t kind = take(input, 1), address, word;
	int file = (int)(kind >> 3) % (int)file_count;

	switch (kind & 7) {
	case 0:
	case 1:
		address = address_take(input);
		bytes_lie(input, -1, address);
		return;
	case 2:
	case 3: /* a pointer to a place that is there */
		address = address_take(input) & ~7ull;
		word = address_take(input);
		lie_tell(-1, address, (const uint8_t *)&word, sizeof(word));
		return;
	case 4: /* the file's header and what stands near its beginning */
		bytes_lie(input, file, take(input, 2));
		return;
	case 5: /* the section headers, and what stands near the end */
		bytes_lie(input, file, files[file].bytes - 1 - take(input, 2) % files[file].bytes);
		return;
	case 6:
		bytes_lie(input, file, take(input, 4) % files[file].bytes);
		return;
	default:
		if (kind & 8) {
			map_lie(input);
		} else {
			file = (int)(take(input, 1) % file_count);
			files_cut |= 1u << file;
			must(!ftruncate(files[file].fd,
					(off_t)(take(input, 4) % files[file].bytes)),
			     "cut");
		}
	}
}

static void truth_restore(void)
{
	for (size_t i = 0; i < file_count; i++)
		if (files_cut & 1u << i)
			must(pwrite(files[i].fd, files[i].content, files[i].bytes, 0) ==
				     (ssize_t)files[i].bytes,
			     "a file");
	/* Pages of a cut file that were written to are gone from the maps. */
	maps_changed |= files_cut != 0;
	while (lie_count) {
		const struct lie *lie = &lies[--lie_count];

		if (lie->file >= 0)
			must(pwrite(files[lie->file].fd, files[lie->file].content + lie->address,
				    lie->bytes, (off_t)lie->address) == (ssize_t)lie->bytes,
			     "a file");
		else if (!maps_changed)
			must(memory_write(lie->address, lie->before, lie->bytes), "memory");
	}
	files_cut = 0;
	if (maps_changed)
		process_start();
}

/* --- the tracer's way through it -------------------------------------------------------------- */

static int record_feed(void *context, const void *record, size_t size)
{
	must(!trace_feed(context, record, size), "what a census makes is malformed");
	return 0;
}

static void nothing(void *context)
{
	(void)context;
}

static void report(struct trace *trace)
{
	const struct report_opts opts = {.by = GROUP_TRACEBACK};
	struct snapshot *snapshot;

	if (trace_snapshot(trace, 0, 1, &snapshot))
		return;
	report_text(snapshot, &opts, nowhere);
	report_json(snapshot, &opts, nowhere);
	snapshot_free(snapshot);
}

static void census(const struct python_runtime *runtime)
{
	struct event_target target = {
		.header = {EVENT_PROCESS, sizeof(target), 1, (uint32_t)process, (uint32_t)process},
		.nframe = 1,
		.mode = EVENT_MODE_CENSUS};
	struct census_opts opts = {.baseline = 1, .record = record_feed, .refresh = nothing};
	struct trace *trace;

	must(!trace_new(&trace, NULL) && !trace_feed(trace, &target, sizeof(target)), "a trace");
	opts.context = trace;
	if (!census_take(runtime, &opts)) {
		opts.baseline = 0;
		census_take(runtime, &opts);
	}
	report(trace);
	trace_free(trace);
}

static void python_read(void)
{
	struct python_runtime runtime;
	struct heap_types types;

	if (python_runtime_find(process, NULL, &runtime))
		return;
	if (!heap_types_read(&runtime, &types)) {
		must(types.reading.blocks ==
			     types.objects.blocks + types.dead.blocks + types.others.blocks,
		     "blocks that are of no kind");
		heap_types_free(&types);
	}
	census(&runtime);
	python_runtime_close(&runtime);
}

static void planned(uint32_t mode)
{
	const struct plan_target_opts opts = {.python.mode = mode,
					      .layers = 1u << EVENT_LAYER_PYTHON |
							1u << EVENT_LAYER_NATIVE |
							1u << EVENT_LAYER_MMAP};
	struct plan_caches caches = {0};
	struct plan_target target;

	must(!plan_caches_new(&caches, &opts), "caches");
	if (!plan_target(process, &opts, &caches, &target)) {
		plan_target_print(&target);
		plan_target_free(&target);
	}
	plan_caches_free(&caches);
}

static void named(struct input *input)
{
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	struct symbols *symbols;
	struct modules *modules;

	must(!symbols_new(&symbols), "symbols");
	if (!modules_new(&modules, symbols, process)) {
		for (int i = 0; i < ASKED; i++) {
			int count = symbols_resolve(symbols, modules, address_take(input), NULL,
						    frames, SYMBOLS_FRAMES_MAX);

			for (int k = 0; k < count; k++)
				must(frames[k].function[0] &&
					     strlen(frames[k].function) < SYMBOLS_TEXT_MAX,
				     "a name");
		}
		modules_free(modules);
	}
	symbols_free(symbols);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	uint64_t ways = take(&input, 1), lie = take(&input, 1) % LIES_MAX;

	while (lie-- && input.left)
		lie_take(&input);
	/* To plan and to name cost a hundred times more than to read: fewer inputs do. */
	if (ways % 16 == 1)
		planned(ways & 16   ? EVENT_MODE_CENSUS
			: ways & 32 ? EVENT_MODE_GROWTH
				    : EVENT_MODE_EXACT);
	else if (ways % 16 == 2)
		named(&input);
	else
		python_read();
	truth_restore();
	return 0;
}

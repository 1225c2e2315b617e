/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole process with false contents: its memory, its maps and the files behind them. At the start
 * the fuzz target takes the image of a real Python process with copies of its files. A process of a
 * few instructions (image_process.c) maps the same image at the same addresses. The input is a list
 * of changes ("lies"): bytes and pointers in memory or in a file; maps that are removed, moved or
 * made unreadable; files that are truncated. The tracer's own code then reads that process:
 * runtime, heap, types, census and report; the plan of all layers; symbols. The original state is
 * restored for the next input.
 *
 * FUZZ_IMAGE_PROCESS: the program; FUZZ_IMAGE_PYTHON: the interpreter (default: python3), for whose
 * version the corpus is valid.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cmd/plan_print.h"
#include "image_honest.h"
#include "image_process.h"
#include "object/symbols/modules.h"
#include "object/symbols/symbols.h"
#include "probe/process/plan_native_process.h"
#include "probe/process/plan_target.h"
#include "proc/memory.h"
#include "report/report.h"
#include "runtime/cpython/heap.h"
#include "runtime/heap/census.h"
#include "runtime/heap/heap_types.h"
#include "trace/trace.h"
#include "util/error.h"

#define LIES_MAX  64
#define LIE_BYTES 64
#define ASKED     8

struct lie {
	uint64_t address; /* or the position in the file */
	int file;         /* -1: memory */
	size_t bytes;
	uint8_t before[LIE_BYTES];
};

static struct lie lies[LIES_MAX];
static size_t lie_count;
static uint32_t files_cut; /* one bit each */
static FILE *nowhere;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The worker that reads DWARF cannot start a symbolizer, and would wait for one. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "symbolize=0";
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	setenv("PYTHONHASHSEED", "0", 1);
	log_level = 0;
	nowhere = fopen("/dev/null", "w");
	image_must(nowhere && freopen("/dev/null", "w", stdout), "/dev/null");
	signal(SIGPIPE, SIG_IGN);
	image_take(getenv("FUZZ_IMAGE_PYTHON") ?: "python3");
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
	const struct part *part = &image_parts[which % image_part_count];

	if (which & 0x80)
		return image_points[which % 0x80 % image_point_count] +
		       (uint64_t)(int16_t)take(input, 2);
	return part->start + take(input, 4) % part->bytes;
}

static void lie_tell(int file, uint64_t address, const uint8_t *bytes, size_t count)
{
	struct lie *lie = &lies[lie_count];

	if (lie_count == LIES_MAX || !count)
		return;
	*lie = (struct lie){.address = address, .file = file, .bytes = count};
	if (file < 0) {
		if (memory_read(image_pid, address, lie->before, count) ||
		    !image_memory_write(address, bytes, count))
			return;
	} else if (pread(image_files[file].fd, lie->before, count, (off_t)address) !=
			   (ssize_t)count ||
		   pwrite(image_files[file].fd, bytes, count, (off_t)address) != (ssize_t)count) {
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
	const struct part *part = &image_parts[take(input, 1) % image_part_count];
	uint64_t how = take(input, 1), page = take(input, 2) * 4096 % part->bytes;
	long flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;

	image_maps_changed = 1;
	if (how % 4 == 0)
		image_order(SYS_munmap, part->start + page, part->bytes - page, 0, 0, 0, 0);
	else if (how % 4 == 1)
		image_order(SYS_mprotect, part->start + page, part->bytes - page, (how >> 2) & 7, 0,
			    0, 0);
	else if (how % 4 == 2)
		image_order(SYS_mremap, part->start, part->bytes,
			    part->bytes + take(input, 2) * 4096, MREMAP_MAYMOVE, 0, 0);
	else
		image_order(SYS_mmap, part->start + page, part->bytes - page, (how >> 2) & 7,
			    (uint64_t)flags, FILES_FROM + take(input, 1) % image_file_count,
			    take(input, 2) * 4096);
}

static void lie_take(struct input *input)
{
	uint64_t kind = take(input, 1), address, word;
	int file = (int)(kind >> 3) % (int)image_file_count;

	switch (kind & 7) {
	case 0:
	case 1:
		address = address_take(input);
		bytes_lie(input, -1, address);
		return;
	case 2:
	case 3: /* a pointer to a valid place */
		address = address_take(input) & ~7ull;
		word = address_take(input);
		lie_tell(-1, address, (const uint8_t *)&word, sizeof(word));
		return;
	case 4: /* the file's header and data near its beginning */
		bytes_lie(input, file, take(input, 2));
		return;
	case 5: /* the section headers, and data near the end */
		bytes_lie(input, file,
			  image_files[file].bytes - 1 - take(input, 2) % image_files[file].bytes);
		return;
	case 6:
		bytes_lie(input, file, take(input, 4) % image_files[file].bytes);
		return;
	default:
		if (kind & 8) {
			map_lie(input);
		} else {
			file = (int)(take(input, 1) % image_file_count);
			files_cut |= 1u << file;
			image_must(!ftruncate(image_files[file].fd,
					      (off_t)(take(input, 4) % image_files[file].bytes)),
				   "cut");
		}
	}
}

static void truth_restore(void)
{
	for (size_t i = 0; i < image_file_count; i++)
		if (files_cut & 1u << i)
			image_must(pwrite(image_files[i].fd, image_files[i].content,
					  image_files[i].bytes, 0) == (ssize_t)image_files[i].bytes,
				   "a file");
	/* Pages of a truncated file that were written to are missing from the maps. */
	image_maps_changed |= files_cut != 0;
	while (lie_count) {
		const struct lie *lie = &lies[--lie_count];

		if (lie->file >= 0)
			image_must(pwrite(image_files[lie->file].fd,
					  image_files[lie->file].content + lie->address, lie->bytes,
					  (off_t)lie->address) == (ssize_t)lie->bytes,
				   "a file");
		else if (!image_maps_changed)
			image_must(image_memory_write(lie->address, lie->before, lie->bytes),
				   "memory");
	}
	files_cut = 0;
	if (image_maps_changed)
		image_process_start();
}

/* --- the tracer's reads of the process -------------------------------------------------------- */

static int record_feed(void *context, const void *record, size_t size)
{
	image_must(!trace_feed(context, record, size), "what a census makes is malformed");
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
	struct event_target target = {.header = {EVENT_PROCESS, sizeof(target), 1,
						 (uint32_t)image_pid, (uint32_t)image_pid},
				      .nframe = 1,
				      .mode = EVENT_MODE_CENSUS};
	struct census_opts opts = {.baseline = 1, .record = record_feed, .refresh = nothing};
	struct trace *trace;

	image_must(!trace_new(&trace, NULL) && !trace_feed(trace, &target, sizeof(target)),
		   "a trace");
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

	if (python_runtime_find(image_pid, NULL, &runtime))
		return;
	if (!heap_types_read(&runtime, &types)) {
		image_must(types.walk.blocks ==
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

	image_must(!plan_caches_new(&caches, &opts), "caches");
	if (!plan_target(image_pid, &opts, &caches, &target)) {
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

	image_must(!symbols_new(&symbols), "symbols");
	if (!modules_new(&modules, symbols, image_pid)) {
		for (int i = 0; i < ASKED; i++) {
			int count = symbols_resolve(symbols, modules, address_take(input), NULL,
						    frames, SYMBOLS_FRAMES_MAX);

			for (int k = 0; k < count; k++)
				image_must(frames[k].function[0] &&
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
	/* Planning and naming cost a hundred times more than reading, so fewer inputs do it. */
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

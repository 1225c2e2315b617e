/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/heap/heap_choice.h"
#include "cmd/options/targets.h"
#include "inspect/dump/capture_core.h"
#include "inspect/dump/dump_file.h"
#include "inspect/dump/segments.h"
#include "proc/container/memory_files.h"
#include "proc/container/memory_headroom.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "runtime/cpython/version.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/json.h"
#include "util/one_line.h"
#include "util/size.h"
#include "util/stream.h"
#include "util/text.h"

/* A copy may take a part of the memory that is available; the graph takes about as much again. */
#define MEMORY_SHARE 3u

#define COPIES 4 /* of a heap that moves */

/* Of the machine and of our own cgroup, whose limit would end us. */
static uint64_t memory_most(void)
{
	uint64_t available = memory_machine_read("MemAvailable:"), left;
	struct memory_headroom *own;

	if (available == UINT64_MAX)
		available = 0;
	if (!memory_headroom_new(&own)) {
		if (!memory_headroom_take(own, getpid(), 0) && memory_headroom_left(own, &left) &&
		    left < available)
			available = left;
		memory_headroom_free(own);
	}
	/* 0 would be no limit. */
	return available / MEMORY_SHARE ?: 1;
}

int heap_source_open(struct heap_source *out, pid_t pid, int swap_in)
{
	*out = (struct heap_source){0};
	return python_process_find(pid, NULL, swap_in, &out->info, &out->runtime);
}

void heap_source_close(struct heap_source *source)
{
	python_runtime_close(&source->runtime);
}

static int source_copy(const struct heap_source *source, int freeze, struct capture *out)
{
	const struct capture_opts opts = {.freeze = freeze,
					  .hurried = source->hurried,
					  .most_bytes = source->most_bytes ?: memory_most()};

	return space_error(source->runtime.space,
			   capture_take(out, &source->runtime, &source->info, &opts));
}

int heap_source_copy(const struct heap_source *source, struct capture *out)
{
	*out = (struct capture){0};
	return source_copy(source, 0, out);
}

/* A core is read by a process that can do little else, like a running process's memory. */
static int core_read_in(const struct heap_choice *choice, struct capture *out)
{
	return privileges_drop(choice->out != NULL, 0)
	       ?: calls_limit(0)
	       ?: capture_core(out, choice->core, choice->sysroot, memory_most());
}

/* They may be looked for when they are asked for. */
static int holders_make(struct heap_graph *heap)
{
	int err = type_holders_read(&heap->holders, heap->graph);

	if (err)
		type_holders_free(&heap->holders);
	return err == -E2BIG ? 0 : err;
}

static int graph_make(struct heap_graph *heap, unsigned int needs)
{
	uint64_t began = clock_ns(CLOCK_MONOTONIC);
	int err = needs & HEAP_COPY ? 0 : graph_new(&heap->graph, &heap->capture.image);

	if (!err && needs & HEAP_RETAINED)
		err = retained_new(&heap->retained, heap->graph);
	if (!err && needs & HEAP_PATHS)
		err = paths_new(&heap->paths, heap->graph);
	if (!err && needs & HEAP_HOLDERS)
		err = holders_make(heap);
	heap->elapsed_ns = clock_ns(CLOCK_MONOTONIC) - began;
	return err;
}

/* All but its lines. */
static void graph_drop(struct heap_graph *heap)
{
	struct block_lines lines = heap->lines;

	type_holders_free(&heap->holders);
	paths_free(heap->paths);
	retained_free(heap->retained);
	graph_free(heap->graph);
	capture_free(&heap->capture);
	space_close(heap->space);
	*heap = (struct heap_graph){.lines = lines};
}

/*
 * A heap that grows moves the array of its arenas: to memory that was mapped after the maps were
 * read, at worst. Such a copy makes no graph, and is made again.
 */
static int source_read(const struct heap_source *source, int freeze, unsigned int needs,
		       struct heap_graph *out)
{
	int err = -EFAULT;

	for (int i = 0; i < COPIES && err == -EFAULT; i++) {
		err = source_copy(source, freeze, &out->capture) ?: graph_make(out, needs);
		if (err)
			graph_drop(out);
	}
	return err == -EFAULT ? error_set(-EAGAIN, "its heap moves while it is copied; --freeze "
						   "stops it for the time of the copying")
			      : err;
}

int heap_source_read(const struct heap_source *source, unsigned int needs, struct heap_graph *out)
{
	*out = (struct heap_graph){0};
	return source_read(source, 0, needs, out);
}

static int process_read(const struct heap_choice *choice, unsigned int needs,
			struct heap_graph *out)
{
	struct heap_source source;
	int err = heap_source_open(&source, choice->pid, choice->swap_in);

	if (err)
		return err;
	err = privileges_drop(choice->out != NULL, 0)
		      ?: calls_limit(choice->freeze ? CALLS_FREEZE : 0)
		      ?: source_read(&source, choice->freeze, needs, out);
	if (err == -EDQUOT && needs & HEAP_COPY) {
		out->capture.image.pid = (uint32_t)source.info.pid;
		memcpy(out->capture.image.name, source.info.name, sizeof(source.info.name));
		err = capture_describe(&out->capture.image, &source.runtime);
	}
	if (!err && needs & HEAP_COPY)
		out->space = space_share(source.runtime.space);
	heap_source_close(&source);
	return err;
}

int heap_graph_open(const struct heap_choice *choice, const char *dump, unsigned int needs,
		    struct heap_graph *out)
{
	struct outfile *file = NULL;
	int err = choice->out ? outfile_open(&file, choice->out, choice->replace) : 0;

	*out = (struct heap_graph){0};
	if (err)
		return error_print(err, NULL, "%s", choice->out);
	err = heap_wants_lines(choice) ? heap_lines_open(choice, &out->lines) : 0;
	if (err) {
		outfile_discard(file);
		return err;
	}
	err = dump ? dump_read(&out->capture, dump, memory_most()) ?: graph_make(out, needs)
	      : choice->core ? core_read_in(choice, &out->capture) ?: graph_make(out, needs)
			     : process_read(choice, needs, out);
	if (err) {
		outfile_discard(file);
		heap_graph_close(out);
		if (dump || choice->core)
			error_print(err, NULL, "%s", dump ? dump : choice->core);
		else
			pid_error_print(choice->pid, err);
		return err;
	}
	if (file)
		err = outfile_end(file, dump_write(file, &out->capture));
	if (err) {
		heap_graph_close(out);
		return error_print(err, NULL, "%s", choice->out);
	}
	return 0;
}

void heap_graph_close(struct heap_graph *heap)
{
	block_lines_free(&heap->lines);
	graph_drop(heap);
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 100.0;
}

void heap_graph_head(const struct heap_graph *heap)
{
	const struct image *image = &heap->capture.image;
	char version[VERSION_TEXT];

	fputs("tracer: ", stdout);
	text_print(stdout, image->name);
	printf(" (PID %u), CPython %s", image->pid, version_text(version, image->version_hex));
	if (heap->capture.elapsed_ns)
		printf(", memory copied in %.1f ms", (double)heap->capture.elapsed_ns / 1e6);
	if (heap->graph)
		printf(", analysed in %.1f ms", (double)heap->elapsed_ns / 1e6);
	putchar('\n');
}

static void foot_brief(const struct report_opts *opts, const struct heap_graph *heap)
{
	const struct image *image = &heap->capture.image;
	const struct graph *graph = heap->graph;
	struct one_line line = {0};

	if (graph->cut)
		one_line_add(&line, "cut at the limit of work: sizes are wrong");
	if (image->bytes_lost)
		one_line_add(&line, "%s could not be copied", SIZE_TEXT(image->bytes_lost));
	if (graph->blocks.walk.pools_unreadable)
		one_line_add(&line, "pools that changed while they were copied: %" PRIu64,
			     graph->blocks.walk.pools_unreadable);
	if (image->bytes_swapped)
		one_line_add(&line, "%s on swap not read", SIZE_TEXT(image->bytes_swapped));
	if (image->absent[0])
		one_line_add(&line, "names of types recovered, a file is not at hand");
	if (graph->blocks.no_pools)
		one_line_add(&line, "no pymalloc heap: what nothing leads to is not seen");
	if (!line.count)
		one_line_add(&line, "complete");
	one_line_add(&line, "%.2f %% of objects have all their references",
		     percent(graph->proof.all_found, graph->proof.objects));
	one_line_print(stdout, "Figures", &line, opts->brief, opts->color);
}

void heap_graph_foot(const struct report_opts *opts, const struct heap_graph *heap)
{
	const struct image *image = &heap->capture.image;
	const struct graph *graph = heap->graph;

	if (opts->brief) {
		foot_brief(opts, heap);
		return;
	}
	printf("References: of %s mortal objects, %.2f %% have as many as their reference count "
	       "says, and %.2f %% have all of them\n",
	       COUNT_TEXT(graph->proof.objects), percent(graph->proof.exact, graph->proof.objects),
	       percent(graph->proof.all_found, graph->proof.objects));
	if (graph->proof.lost)
		printf("Of %s others no more references are in its memory: C code has lost them "
		       "(%.2f %% with these)\n",
		       COUNT_TEXT(graph->proof.lost),
		       percent(graph->proof.all_found + graph->proof.lost, graph->proof.objects));
	if (graph->cut)
		puts("Not seen: references beyond the limit of work; sizes in the heap are wrong");
	if (graph->blocks.no_pools)
		puts("Not seen: objects that no reference and no list of the collector leads to: "
		     "it has no pymalloc heap");
	if (graph->blocks.walk.pools_unreadable)
		printf("Not seen: %" PRIu64 " pools that changed while they were copied\n",
		       graph->blocks.walk.pools_unreadable);
	if (image->bytes_lost)
		printf("Not seen: %" PRIu64 " bytes of memory that could not be copied\n",
		       image->bytes_lost);
	if (image->bytes_changed)
		printf("It ran meanwhile: %s changed and were copied again\n",
		       SIZE_TEXT(image->bytes_changed));
	if (image->bytes_swapped)
		printf("Not seen: %s on swap, which were not read\n",
		       SIZE_TEXT(image->bytes_swapped));
	if (image->absent[0]) {
		fputs("Not seen: constants of ", stdout);
		text_print(stdout, image->absent);
		puts(", which is not at hand: names of types are recovered, or missing");
	}
}

void heap_graph_json(struct json *json, const char *key, const struct heap_graph *heap)
{
	const struct image *image = &heap->capture.image;
	const struct graph *graph = heap->graph;
	char version[VERSION_TEXT];

	json_open(json, key, '{');
	json_unsigned(json, "pid", image->pid);
	json_text(json, "name", image->name);
	json_text(json, "python_version", version_text(version, image->version_hex));
	json_open(json, "references", '{');
	json_numbers(json, {"objects", graph->proof.objects}, {"exact", graph->proof.exact},
		     {"all_found", graph->proof.all_found}, {"lost", graph->proof.lost});
	json_close(json, '}');
	json_numbers(json, {"edges", graph->out_start[graph->count]}, {"immortal", graph->immortal},
		     {"static", graph->statics},
		     {"pools_unreadable", graph->blocks.walk.pools_unreadable},
		     {"bytes_lost", image->bytes_lost}, {"bytes_changed", image->bytes_changed},
		     {"bytes_swapped", image->bytes_swapped}, {"frozen_ns", image->frozen_ns});
	json_bool(json, "cut", graph->cut);
	if (graph->blocks.no_pools)
		json_bool(json, "no_pymalloc", 1);
	if (image->absent[0])
		json_text(json, "file_absent", image->absent);
}

void heap_answer_begin(const struct heap_choice *choice, const struct heap_graph *heap)
{
	if (choice->json)
		heap_graph_json(choice->json, NULL, heap);
	else
		heap_graph_head(heap);
}

int heap_answer_end(const struct heap_choice *choice, const struct heap_graph *heap)
{
	if (choice->json)
		json_end(choice->json);
	else
		heap_graph_foot(&choice->output.opts, heap);
	return stream_flush(choice->json ? choice->json->out : stdout);
}

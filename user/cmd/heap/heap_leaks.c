/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/heap/heap_leaks.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/heap/heap_view.h"
#include "cmd/options/signals.h"
#include "cmd/options/targets.h"
#include "proc/container/memory_headroom.h"
#include "proc/family.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/sorted.h"

/* --- heap leaks parts ------------------------------------------------------------------------- */

/* What of a process's RSS is no object of Python, as tracer memory tells it. */

/* Objects of Python, which are told by what holds them. */
static bool is_objects(const char *name)
{
	return !strcmp(name, "live blocks") || !strcmp(name, "large blocks of Python objects");
}

static void part_add(struct leaks_part *parts, const char *name, double first, double last)
{
	for (size_t i = 0; i < LEAKS_PARTS; i++) {
		if (parts[i].name[0] && strcmp(parts[i].name, name) != 0)
			continue;
		snprintf(parts[i].name, sizeof(parts[i].name), "%s", name);
		parts[i].first += first;
		parts[i].last += last;
		return;
	}
}

/* Each file is one of many; of the others the parts of the parts are told. */
static void node_add(struct leaks_part *parts, const struct memory_node *node, const char *above,
		     unsigned int depth, int last)
{
	double size = (double)node->size;
	char name[LEAKS_PART_NAME];

	if (is_objects(node->name))
		return;
	snprintf(name, sizeof(name), "%s%s%s", above, above[0] ? ", " : "", node->name);
	if (!node->child_count || depth == 3 || !strcmp(node->name, "files") ||
	    !strcmp(node->name, "free")) {
		part_add(parts, name, last ? 0 : size, last ? size : 0);
		return;
	}
	for (size_t i = 0; i < node->child_count; i++)
		node_add(parts, &node->children[i], name, depth + 1, last);
}

/* Reads the parts of a process's RSS, at the start or at the end. What cannot be read stays 0. */
static void leaks_parts_read(struct leaking *process, int last)
{
	struct memory_report report;

	if (!process->memory)
		return;
	if (!process->parts)
		process->parts = calloc(LEAKS_PARTS, sizeof(*process->parts));
	if (!process->parts || memory_read_report(process->memory, 0, &report)) {
		free(process->parts);
		process->parts = NULL;
		memory_close(process->memory);
		process->memory = NULL;
		return;
	}
	for (size_t i = 0; i < report.root.child_count; i++)
		node_add(process->parts, &report.root.children[i], "", 1, last);
	memory_report_free(&report);
}

static int part_compare(const void *a, const void *b)
{
	const struct leaks_part *x = a, *y = b;
	double grown = (x->last - x->first) - (y->last - y->first);

	return grown < 0 ? 1 : grown > 0 ? -1 : strcmp(x->name, y->name);
}

/* Adds up the parts of the processes that are there at the end. */
static void leaks_parts_add(struct heap_leaks *leaks)
{
	for (size_t i = 0; i < leaks->process_count; i++) {
		const struct leaking *process = &leaks->processes[i];

		for (size_t k = 0; process->parts && !process->ended && k < LEAKS_PARTS; k++)
			if (process->parts[k].name[0])
				part_add(leaks->parts, process->parts[k].name,
					 process->parts[k].first, process->parts[k].last);
	}
	while (leaks->part_count < LEAKS_PARTS && leaks->parts[leaks->part_count].name[0])
		leaks->part_count++;
	qsort(leaks->parts, leaks->part_count, sizeof(*leaks->parts), part_compare);
}

/* --- heap leaks ------------------------------------------------------------------------------- */

#define READS_LEAST  4u
#define READS_LATE   3u /* if the time is over: fewer do not tell growth */
#define READS_MOST   12u
#define CPU_SHARE    0.05  /* of one processor, for READS_MOST reads */
#define CPU_MOST     0.4   /* the same, for READS_TELL reads */
#define AUTO_FIRST_S 2.3   /* between two reads, if the end is not known before */
#define AUTO_RATIO   1.225 /* of READS_MOST and later reads: 32 of them take ten minutes */
#define PROCESS_MAX  256u
#define PARTS_MAX    16u /* processes of which the parts of RSS are read */
#define NS           1e9
#define NICE         5
#define AGAIN_MOST   3u
/* If more than that more is astray than before, a holder is missing in the copy. */
#define ASTRAY_SLACK 2048
#define LOST_ENTRY   64u        /* bytes of an entry that a copy lacks, at the least */
#define LOST_MOST    (1u << 30) /* entries; more are no container's */
/* Growth is told from this on: what a few requests leave behind is less. */
#define LEAST_BYTES 4096.0
/* A container that is full within that time at its present rate is bounded. */
#define BOUND_SECONDS 86400.0

/* --- the processes ------------------------------------------------------------------------ */

/* Adds the workers of a process that was named: they do its work. 0, -ENOMEM. */
static int workers_add(pid_t **pids, size_t *count)
{
	size_t named = *count, found;
	pid_t *workers;
	int err = 0;

	for (size_t i = 0; i < named && !err; i++) {
		if (family_list((*pids)[i], &workers, &found))
			continue;
		for (size_t k = 0; k < found && !err; k++)
			err = pids_add(pids, count, workers[k]);
		free(workers);
	}
	return err;
}

/* Those that have a Python; an error is told for those that were named. */
static int processes_open(const struct leaks_choice *choice, const pid_t *pids, size_t count,
			  size_t named, struct heap_leaks *leaks)
{
	size_t without = 0;

	leaks->processes = calloc(count, sizeof(*leaks->processes));
	if (!leaks->processes)
		return -ENOMEM;
	for (size_t i = 0; i < count && leaks->process_count < PROCESS_MAX; i++) {
		struct leaking *process = &leaks->processes[leaks->process_count];
		int err = heap_source_open(&process->source, pids[i], choice->swap_in);

		process->source.most_bytes = choice->most_bytes;
		process->pid = pids[i];
		process->astray = -1;
		if (!err) {
			if (leaks->process_count++ < PARTS_MAX &&
			    memory_open(&process->memory, pids[i], choice->swap_in))
				process->memory = NULL;
			continue;
		}
		heap_source_close(&process->source);
		without += err == -ENOENT;
		if (err != -ENOENT && i < named && target_set_is_pids(choice->targets))
			pid_error_print(pids[i], err);
	}
	if (count > PROCESS_MAX)
		log_info("the first %u processes of %zu are read", PROCESS_MAX, count);
	return leaks->process_count ? 0 : without ? -ENOENT : -ESRCH;
}

static int processes_find(const struct leaks_choice *choice, struct heap_leaks *leaks)
{
	size_t count;
	pid_t *pids;
	int err = targets_list(choice->targets, "tracer list shows what runs", &pids, &count);

	if (err)
		return err;
	size_t named = count;
	err = workers_add(&pids, &count);
	if (!err && !count)
		err = targets_none_print(choice->targets, 0);
	else if (!err)
		err = processes_open(choice, pids, count, named, leaks);
	if (err == -ESRCH && count && !leaks->process_count && !target_set_is_pids(choice->targets))
		targets_none_print(choice->targets, count);
	free(pids);
	return err;
}

/* --- the moments --------------------------------------------------------------------------- */

/*
 * Of a list or dictionary whose table moved while it was copied: its entries are not in the copy.
 * As bytes, of entries without anything in them; 0: it has its table.
 */
static int64_t lost_bytes(const struct graph *graph, uint32_t object)
{
	const struct image *image = graph->image;
	const struct object_offsets *at = &image->offsets.objects;
	uint64_t address = graph->addresses[object], count;
	struct keys keys;

	if (graph_type(graph, object)->layout == LAYOUT_LIST) {
		count = image_u64(image, address + image->offsets.abi.bytes_size);
		if (count > LOST_MOST || !count ||
		    image_at(image, image_u64(image, address + at->list_items), count * 8))
			return 0;
	} else if (graph_type(graph, object)->layout == LAYOUT_DICT) {
		count = image_u64(image, address + at->dict_used);
		if (count > LOST_MOST || !count ||
		    !keys_read(image, image_u64(image, address + at->dict_keys), &keys))
			return 0;
	} else {
		return 0;
	}
	return (int64_t)(count * LOST_ENTRY);
}

/*
 * Bytes that no variable holds, but code in C or the interpreter, as far as the copy tells, and
 * those that it lacks.
 */
static int64_t astray_bytes(const struct heap_graph *heap)
{
	const struct graph *graph = heap->graph;
	uint32_t *start = numbers_new(graph->count);
	int64_t bytes = 0;

	for (size_t i = 0; start && i < graph->count; i++) {
		uint32_t from = path_start(heap->paths, start, (uint32_t)i);

		bytes += lost_bytes(graph, (uint32_t)i);
		if (heap->paths->parent[from] != GRAPH_NONE)
			continue;
		if (graph->root[from] == ROOT_NATIVE || graph->root[from] == ROOT_INTERPRETER ||
		    graph->root[from] == ROOT_LOST)
			bytes += (int64_t)graph_bytes(graph, (uint32_t)i);
	}
	free(start);
	return bytes;
}

/*
 * Reads the heap. A process that runs meanwhile may put a holder where it was copied already: then
 * all that it holds seems to be held by code in C, or by the interpreter's list of free objects. So
 * the heap is read again, until a copy has no more astray than before, or two copies agree: then
 * that is how it is. With the first copy nothing can be compared: a second one is taken, unless the
 * process slept.
 */
static int steady_read(struct leaking *process, struct heap_graph *out)
{
	int64_t before = INT64_MAX / 2;

	for (unsigned int again = 0;; again++) {
		int is_first = process->astray < 0;
		int err = heap_source_read(&process->source, HEAP_PATHS, out);

		if (err)
			return err;
		int64_t astray = astray_bytes(out);
		if (is_first || astray < process->astray || again == AGAIN_MOST ||
		    llabs(astray - before) <= ASTRAY_SLACK)
			process->astray = astray;
		before = astray;
		if ((!is_first || !out->capture.image.ran) &&
		    astray <= process->astray + ASTRAY_SLACK) {
			process->copied_ns = out->capture.copied_ns;
			return 0;
		}
		heap_graph_close(out);
	}
}

/* Of a heap that is too large to be copied. */
static int types_read(struct leaking *process)
{
	struct heap_types types;
	int err = heap_types_read(&process->source.runtime, &types);

	if (err)
		return space_error(process->source.runtime.space, err);
	process->copied_ns = clock_ns(CLOCK_MONOTONIC) - types.walk.elapsed_ns / 2;
	err = growth_add_types(&process->growth, &types);
	heap_types_free(&types);
	return err;
}

/* The first moment. */
static int first_read(struct leaking *process)
{
	int err = steady_read(process, &process->growth.first);

	process->by_types = err == -EDQUOT;
	return process->by_types ? types_read(process) : err ?: growth_begin(&process->growth);
}

static int process_read(struct leaking *process, size_t moment, int last)
{
	uint64_t rss = 0;
	struct heap_graph heap;

	if (process_rss_read(process->pid, &rss, NULL) || !rss)
		return -ESRCH;
	process->rss[moment] = (double)rss;
	if (!moment || last)
		leaks_parts_read(process, last);
	if (!moment)
		return first_read(process);
	if (process->by_types)
		return types_read(process);
	int err = steady_read(process, &heap);
	if (err)
		return err;
	err = growth_add(&process->growth, &heap, last);
	heap_graph_close(&heap);
	return err;
}

/*
 * How many processes were read; those that could not be are left out from now on. -errno. The
 * moment is when their heaps were copied: beside busy programs all else may take seconds.
 */
static int moment_read(struct heap_leaks *leaks, int last)
{
	double seconds = 0;
	int read = 0;

	for (size_t i = 0; i < leaks->process_count; i++) {
		struct leaking *process = &leaks->processes[i];
		int err = process->ended ? -ESRCH : process_read(process, leaks->moments, last);

		if (err == -ENOMEM)
			return err;
		if (err && !process->ended)
			pid_error_print(process->pid, err);
		process->ended |= err != 0;
		read += !err;
		if (!err && !leaks->first_ns)
			leaks->first_ns = process->copied_ns;
		if (err)
			continue;
		process->seconds[leaks->moments] =
			((double)process->copied_ns - (double)leaks->first_ns) / NS;
		seconds += process->seconds[leaks->moments];
	}
	if (!read)
		return -ESRCH;
	leaks->seconds[leaks->moments++] = seconds / read;
	leaks->to_the_end = last;
	return read;
}

static double cpu_seconds(void)
{
	return (double)clock_ns(CLOCK_PROCESS_CPUTIME_ID) / NS;
}

/* 1: a signal asks for the end. */
static int wait_until(int signals, uint64_t until_ns)
{
	struct pollfd fd = {.fd = signals, .events = POLLIN};
	int interrupts = 0;

	for (;;) {
		uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);

		if (signals_end(signals, NULL, &interrupts))
			return 1;
		if (now_ns >= until_ns)
			return 0;
		poll(&fd, 1, (int)((until_ns - now_ns) / 1000000 + 1));
	}
}

/* How often the heaps are read in that time, if it takes `once` of CPU time. */
static uint64_t reads_planned(double once, double seconds)
{
	double share = seconds / fmax(once, 1e-3);
	double reads = fmax(share * CPU_SHARE, fmin(share * CPU_MOST, READS_TELL));

	return (uint64_t)fmin(fmax(reads, READS_LEAST), READS_MOST);
}

/* --- the rows of all processes ------------------------------------------------------------- */

static int type_add(struct heap_leaks *leaks, struct holder *holder, const char *name,
		    const struct growth_type *type)
{
	struct growth_type *types = holder->types;
	uint32_t id;
	int err = strings_intern(leaks->names, name, strlen(name), &id);

	for (size_t i = 0; i < GROWTH_TYPES && !err; i++) {
		if (types[i].bytes && types[i].name != id)
			continue;
		types[i].name = id;
		types[i].bytes += type->bytes;
		types[i].count += type->count;
		break;
	}
	return err;
}

static int holder_add(struct heap_leaks *leaks, struct id_map *found, const struct leaking *process,
		      const struct growth_row *row)
{
	const struct growth *growth = &process->growth;
	uint32_t at = id_map_find(found, row->merged);
	struct holder *holder;
	int err = 0;

	if (at == ID_MAP_NONE) {
		at = (uint32_t)leaks->count;
		err = id_map_append(found, row->merged, &leaks->holders, &leaks->capacity,
				    leaks->count, sizeof(*leaks->holders));
		if (err)
			return err;
		leaks->holders[leaks->count++] =
			(struct holder){.label = strings_get(growth->names, row->label),
					.type = strings_get(growth->names, row->type)};
	}
	holder = &leaks->holders[at];
	holder->processes++;
	holder->holders += row->holders;
	holder->retained += row->retained;
	holder->came += leaks->to_the_end ? row->came : 0;
	holder->stayed += row->stayed;
	holder->weak += row->weak;
	holder->all += row->all;
	holder->in_state += row->at[growth->moments - 1].in_state;
	holder->bound = holder->processes == 1 ? row->bound : (struct bound){0};
	if (!holder->filler_count) {
		memcpy(holder->fillers, row->fillers, sizeof(row->fillers));
		holder->filler_count = row->filler_count;
		holder->filled_names = growth->names;
	}
	for (size_t i = 0; i < growth->moments; i++) {
		double keys = row->at[i].keys, values = row->at[i].values;

		holder->seconds[i] += process->seconds[i];
		holder->bytes[i] += row->at[i].bytes;
		holder->entries[i] += fabs(keys) > fabs(values) ? keys : values;
	}
	for (size_t i = 0; i < GROWTH_TYPES && row->types[i].bytes && !err; i++)
		err = type_add(leaks, holder, strings_get(growth->names, row->types[i].name),
			       &row->types[i]);
	return err;
}

/* Those that ended before others did are not in the sums. */
static int rows_add(struct heap_leaks *leaks)
{
	struct id_map found = {0};
	int err = strings_new(&leaks->names);

	for (size_t i = 0; i < leaks->process_count && !err; i++) {
		const struct leaking *process = &leaks->processes[i];

		if (process->growth.moments != leaks->moments)
			continue;
		for (size_t k = 0; k < process->growth.count && !err; k++)
			err = holder_add(leaks, &found, process, &process->growth.rows[k]);
		for (size_t k = 0; k < leaks->moments; k++) {
			leaks->heap[k] += process->growth.bytes[k];
			leaks->rss[k] += process->rss[k];
		}
	}
	for (size_t i = 0; i < leaks->count; i++)
		for (size_t k = 0; k < leaks->moments; k++)
			leaks->holders[i].seconds[k] /= (double)leaks->holders[i].processes;
	id_map_free(&found);
	return err;
}

/* --- what they say -------------------------------------------------------------------------- */

static int slope_of(const double *seconds, const double *y, size_t from, size_t count,
		    struct slope *out)
{
	*out = (struct slope){0};
	return count < 2 ? 0 : slope_find(seconds + from, y + from, count, out);
}

static int number_compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return CMP(*x, *y);
}

static double median(const double *y, size_t count)
{
	double sorted[GROWTH_MOMENTS];

	memcpy(sorted, y, count * sizeof(*y));
	qsort(sorted, count, sizeof(*sorted), number_compare);
	return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

/*
 * Is the median of each third of the time more than that of the third before? Not the least: what
 * runs while it is copied may miss a holder once.
 */
static bool is_rising(const struct heap_leaks *leaks, const double *y)
{
	size_t third = leaks->moments / 3 ? leaks->moments / 3 : 1;
	double before = -INFINITY;

	for (size_t begin = 0; begin + third <= leaks->moments; begin += third) {
		double now = median(y + begin, third);

		if (now <= before)
			return 0;
		before = now;
	}
	return 1;
}

/* What one series of a holder says; *slope: over the whole time. 0, -ENOMEM. */
static int series_judge(const struct heap_leaks *leaks, const double *seconds, const double *y,
			struct slope *slope, enum holder_verdict *verdict)
{
	size_t count = leaks->moments, half = count / 2;
	struct slope first, second;
	int err = slope_of(seconds, y, 0, count, slope)
			  ?: slope_of(seconds, y, 0, half + 1, &first)
			  ?: slope_of(seconds, y, half, count - half, &second);

	if (y[count - 1] <= 0 || slope->median <= 0)
		*verdict = HOLDER_STEADY;
	else if (count > 2 && first.median > 0 && second.median < first.median / 2)
		*verdict = slope->has_interval && slope->low <= 0 ? HOLDER_STEADY
			   : !leaks->chosen && count < READS_TELL ? HOLDER_UNCLEAR
								  : HOLDER_LEVELS;
	else if (count < 3 || !is_rising(leaks, y) || second.median <= 0 ||
		 (slope->has_interval && slope->low <= 0) ||
		 (!leaks->dumps && count < READS_TELL && !slope_is_even(seconds, y, count)))
		*verdict = HOLDER_UNCLEAR;
	else
		*verdict = HOLDER_GROWS;
	return err;
}

/* Whether it is full, or will be soon: a bound that is far away is none. */
static bool is_filling(const struct holder *holder)
{
	double left = (double)holder->bound.most - (double)holder->bound.entries;

	return holder->bound.most && holder->entries_slope > 0 &&
	       left <= holder->entries_slope * BOUND_SECONDS;
}

/* Its bytes tell it or its entries: the table of a dictionary grows in steps. */
static int holder_judge(struct heap_leaks *leaks, struct holder *holder)
{
	enum holder_verdict bytes, entries;
	struct slope slope;
	int err =
		series_judge(leaks, holder->seconds, holder->bytes, &holder->slope, &bytes)
			?: series_judge(leaks, holder->seconds, holder->entries, &slope, &entries);

	if (err)
		return err;
	holder->entries_slope = slope.median;
	holder->verdict = bytes > entries ? bytes : entries;
	/*
	 * Reads of what swings may rise by chance: then what came has to be there still. With more
	 * reads it may be replaced, as a text is that grows, if it grows evenly.
	 */
	if (holder->verdict == HOLDER_GROWS && holder->stayed < holder->came / 2 &&
	    (leaks->moments < READS_TELL ||
	     (!slope_is_even(holder->seconds, holder->bytes, leaks->moments) &&
	      !slope_is_even(holder->seconds, holder->entries, leaks->moments))))
		holder->verdict = HOLDER_UNCLEAR;
	/* The interpreter's state has only so many words: the names that it looked up last. */
	if (holder->verdict >= HOLDER_LEVELS &&
	    (is_filling(holder) || holder->in_state > holder->bytes[leaks->moments - 1] / 2))
		holder->verdict = HOLDER_BOUNDED;
	if (holder->bytes[leaks->moments - 1] < LEAST_BYTES)
		holder->verdict = HOLDER_STEADY;
	leaks->verdicts[holder->verdict]++;
	return 0;
}

static int holder_compare(const void *a, const void *b)
{
	const struct holder *x = a, *y = b;

	if (x->verdict != y->verdict)
		return x->verdict < y->verdict ? 1 : -1;
	if (holder_is_weak(x) != holder_is_weak(y))
		return holder_is_weak(x) - holder_is_weak(y);
	if (x->slope.median != y->slope.median)
		return x->slope.median < y->slope.median ? 1 : -1;
	return strcmp(x->label, y->label);
}

/* Makes the rows of all processes, those that grow most first. 0, -ENOMEM. */
static int rows_judge(struct heap_leaks *leaks)
{
	int err = rows_add(leaks);

	for (size_t i = 0; i < leaks->count && !err; i++)
		err = holder_judge(leaks, &leaks->holders[i]);
	if (leaks->count)
		qsort(leaks->holders, leaks->count, sizeof(*leaks->holders), holder_compare);
	return err;
}

static int leaks_judge(struct heap_leaks *leaks)
{
	int err = rows_judge(leaks);

	leaks_parts_add(leaks);
	err = err ?: slope_of(leaks->seconds, leaks->rss, 0, leaks->moments, &leaks->rss_slope);
	return err ?: slope_of(leaks->seconds, leaks->heap, 0, leaks->moments, &leaks->heap_slope);
}

/* --- how long it goes on -------------------------------------------------------------------- */

/*
 * Whether more moments would tell no more: enough were read to tell growth from waves, of none of
 * the rows that are shown it is unclear whether it grows, and the rate of each that grows is known
 * to ±LEAKS_AIM. 1, 0, -ENOMEM.
 */
static bool heap_leaks_are_certain(const struct heap_leaks *leaks)
{
	/* What the judging makes is its own; the processes are borrowed. */
	struct heap_leaks now = *leaks;
	int certain = leaks->moments >= READS_TELL;

	if (!certain)
		return 0;
	memset(now.heap, 0, sizeof(now.heap));
	memset(now.rss, 0, sizeof(now.rss));
	int err = rows_judge(&now);
	for (size_t i = 0; !err && i < now.count && (!now.top || i < now.top); i++) {
		const struct holder *holder = &now.holders[i];

		if (holder->verdict == HOLDER_GROWS)
			certain &= holder_rate_error(holder) <= LEAKS_AIM;
		else if (holder->verdict == HOLDER_UNCLEAR && holder->slope.low > 0)
			certain = 0;
	}
	free(now.holders);
	strings_free(now.names);
	return err ?: certain;
}

/*
 * When the next moment is, if the end is not known before: at first as often as in a time that is
 * given, then ever more seldom, so that the moments that can be kept last for the longest time.
 */
static uint64_t auto_next_ns(const struct leaks_choice *choice, double once, size_t moments)
{
	double first = fmax(AUTO_FIRST_S, once / CPU_MOST), seconds = 0;
	double longest = (double)choice->duration_ns / NS;

	for (size_t i = 1; i <= moments; i++)
		seconds += first * (i < READS_MOST ? 1 : pow(AUTO_RATIO, (double)(i - READS_MOST)));
	return (uint64_t)(fmin(seconds, longest) * NS);
}

/* Reads until the rows are certain. 0, -errno. */
static int moments_read_auto(const struct leaks_choice *choice, int signals,
			     struct heap_leaks *leaks)
{
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), next_ns;
	double cpu = cpu_seconds();
	int last = 0, err = moment_read(leaks, 0);
	double once = cpu_seconds() - cpu;

	while (err >= 0 && !last) {
		int certain = heap_leaks_are_certain(leaks);

		if (certain < 0)
			return certain;
		next_ns = auto_next_ns(choice, once, leaks->moments);
		last = wait_until(signals, began_ns + next_ns) || certain ||
		       leaks->moments + 1 == GROWTH_MOMENTS ||
		       clock_ns(CLOCK_MONOTONIC) - began_ns >= choice->duration_ns;
		err = moment_read(leaks, last);
	}
	leaks->read_seconds = cpu_seconds() - cpu;
	return err == -ESRCH && leaks->moments > 1 ? 0 : err < 0 ? err : 0;
}

static int moments_read(const struct leaks_choice *choice, int signals, struct heap_leaks *leaks)
{
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), end_ns = began_ns + choice->duration_ns;
	double cpu = cpu_seconds();
	int last = 0, err = moment_read(leaks, 0);

	if (err < 0)
		return err;
	uint64_t reads = reads_planned(cpu_seconds() - cpu, (double)choice->duration_ns / NS);
	for (uint64_t i = 1; i < reads && !last; i++) {
		last = wait_until(signals, began_ns + choice->duration_ns * i / (reads - 1));
		/* Where the processors are busy, reads take longer than their processor time. */
		last |= i + 1 == reads ||
			(i + 1 >= READS_LATE && clock_ns(CLOCK_MONOTONIC) >= end_ns);
		err = moment_read(leaks, last);
		if (err < 0)
			break;
	}
	leaks->read_seconds = cpu_seconds() - cpu;
	return err == -ESRCH && leaks->moments > 1 ? 0 : err < 0 ? err : 0;
}

static void limit_read(struct heap_leaks *leaks)
{
	struct memory_headroom *headroom;

	if (memory_headroom_new(&headroom))
		return;
	for (size_t i = 0; i < leaks->process_count; i++)
		memory_headroom_take(headroom, leaks->processes[i].pid, 0);
	leaks->limited = memory_headroom_left(headroom, &leaks->left);
	memory_headroom_free(headroom);
}

int heap_leaks_find(const struct leaks_choice *choice, struct heap_leaks *out)
{
	int signals = -1;

	*out = (struct heap_leaks){.top = choice->top, .brief = choice->brief};
	int err = processes_find(choice, out);
	if (err)
		return err;
	/* The graphs take time of a processor, which is not to be missed by the processes. Where
	 * it is refused, they share it. */
	(void)!nice(NICE);
	err = signals_catch(&signals, 1) ?: privileges_drop(1, 0) ?: calls_limit(0);
	if (!err) {
		log_info("reading the heap%s of %zu process%s for %s%.0f s: no probe is placed",
			 out->process_count > 1 ? "s" : "", out->process_count,
			 out->process_count > 1 ? "es" : "", choice->automatic ? "at most " : "",
			 (double)choice->duration_ns / NS);
		err = (choice->automatic ? moments_read_auto : moments_read)(choice, signals, out);
	}
	if (signals >= 0)
		close(signals);
	if (!err && out->moments < 2)
		return error_print(
			error_set(-EINVAL, "the heap was read once: nothing can be told"),
			"let it run for longer", "leaks");
	limit_read(out);
	err = err ?: leaks_judge(out);
	return err ? error_print(err, NULL, "leaks") : 0;
}

static int dump_add(struct heap_leaks *leaks, const struct heap_choice *choice, const char *file,
		    int forked, int last)
{
	struct growth *growth = &leaks->processes[0].growth;
	const struct image *first = &growth->first.capture.image;
	struct heap_graph heap = {0}, *into = leaks->moments ? &heap : &growth->first;
	const struct image *image = &into->capture.image;
	int err = heap_graph_open(choice, file, HEAP_PATHS, into);

	if (err)
		return err;
	double seconds = ((double)image->time_ns - (double)first->time_ns) / NS;
	leaks->processes[0].pid = (pid_t)image->pid;
	if (!leaks->moments)
		err = growth_begin(growth);
	else if ((image->pid != first->pid && !forked) || image->runtime != first->runtime)
		err = error_set(-EINVAL, "it is of another process than the first dump");
	else if (seconds <= leaks->seconds[leaks->moments - 1])
		err = error_set(-EINVAL, "it is not younger than the dump before it");
	else
		err = growth_add(growth, &heap, last);
	heap_graph_close(&heap);
	if (err)
		return error_print(err, "name dumps of one process, the oldest first", "%s", file);
	leaks->processes[0].seconds[leaks->moments] = seconds;
	leaks->seconds[leaks->moments++] = seconds;
	leaks->to_the_end = last;
	return 0;
}

int heap_leaks_of_dumps(char *const *files, size_t count, const char *bundle, size_t top,
			struct heap_leaks *out)
{
	const struct heap_choice choice = {0};
	int err = 0;

	*out = (struct heap_leaks){.top = top,
				   .dumps = 1,
				   .chosen = !bundle,
				   .process_count = 1,
				   .file = bundle ?: files[count - 1]};
	out->processes = calloc(1, sizeof(*out->processes));
	if (!out->processes) {
		out->process_count = 0;
		return -ENOMEM;
	}
	if (count > GROWTH_MOMENTS)
		return error_print(error_set(-E2BIG, "%zu dumps", count), "name 32 or fewer",
				   "leaks");
	for (size_t i = 0; i < count && !err; i++)
		err = dump_add(out, &choice, files[i], bundle != NULL, i + 1 == count);
	return err ?: leaks_judge(out);
}

void heap_leaks_free(struct heap_leaks *leaks)
{
	for (size_t i = 0; i < leaks->process_count; i++) {
		growth_free(&leaks->processes[i].growth);
		memory_close(leaks->processes[i].memory);
		free(leaks->processes[i].parts);
		heap_source_close(&leaks->processes[i].source);
	}
	free(leaks->processes);
	free(leaks->holders);
	strings_free(leaks->names);
}

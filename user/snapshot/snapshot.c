/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"

#define READ_JUST_NOW_NS 1000000u
/* for a running process, which cannot be walked at the last moment */
#define READ_LATELY_NS 100000000u

void snapshot_free(struct snapshot *snapshot)
{
	if (!snapshot)
		return;
	strings_free(snapshot->strings);
	free(snapshot->frames);
	free(snapshot->binaries);
	free(snapshot->tracebacks);
	free(snapshot->traces);
	free(snapshot->estimates);
	free(snapshot->threads);
	for (size_t i = 0; i < SNAPSHOT_LAYERS; i++)
		free(snapshot->layers[i].traces);
	free(snapshot->processes);
	free(snapshot);
}

size_t snapshot_memory(const struct snapshot *snapshot)
{
	size_t bytes = sizeof(*snapshot) + strings_memory(snapshot->strings) +
		       snapshot->frame_count * sizeof(*snapshot->frames) +
		       snapshot->binary_count * sizeof(*snapshot->binaries) +
		       snapshot->traceback_count * sizeof(*snapshot->tracebacks) +
		       snapshot->trace_count * sizeof(*snapshot->traces) +
		       snapshot->estimate_count * sizeof(*snapshot->estimates) +
		       snapshot->thread_count * sizeof(*snapshot->threads) +
		       snapshot->process_count * sizeof(*snapshot->processes);

	for (size_t i = 0; i < SNAPSHOT_LAYERS; i++)
		bytes += snapshot->layers[i].trace_count * sizeof(*snapshot->layers[i].traces);
	return bytes;
}

/* For an array whose capacity was not kept. */
static void items_fit(void *array, size_t count, size_t size)
{
	size_t capacity = SIZE_MAX;

	array_fit(NULL, array, &capacity, count, size);
}

#define FIT(items, count) items_fit(&snapshot->items, snapshot->count, sizeof(*snapshot->items))

void snapshot_fit(struct snapshot *snapshot)
{
	strings_fit(snapshot->strings);
	FIT(frames, frame_count);
	FIT(binaries, binary_count);
	FIT(tracebacks, traceback_count);
	FIT(traces, trace_count);
	FIT(estimates, estimate_count);
	FIT(threads, thread_count);
	for (size_t i = 0; i < SNAPSHOT_LAYERS; i++)
		FIT(layers[i].traces, layers[i].trace_count);
}

const char *snapshot_mode_name(uint32_t mode)
{
	static const char *const names[] = {
		[EVENT_MODE_EXACT] = "exact",     [EVENT_MODE_CENSUS] = "census",
		[EVENT_MODE_GROWTH] = "growth",   [EVENT_MODE_OFF] = "off",
		[EVENT_MODE_WINDOWS] = "windows",
	};

	return mode && mode < ARRAY_SIZE(names) ? names[mode] : "unknown";
}

const char *snapshot_large_name(uint32_t large)
{
	return large == SNAPSHOT_LARGE_WINDOWS ? " of large blocks, too"
	       : large == SNAPSHOT_LARGE_NONE  ? " without large blocks"
					       : "";
}

static const char *const layer_names[EVENT_LAYERS] = {
	[EVENT_LAYER_PYTHON] = "python",
	[EVENT_LAYER_NATIVE] = "native",
	[EVENT_LAYER_MMAP] = "mmap",
	[EVENT_LAYER_PAGES] = "pages",
};

const char *event_layer_name(enum event_layer layer)
{
	return layer_names[layer];
}

int event_layer_find(const char *name)
{
	for (int i = 0; i < EVENT_LAYERS; i++)
		if (!strcmp(name, layer_names[i]))
			return i;
	return -1;
}

size_t snapshot_process_count(const struct snapshot *snapshot)
{
	return snapshot->process_count ? snapshot->process_count : 1;
}

const struct snapshot_meta *snapshot_process(const struct snapshot *snapshot, size_t index)
{
	return snapshot->process_count ? &snapshot->processes[index] : &snapshot->meta;
}

uint64_t snapshot_sample_bytes(const struct snapshot *snapshot, const struct snapshot_trace *trace)
{
	/* Shortcut if no process is sampled. Mapped memory is never sampled. */
	return snapshot->meta.sample_bytes
		       ? snapshot_process(snapshot, trace->process)->sample_bytes
		       : 0;
}

/* The process's traces in the layer, which are contiguous. */
static struct snapshot_layer process_part(const struct snapshot_layer *layer, size_t index)
{
	size_t start = 0, end;

	while (start < layer->trace_count && layer->traces[start].process < index)
		start++;
	for (end = start; end < layer->trace_count && layer->traces[end].process == index;)
		end++;
	return (struct snapshot_layer){layer->traces ? layer->traces + start : NULL, end - start};
}

static void first_set(struct snapshot *snapshot, struct snapshot_layer layer)
{
	snapshot->traces = layer.traces;
	snapshot->trace_count = layer.trace_count;
}

struct snapshot snapshot_of_process(const struct snapshot *snapshot, size_t index, size_t *first)
{
	struct snapshot one = *snapshot;
	size_t end = *first;

	while (end < snapshot->trace_count && snapshot->traces[end].process == index)
		end++;
	one.meta = *snapshot_process(snapshot, index);
	one.processes = NULL;
	one.process_count = 0;
	memset(one.layers, 0, sizeof(one.layers));
	one.meta.layers = 0;
	for (size_t i = SNAPSHOT_EXTRA_FIRST; i < SNAPSHOT_LAYERS; i++)
		one.layers[i] = process_part(&snapshot->layers[i], index);
	one.trace_count = end - *first;
	if (one.trace_count)
		one.traces += *first;
	*first = end;
	/* The process's first layer may differ from the merged snapshot's. */
	if (one.meta.layer != snapshot->meta.layer)
		first_set(&one, process_part(&snapshot->layers[one.meta.layer], index));
	return one;
}

const struct snapshot_trace *snapshot_own_next(const struct snapshot *snapshot,
					       struct snapshot_cursor *cursor)
{
	for (; cursor->layer <= EVENT_LAYERS; cursor->layer++, cursor->trace = 0) {
		size_t extra = cursor->layer - 1;
		const struct snapshot_trace *traces =
			cursor->layer ? snapshot->layers[extra].traces : snapshot->traces;
		size_t count =
			cursor->layer ? snapshot->layers[extra].trace_count : snapshot->trace_count;
		enum event_layer layer =
			cursor->layer ? (enum event_layer)extra : snapshot->meta.layer;

		while (cursor->trace < count) {
			const struct snapshot_trace *trace = &traces[cursor->trace++];

			/* With a single layer, that layer applies to all processes. */
			if (!snapshot->meta.layers ||
			    snapshot_process(snapshot, trace->process)->layer == layer)
				return trace;
		}
	}
	return NULL;
}

bool snapshot_has_children(const struct snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot_process_count(snapshot); i++)
		if (snapshot_process(snapshot, i)->parent)
			return 1;
	return 0;
}

bool snapshot_is_unread(const struct snapshot_meta *meta)
{
	return meta->unread_ns >=
	       (strcmp(meta->moment, "running") ? READ_JUST_NOW_NS : READ_LATELY_NS);
}

const struct snapshot_binary *snapshot_binary(const struct snapshot *snapshot,
					      const struct snapshot_frame *frame)
{
	return frame->native > SNAPSHOT_NATIVE
		       ? &snapshot->binaries[frame->native - SNAPSHOT_NATIVE - 1]
		       : NULL;
}

bool snapshot_has_native_frames(const struct snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->frame_count; i++)
		if (snapshot->frames[i].native)
			return 1;
	return 0;
}

bool snapshot_is_growth(const struct snapshot *snapshot)
{
	return !strcmp(snapshot->meta.mode, "growth");
}

int snapshot_frees_by_walk(const struct snapshot *snapshot)
{
	size_t count = snapshot_process_count(snapshot);

	for (size_t i = 0; snapshot->meta.layer == EVENT_LAYER_PYTHON && i < count; i++)
		if (!strcmp(snapshot_process(snapshot, i)->mode, "census"))
			return 1;
	return 0;
}

bool snapshot_has_extra(const struct snapshot_meta *meta, uint32_t which)
{
	uint32_t table;

	if (which < EVENT_LAYERS)
		return meta->layers >> which & 1;
	if (which < SNAPSHOT_EXTRA_FIRST)
		return meta->windows.count != 0;
	table = which - SNAPSHOT_EXTRA_FIRST;
	return meta->extra[table / EVENT_LAYER_TABLES].known >> table % EVENT_LAYER_TABLES & 1;
}

int snapshot_knows(const struct snapshot *snapshot, enum snapshot_extras what)
{
	const struct snapshot_extra *extra = &snapshot->meta.extra[what];

	/* What windows tell of allocations are estimates: reports leave them out. */
	if (what == EXTRA_ALLOCATED && snapshot->meta.windows.count)
		return 0;
	return (extra->known & ~extra->gaps) >> snapshot->meta.layer & 1;
}

const char *snapshot_lifetime_name(enum snapshot_lifetime lifetime)
{
	static const char *const names[LIFETIMES] = {
		[LIFETIME_TEMPORARY] = "temporary",
		[LIFETIME_ONE_OTHER] = "one allocation later",
		[LIFETIME_10_MS] = "below 10 ms",
		[LIFETIME_100_MS] = "10 to 100 ms",
		[LIFETIME_1_S] = "0.1 to 1 s",
		[LIFETIME_10_S] = "1 to 10 s",
		[LIFETIME_100_S] = "10 to 100 s",
		[LIFETIME_1000_S] = "100 to 1,000 s",
		[LIFETIME_10000_S] = "1,000 to 10,000 s",
		[LIFETIME_LONGER] = "10,000 s and more",
		[LIFETIME_WALK] = "short-lived",
	};

	return names[lifetime];
}

bool snapshot_has_layer(const struct snapshot *snapshot, enum event_layer layer)
{
	return snapshot->meta.layer == layer || snapshot->meta.layers & 1u << layer;
}

struct snapshot snapshot_of_layer(const struct snapshot *snapshot, enum event_layer layer)
{
	struct snapshot only = *snapshot;
	struct snapshot_meta *meta = &only.meta;

	meta->layers = 0;
	memset(only.layers, 0, sizeof(only.layers));
	for (size_t i = 0; i < EXTRAS; i++) {
		meta->extra[i].known &= 1u << layer;
		meta->extra[i].gaps &= 1u << layer;
		if (meta->extra[i].known)
			only.layers[SNAPSHOT_EXTRA(i, layer)] =
				snapshot->layers[SNAPSHOT_EXTRA(i, layer)];
	}
	if (layer == EVENT_LAYER_MMAP) /* only blocks are sampled, and have ages */
		meta->sample_bytes = 0, meta->ages = 0;
	if (layer != EVENT_LAYER_NATIVE)
		meta->self_sampled = 0;
	if (layer == meta->layer)
		return only;
	first_set(&only, snapshot->layers[layer]);
	meta->layer = layer;
	/* Windows are of the first layer, and heap walks cover only Python's. */
	meta->windows = (struct snapshot_windows){0};
	meta->coverage_known = 0;
	meta->unread_ns = meta->rounded_blocks = 0;
	memset(meta->unknown, 0, sizeof(meta->unknown));
	if (!strcmp(meta->mode, "census") || !strcmp(meta->mode, "windows"))
		snprintf(meta->mode, sizeof(meta->mode), "exact");
	meta->peak_bytes = layer == EVENT_LAYER_NATIVE ? meta->native.peak_bytes : 0;
	meta->frees_unknown = layer == EVENT_LAYER_NATIVE ? meta->native.frees_unknown : 0;
	meta->replaced = layer == EVENT_LAYER_NATIVE ? meta->native.replaced : 0;
	return only;
}

struct snapshot snapshot_of_older(const struct snapshot *snapshot)
{
	struct snapshot only = snapshot_of_layer(snapshot, snapshot->meta.layer);

	first_set(&only, snapshot->layers[SNAPSHOT_OLDER]);
	memset(only.meta.extra, 0, sizeof(only.meta.extra));
	only.meta.peak_bytes = only.meta.rounded_blocks = 0;
	only.meta.ages = 0; /* they are all older */
	memset(only.meta.unknown, 0, sizeof(only.meta.unknown));
	return only;
}

struct snapshot snapshot_at_peak(const struct snapshot *snapshot)
{
	struct snapshot only = snapshot_of_layer(snapshot, snapshot->meta.layer);

	first_set(&only, snapshot->layers[SNAPSHOT_EXTRA(EXTRA_PEAK, snapshot->meta.layer)]);
	memset(only.layers, 0, sizeof(only.layers));
	memset(only.meta.extra, 0, sizeof(only.meta.extra));
	memset(only.meta.unknown, 0, sizeof(only.meta.unknown));
	only.meta.rounded_blocks = 0;
	/* What is listed is scaled already. */
	only.meta.at_peak = 1 + snapshot_is_estimated(&only.meta);
	only.meta.sample_bytes = 0;
	only.meta.self_sampled = 0;
	only.meta.ages = 0;
	only.meta.windows = (struct snapshot_windows){0};
	return only;
}

static int array_copy(void *out, const void *from, size_t count, size_t size)
{
	void *copy = NULL;

	if (count) {
		copy = reallocarray(NULL, count, size);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, from, count * size);
	}
	memcpy(out, &copy, sizeof(copy));
	return 0;
}

/* With the number of items; both are members of the snapshot. */
#define COPY(items, count)                                                                         \
	array_copy(&copy->items, snapshot->items, copy->count = snapshot->count,                   \
		   sizeof(*copy->items))

int snapshot_copy(const struct snapshot *snapshot, struct snapshot **out)
{
	struct snapshot *copy = calloc(1, sizeof(*copy));
	int err;

	if (!copy)
		return -ENOMEM;
	copy->meta = snapshot->meta;
	err = strings_copy(&copy->strings, snapshot->strings, NULL)
	      ?: COPY(frames, frame_count)
	      ?: COPY(binaries, binary_count)
	      ?: COPY(tracebacks, traceback_count)
	      ?: COPY(traces, trace_count)
	      ?: COPY(estimates, estimate_count)
	      ?: COPY(threads, thread_count)
	      ?: COPY(processes, process_count);
	for (size_t i = 0; i < SNAPSHOT_LAYERS && !err; i++)
		err = COPY(layers[i].traces, layers[i].trace_count);
	if (err) {
		snapshot_free(copy);
		return err;
	}
	*out = copy;
	return 0;
}

uint64_t loss_events(const uint64_t loss[LOSS_COUNT])
{
	uint64_t sum = 0;

	/* An unknown thread or a page fault costs a traceback, not an event. */
	for (unsigned int i = 0; i < LOSS_COUNT; i++)
		if (i != LOSS_ALLOC_BYTES && i != LOSS_NO_THREAD && i != LOSS_FRAME_FAULT &&
		    __builtin_add_overflow(sum, loss[i], &sum))
			return UINT64_MAX;
	return sum;
}

uint64_t snapshot_lost_events(const struct snapshot *snapshot)
{
	return loss_events(snapshot->meta.loss);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "report/pprof/pprof_writer.h"

#include "snapshot/estimate.h"

#define LABELS_MAX 16

/* The labels of a sample; its message points to them. */
struct labels {
	Label items[LABELS_MAX], *pointers[LABELS_MAX];
	size_t count;
};

static int function_write(struct pprof_writer *writer, const struct snapshot_frame *frame,
			  uint32_t *index)
{
	uint64_t key = (uint64_t)frame->filename << 32 | frame->function;
	Function function = PERFTOOLS__PROFILES__FUNCTION__INIT, *functions[] = {&function};
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;

	*index = id_map_find(&writer->functions, key);
	if (*index != ID_MAP_NONE)
		return 0;
	*index = (uint32_t)writer->functions.count;
	int err = id_map_put(&writer->functions, key, *index);
	if (err)
		return err;
	function.id = (uint64_t)*index + 1;
	/*
	 * system_name stays empty: if it equals the name, pprof removes what looks like a C++
	 * template argument, and nothing is left of "<module>".
	 */
	function.name = frame->function;
	function.filename = frame->filename;
	piece.n_function = 1;
	piece.function = functions;
	return pprof_piece_write(writer, &piece);
}

/* The number of a key, which is added if it is new: then *is_new is 1. 0, -ENOMEM. */
static int number_find(struct id_map *map, uint64_t key, uint32_t *number, int *is_new)
{
	*number = id_map_find(map, key);
	*is_new = *number == ID_MAP_NONE;
	if (!*is_new)
		return 0;
	*number = (uint32_t)map->count;
	return id_map_put(map, key, *number);
}

static int line_set(struct pprof_writer *writer, const struct snapshot_frame *frame, Line *line,
		    uint32_t *place)
{
	uint32_t function;
	int is_new, err = function_write(writer, frame, &function);

	if (err)
		return err;
	perftools__profiles__line__init(line);
	line->function_id = (uint64_t)function + 1;
	line->line = frame->line;
	return number_find(&writer->places,
			   (uint64_t)function << 32 | (uint32_t)frame->native << 31 | frame->line,
			   place, &is_new);
}

/* How many of the frames are one location: those inlined into the last of them, and that one. */
static uint32_t location_frames(const struct snapshot_frame *frames, uint32_t nframe)
{
	uint32_t count = 1;

	while (count < nframe && count < PPROF_LINES_MAX && frames[count - 1].inlined)
		count++;
	return count;
}

/* Writes the location of `count` frames, if it is new. */
static int location_write(struct pprof_writer *writer, const struct snapshot_frame *frames,
			  uint32_t count, uint64_t *id)
{
	Line lines[PPROF_LINES_MAX], *pointers[PPROF_LINES_MAX];
	Location location = PERFTOOLS__PROFILES__LOCATION__INIT, *locations[] = {&location};
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	uint64_t before = 0;
	int is_new = 0, err = 0;

	for (uint32_t i = 0; !err && i < count; i++) {
		uint32_t place, number;

		pointers[i] = &lines[i];
		err = line_set(writer, &frames[i], &lines[i], &place);
		if (!err)
			err = number_find(&writer->locations,
					  before << 32 | place |
						  (i + 1 < count ? LOCATION_MORE : 0),
					  &number, &is_new);
		if (!err)
			before = (uint64_t)number + 1;
	}
	*id = before;
	if (err || !is_new)
		return err;
	location.id = *id;
	location.mapping_id = frames[0].native ? PPROF_MAPPING_NATIVE : PPROF_MAPPING;
	location.n_line = count;
	location.line = pointers;
	piece.n_location = 1;
	piece.location = locations;
	return pprof_piece_write(writer, &piece);
}

static Label *label_add(struct labels *labels, int64_t key)
{
	Label *label = &labels->items[labels->count];

	perftools__profiles__label__init(label);
	label->key = key;
	labels->pointers[labels->count++] = label;
	return label;
}

static void label_text(struct labels *labels, int64_t key, const char *text, int64_t index)
{
	if (text[0])
		label_add(labels, key)->str = index;
}

/* The error is for people; it follows from the deviations. */
static void estimate_labels_set(const struct pprof_writer *writer,
				const struct snapshot_trace *trace, struct labels *labels)
{
	struct estimate estimate = {0};
	int64_t base = text_index(writer, TEXTS);
	Label *error;

	if (!trace->estimate)
		return;
	label_add(labels, base + WINDOW_DEVIATIONS)->str =
		base + WINDOW_TEXTS + (int64_t)trace->estimate - 1;
	estimate_add_trace(&estimate, writer->snapshot, trace);
	error = label_add(labels, base + WINDOW_ERROR);
	error->num = (int64_t)estimate_size_error(&estimate);
	error->num_unit = text_index(writer, TEXT_BYTES);
}

static void labels_set(const struct pprof_writer *writer, const struct snapshot_trace *trace,
		       struct labels *labels)
{
	const struct snapshot_meta *process = snapshot_process(writer->snapshot, trace->process);
	uint32_t total = writer->snapshot->tracebacks[trace->traceback].total;
	int64_t more = writer->more_base,
		names = more + MORE_TEXTS + MORE_PER_PROCESS * (int64_t)trace->process;
	Label *bytes = label_add(labels, text_index(writer, TEXT_BYTES));

	bytes->num = (int64_t)trace->bytes;
	bytes->num_unit = text_index(writer, TEXT_BYTES);
	label_add(labels, text_index(writer, TEXT_DOMAIN))->num = trace->domain;
	label_add(labels, text_index(writer, TEXT_PID))->num = process->pid;
	if (total != SNAPSHOT_TOTAL_UNKNOWN)
		label_add(labels, text_index(writer, TEXT_TOTAL))->num = total;
	if (trace->flags & SNAPSHOT_ROUNDED)
		label_add(labels, text_index(writer, TEXT_ROUNDED))->num = 1;
	if (trace->flags & SNAPSHOT_INHERITED)
		label_add(labels, text_index(writer, TEXT_INHERITED))->num = 1;
	if (trace->weight)
		label_add(labels, text_index(writer, TEXT_SELF_SAMPLED))->num =
			(int64_t)trace->count;
	estimate_labels_set(writer, trace, labels);
	if (!writer->snapshot->process_count)
		return;
	/* counted from 1, because pprof drops labels of 0 */
	label_add(labels, more + MORE_PROCESS)->num = (int64_t)trace->process + 1;
	label_text(labels, more + MORE_COMM, process->name, names);
	label_text(labels, more + MORE_CONTAINER, process->container, names + 1);
}

/* Tools join samples with the same labels, and ours are of one layer each. */
static void beside_labels_set(const struct pprof_writer *writer, const struct snapshot_trace *trace,
			      uint32_t layer, struct labels *labels)
{
	uint32_t name;

	if (layer >= SNAPSHOT_BESIDE(BESIDE_THREAD, 0)) {
		label_add(labels, text_index(writer, TEXT_THREAD))->num = trace->thread;
		name = id_map_find(&writer->threads, trace->thread);
		if (name != ID_MAP_NONE)
			label_add(labels, text_index(writer, TEXT_THREAD_NAME))->str =
				writer->thread_base + name;
		/* the snapshot's strings come first in the file */
		if (trace->task)
			label_add(labels, text_index(writer, TEXT_TASK))->str = trace->task;
	} else if (layer >= SNAPSHOT_BESIDE(BESIDE_PEAK, 0)) {
		label_add(labels, text_index(writer, TEXT_AT_PEAK))->num = 1;
	} else if (layer >= SNAPSHOT_BESIDE(BESIDE_FREED, 0)) {
		label_add(labels, text_index(writer, TEXT_LIFETIME))->str = text_index(
			writer, TEXT_LIFETIMES + (int)(trace->flags >> SNAPSHOT_LIFETIME_SHIFT));
	} else if (layer >= SNAPSHOT_BESIDE(BESIDE_ALLOCATED, 0)) {
		label_add(labels, text_index(writer, TEXT_ALLOCATED))->num = 1;
	}
}

/* position: the index of the layer among those of the file; the first layer is 0. */
static int sample_write(struct pprof_writer *writer, const struct snapshot_trace *trace,
			unsigned int position, uint32_t layer)
{
	const struct snapshot_traceback *traceback =
		&writer->snapshot->tracebacks[trace->traceback];
	Sample sample = PERFTOOLS__PROFILES__SAMPLE__INIT, *samples[] = {&sample};
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	int64_t values[VALUES] = {0};
	struct labels labels = {.count = 0};
	uint64_t size = 0, count = 0;
	int whole = layer == EVENT_LAYER_MMAP || layer >= SNAPSHOT_BESIDE_FIRST;
	double chance = whole ? 1 : estimate_chance_of(writer->snapshot, trace);
	int err = estimate_trace_figures(chance, trace, &size, &count);

	for (uint32_t i = 0, count; !err && i < traceback->nframe; i += count) {
		const struct snapshot_frame *frames =
			&writer->snapshot->frames[traceback->first + i];

		count = location_frames(frames, traceback->nframe - i);
		err = location_write(writer, frames, count, &writer->ids[sample.n_location_id++]);
	}
	if (err)
		return err;
	values[position * PPROF_VALUES] = (int64_t)count;
	values[position * PPROF_VALUES + 1] = (int64_t)size;
	labels_set(writer, trace, &labels);
	beside_labels_set(writer, trace, layer, &labels);
	sample.location_id = writer->ids;
	sample.n_value = value_count(writer->snapshot);
	sample.value = values;
	sample.n_label = labels.count;
	sample.label = labels.pointers;
	piece.n_sample = 1;
	piece.sample = samples;
	return pprof_piece_write(writer, &piece);
}

int pprof_samples_write(struct pprof_writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	unsigned int position = 0;
	int err = 0;

	for (size_t i = 0; !err && i < snapshot->trace_count; i++)
		err = sample_write(writer, &snapshot->traces[i], 0, snapshot->meta.layer);
	for (uint32_t layer = 0; layer < SNAPSHOT_LAYERS; layer++) {
		if (!snapshot_has_beside(&snapshot->meta, layer))
			continue;
		position++;
		for (size_t i = 0; !err && i < snapshot->layers[layer].trace_count; i++)
			err = sample_write(writer, &snapshot->layers[layer].traces[i], position,
					   layer);
	}
	return err;
}

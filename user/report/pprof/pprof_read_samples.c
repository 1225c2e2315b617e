/* SPDX-License-Identifier: Apache-2.0 */
#include "report/pprof/pprof_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/estimate.h"

#define DEVIATION_CHARS 24 /* of one deviation */
#define DEVIATION_MAX   0x1p66

static int sample_location(struct pprof_reader *reader, uint64_t id)
{
	uint32_t index = id_map_find(&reader->location_ids, id);
	const struct location *location;

	if (index == ID_MAP_NONE)
		return pprof_corrupt("sample's location");
	location = &reader->locations[index];
	if (FRAMES_MAX - reader->sample.nframe < location->count)
		return pprof_corrupt("sample");
	memcpy(&reader->frames[reader->sample.nframe], &reader->location_frames[location->first],
	       location->count * sizeof(*reader->frames));
	reader->sample.nframe += location->count;
	return 0;
}

static int sample_value(struct pprof_reader *reader, uint64_t value)
{
	if (reader->sample.value_count == SNAPSHOT_LAYERS * PPROF_VALUES)
		return pprof_corrupt("sample");
	reader->sample.values[reader->sample.value_count++] = (int64_t)value;
	return 0;
}

/*
 * The label that a key names; LABELS: none of ours. The key is nearly always the same as in the
 * previous sample.
 */
static enum label label_of(struct pprof_reader *reader, uint64_t key)
{
	static const char *const names[LABELS] = {"bytes",        "domain",         "total_nframe",
						  "process",      "rounded",        "inherited",
						  "self_sampled", PPROF_DEVIATIONS, "lifetime",
						  "thread",       "thread_name",    "task"};
	struct span text = {0};

	for (enum label i = 0; i <= LABELS; i++)
		if (reader->label_keys[i] == key && key)
			return i;
	reader->label_keys[LABELS] = key;
	if (pprof_string_get(reader, key, &text))
		return LABELS;
	for (enum label i = 0; i < LABELS; i++) {
		if (text.bytes == strlen(names[i]) && !memcmp(text.data, names[i], text.bytes)) {
			reader->label_keys[i] = key;
			reader->label_keys[LABELS] = 0;
			return i;
		}
	}
	return LABELS;
}

static int label_is_text(enum label label)
{
	return label == LABEL_DEVIATIONS || label == LABEL_LIFETIME || label == LABEL_THREAD_NAME ||
	       label == LABEL_TASK;
}

static int sample_label(struct pprof_reader *reader, struct span *span)
{
	enum { KEY = 1 << 3, TEXT = 2 << 3, NUMBER = 3 << 3 };
	uint64_t key = 0, number = 0, string = 0, tag, value;
	int err = 0;

	while (!err && span->bytes) {
		struct span text;

		err = varint_take(span, &tag);
		if (!err)
			err = (tag & 7) == 0   ? varint_take(span, &value)
			      : (tag & 7) == 2 ? span_take(span, &text)
					       : pprof_corrupt("label");
		if (tag == KEY)
			key = value;
		else if (tag == NUMBER)
			number = value;
		else if (tag == TEXT)
			string = value;
	}
	if (err)
		return err;
	enum label label = label_of(reader, key);
	if (label != LABELS && reader->sample.labels[label] < 0)
		reader->sample.labels[label] = (int64_t)(label_is_text(label) ? string : number);
	return 0;
}

/* A sample belongs to the layer whose values are not 0. */
static size_t sample_position(const struct sample *sample)
{
	size_t count = sample->value_count / PPROF_VALUES;

	for (size_t i = 0; i < count; i++)
		if (sample->values[i * PPROF_VALUES])
			return i;
	return 0;
}

/* The layer at a position after the first; -1: the file has none there. */
static int layer_at(const struct pprof_reader *reader, size_t position)
{
	const struct snapshot_meta *meta = &reader->builder.snapshot->meta;

	for (uint32_t layer = 0; layer < SNAPSHOT_LAYERS; layer++)
		if (snapshot_has_extra(meta, layer) && !--position)
			return (int)layer;
	return -1;
}

/* Parses the deviations of an estimate. */
static int deviations_parse(const struct span *text, struct snapshot_estimate *estimate)
{
	char copy[CALIBRATE_DEVIATIONS * DEVIATION_CHARS], *at = copy;

	if (text->bytes >= sizeof(copy))
		return pprof_corrupt("list of deviations");
	memcpy(copy, text->data, text->bytes);
	copy[text->bytes] = '\0';
	for (uint32_t i = 0; i < CALIBRATE_DEVIATIONS; i++) {
		char *end;
		double value = strtod(at, &end);

		if (end == at || !(value > -DEVIATION_MAX && value < DEVIATION_MAX))
			return pprof_corrupt("list of deviations");
		/* 0 is added because -0 is another value to the builder. */
		estimate->deviations[i] = (float)(value / PPROF_DEVIATION_STEPS) + 0.0f;
		at = end;
	}
	return *at ? pprof_corrupt("list of deviations") : 0;
}

/* Sets trace->estimate, by the index of the string that has its deviations. */
static int estimate_find(struct pprof_reader *reader, int64_t string, struct snapshot_trace *trace)
{
	struct snapshot_estimate estimate;
	struct span text = {0};

	if (string < 0)
		return 0;
	uint32_t known = id_map_find(&reader->estimates, (uint64_t)string);
	if (known != ID_MAP_NONE) {
		trace->estimate = known & SNAPSHOT_ESTIMATES_MAX;
		return 0;
	}

	return pprof_string_get(reader, (uint64_t)string, &text)
	       ?: deviations_parse(&text, &estimate)
	       ?: builder_estimate(&reader->builder, &estimate, trace)
	       ?: id_map_put(&reader->estimates, (uint64_t)string, trace->estimate);
}

/* Sets the lifetime of freed blocks, by the index of the string that names it. */
static int lifetime_find(struct pprof_reader *reader, int64_t string, struct snapshot_trace *trace)
{
	struct span text = {0};
	int err = string < 0 ? 0 : pprof_string_get(reader, (uint64_t)string, &text);

	if (err || string < 0)
		return err;
	for (uint32_t i = 0; i < LIFETIMES; i++) {
		const char *name = snapshot_lifetime_name(i);

		if (text.bytes == strlen(name) && !memcmp(text.data, name, text.bytes)) {
			trace->flags |= (i << SNAPSHOT_LIFETIME_SHIFT) & 0xf0u;
			return 0;
		}
	}
	return pprof_corrupt("lifetime");
}

/* The thread of a sample, and its name, by the index of its string. */
static int thread_find(struct pprof_reader *reader, const struct sample *sample,
		       struct snapshot_trace *trace)
{
	int64_t tid = sample->labels[LABEL_THREAD], string = sample->labels[LABEL_THREAD_NAME];
	char name[EVENT_THREAD_NAME] = "";
	struct span text = {0};

	if (tid <= 0)
		return 0;
	if (tid > UINT32_MAX)
		return pprof_corrupt("thread");
	trace->thread = (uint32_t)tid;
	int err = string < 0 ? 0 : pprof_string_get(reader, (uint64_t)string, &text);
	if (err || string < 0)
		return err;
	if (text.bytes >= sizeof(name))
		return pprof_corrupt("name of a thread");
	memcpy(name, text.data, text.bytes);
	return name[0] ? builder_thread(&reader->builder, trace->thread, name) : 0;
}

/* The asyncio task of a sample, by the index of its name. */
static int task_find(struct pprof_reader *reader, const struct sample *sample,
		     struct snapshot_trace *trace)
{
	int64_t string = sample->labels[LABEL_TASK];

	return string <= 0 ? 0 : pprof_string_intern(reader, string, &trace->task);
}

static int64_t zero_of(int64_t label)
{
	return label == -1 ? 0 : label;
}

static int sample_add(struct pprof_reader *reader)
{
	const struct sample *sample = &reader->sample;
	int64_t bytes = zero_of(sample->labels[LABEL_BYTES]),
		domain = zero_of(sample->labels[LABEL_DOMAIN]);
	int64_t total = sample->labels[LABEL_TOTAL];
	const struct snapshot *snapshot = reader->builder.snapshot;
	int64_t process = snapshot->process_count ? sample->labels[LABEL_PROCESS] - 1 : 0;
	size_t position = sample_position(sample);
	const int64_t *values = sample->values + position * PPROF_VALUES;
	int64_t weighted = sample->labels[LABEL_SELF_SAMPLED];
	int layer = position ? layer_at(reader, position) : (int)snapshot->meta.layer;
	struct snapshot_trace trace;
	int64_t product;

	if (process < 0 || (uint64_t)process >= snapshot_process_count(snapshot))
		return pprof_corrupt("sample's process");
	trace = (struct snapshot_trace){
		.domain = (uint32_t)domain,
		.process = (uint32_t)process,
		.flags = (sample->labels[LABEL_ROUNDED] > 0 ? SNAPSHOT_ROUNDED : 0) |
			 (sample->labels[LABEL_INHERITED] > 0 ? SNAPSHOT_INHERITED : 0),
		.bytes = (uint64_t)bytes,
	};
	const uint64_t mean = layer == EVENT_LAYER_MMAP || layer >= (int)SNAPSHOT_EXTRA_FIRST
				      ? 0
				      : snapshot_sample_bytes(snapshot, &trace);
	if (layer < 0 || bytes < 0 || domain < 0 || !sample->nframe || !sample->value_count ||
	    sample->value_count % PPROF_VALUES || values[0] <= 0 || domain > UINT32_MAX ||
	    total > UINT32_MAX ||
	    __builtin_mul_overflow(bytes, weighted > 0 ? weighted : values[0], &product) ||
	    (weighted > 0 ? !bytes || product > values[1] : !mean && product != values[1]))
		return pprof_corrupt("sample");
	trace.count = weighted > 0 ? (uint64_t)weighted
				   : estimate_sampled(mean, trace.bytes, (uint64_t)values[0]);
	trace.weight = weighted > 0 ? (uint64_t)values[1] : 0;
	if (!trace.count)
		return pprof_corrupt("sample");
	int err = builder_traceback(&reader->builder, reader->frames, sample->nframe,
				    total < 0 ? SNAPSHOT_TOTAL_UNKNOWN : (uint32_t)total,
				    &trace.traceback);
	err = err ?: estimate_find(reader, sample->labels[LABEL_DEVIATIONS], &trace);
	err = err ?: lifetime_find(reader, sample->labels[LABEL_LIFETIME], &trace);
	err = err ?: thread_find(reader, sample, &trace);
	err = err ?: task_find(reader, sample, &trace);
	if (!err)
		err = position ? builder_layer(&reader->builder, (uint32_t)layer, &trace)
			       : builder_trace(&reader->builder, &trace);
	return err == -EOVERFLOW ? pprof_corrupt("sum of sizes") : err;
}

/* Parsed by hand: protobuf-c would call malloc a dozen times for each of a million samples. */
int pprof_sample_take(struct pprof_reader *reader, struct field *field)
{
	enum { LOCATION = 1, VALUE = 2, LABEL = 3 };
	struct field part;
	int err = 0;

	if (field->id != FIELD_SAMPLE || field->wire_type != 2)
		return 0;
	err = span_check(&field->span);
	reader->sample =
		(struct sample){.labels = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
	while (!err && field->span.bytes) {
		err = field_take(&field->span, &part);
		if (!err && part.id == LOCATION)
			err = pprof_numbers_take(reader, &part, sample_location);
		else if (!err && part.id == VALUE)
			err = pprof_numbers_take(reader, &part, sample_value);
		else if (!err && part.id == LABEL && part.wire_type == 2)
			err = sample_label(reader, &part.span);
	}
	return err ?: sample_add(reader);
}

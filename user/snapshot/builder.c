/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/builder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/account.h"
#include "util/array.h"
#include "util/error.h"
#include "util/hash.h"

#define INDEX_FIRST 64u

/* Makes room in an array of the snapshot that is built, whose capacity the builder knows. */
#define RESERVE(items, name, extra)                                                                \
	array_reserve_in(builder->account, &snapshot->items, &builder->name##_capacity,            \
			 snapshot->name##_count, extra, sizeof(*snapshot->items))

/* Hashes an item of the array that an index covers. */
typedef uint64_t (*index_hash_fn)(const struct snapshot *snapshot, uint32_t item);

static uint64_t hash_add(uint64_t hash, uint64_t value)
{
	return hash_u64(hash * 31 + value);
}

static uint64_t frames_hash(const struct snapshot_frame *frames, uint32_t nframe, uint32_t total)
{
	uint64_t hash = total;

	/* One multiplication per frame: a large snapshot has millions of frames. */
	for (uint32_t i = 0; i < nframe; i++) {
		hash ^= ((uint64_t)frames[i].filename << 32 | frames[i].line) +
			((uint64_t)frames[i].function << 16);
		hash = (hash << 29 | hash >> 35) * 0x9e3779b97f4a7c15ull;
	}
	return hash_u64(hash);
}

static uint64_t traceback_hash(const struct snapshot *snapshot, uint32_t item)
{
	const struct snapshot_traceback *traceback = &snapshot->tracebacks[item];

	return frames_hash(snapshot->frames + traceback->first, traceback->nframe,
			   traceback->total);
}

static uint64_t trace_hash(const struct snapshot *snapshot, uint32_t item)
{
	const struct snapshot_trace *trace = &snapshot->traces[item];

	return hash_add(trace->bytes + ((uint64_t)trace->process << 40) +
				((uint64_t)trace->flags << 32) + ((uint64_t)trace->age << 8),
			(uint64_t)trace->traceback << 32 | trace->domain);
}

/* Ensures that the index can take one more item besides the count that it holds. */
static int index_reserve(const struct builder *builder, struct builder_index *index, size_t count,
			 index_hash_fn hash)
{
	const struct snapshot *snapshot = builder->snapshot;
	int err;

	if (count * 4 < index->capacity * 3)
		return 0;
	struct builder_index grown = {.capacity =
					      index->capacity ? index->capacity * 2 : INDEX_FIRST};

	err = account_charge(builder->account, grown.capacity * sizeof(*grown.slots));
	if (err)
		return err;
	grown.slots = calloc(grown.capacity, sizeof(*grown.slots));
	if (!grown.slots) {
		account_uncharge(builder->account, grown.capacity * sizeof(*grown.slots));
		return -ENOMEM;
	}
	for (uint32_t item = 0; item < count; item++) {
		size_t i = hash(snapshot, item) & (grown.capacity - 1);

		while (grown.slots[i])
			i = (i + 1) & (grown.capacity - 1);
		grown.slots[i] = item + 1;
	}
	free(index->slots);
	account_uncharge(builder->account, index->capacity * sizeof(*index->slots));
	*index = grown;
	return 0;
}

int builder_begin(struct builder *builder)
{
	return builder_begin_in(builder, NULL);
}

int builder_begin_in(struct builder *builder, struct account *account)
{
	*builder = (struct builder){.account = account,
				    .snapshot = calloc(1, sizeof(struct snapshot))};
	if (!builder->snapshot)
		return -ENOMEM;
	int err = strings_new_in(&builder->snapshot->strings, account);
	if (err)
		builder_abort(builder);
	return err;
}

static uint64_t binary_hash_of(const struct snapshot_binary *binary)
{
	return hash_add(hash_add((uint64_t)binary->path << 32 | binary->build_id, binary->start),
			hash_add(binary->limit, binary->offset));
}

static uint64_t binary_hash(const struct snapshot *snapshot, uint32_t item)
{
	return binary_hash_of(&snapshot->binaries[item]);
}

int builder_binary(struct builder *builder, const struct snapshot_binary *binary, uint16_t *native)
{
	struct snapshot *snapshot = builder->snapshot;
	struct builder_index *index = &builder->binary_index;
	int err = index_reserve(builder, index, snapshot->binary_count, binary_hash)
			  ?: RESERVE(binaries, binary, 1);

	*native = SNAPSHOT_NATIVE;
	if (err)
		return err;
	size_t i = binary_hash_of(binary) & (index->capacity - 1);
	for (; index->slots[i]; i = (i + 1) & (index->capacity - 1)) {
		if (!memcmp(&snapshot->binaries[index->slots[i] - 1], binary, sizeof(*binary))) {
			*native = (uint16_t)(SNAPSHOT_NATIVE + index->slots[i]);
			return 0;
		}
	}
	if (snapshot->binary_count == SNAPSHOT_BINARIES_MAX)
		return 0;
	snapshot->binaries[snapshot->binary_count++] = *binary;
	index->slots[i] = (uint32_t)snapshot->binary_count;
	*native = (uint16_t)(SNAPSHOT_NATIVE + index->slots[i]);
	return 0;
}

static int traceback_equal(const struct snapshot *snapshot, uint32_t item,
			   const struct snapshot_frame *frames, uint32_t nframe, uint32_t total)
{
	const struct snapshot_traceback *traceback = &snapshot->tracebacks[item];

	return traceback->nframe == nframe && traceback->total == total &&
	       !memcmp(snapshot->frames + traceback->first, frames, nframe * sizeof(*frames));
}

int builder_traceback(struct builder *builder, const struct snapshot_frame *frames, uint32_t nframe,
		      uint32_t total, uint32_t *traceback)
{
	struct snapshot *snapshot = builder->snapshot;
	struct builder_index *index = &builder->traceback_index;
	int err = index_reserve(builder, index, snapshot->traceback_count, traceback_hash);

	if (err)
		return err;
	size_t i = frames_hash(frames, nframe, total) & (index->capacity - 1);
	for (; index->slots[i]; i = (i + 1) & (index->capacity - 1)) {
		if (traceback_equal(snapshot, index->slots[i] - 1, frames, nframe, total)) {
			*traceback = index->slots[i] - 1;
			return 0;
		}
	}
	err = RESERVE(frames, frame, nframe) ?: RESERVE(tracebacks, traceback, 1);
	if (err)
		return err;
	snapshot->tracebacks[snapshot->traceback_count] = (struct snapshot_traceback){
		.first = (uint32_t)snapshot->frame_count, .nframe = nframe, .total = total};
	memcpy(snapshot->frames + snapshot->frame_count, frames, nframe * sizeof(*frames));
	snapshot->frame_count += nframe;
	*traceback = (uint32_t)snapshot->traceback_count++;
	index->slots[i] = *traceback + 1;
	return 0;
}

static uint64_t deviations_hash(const struct snapshot_estimate *estimate)
{
	uint64_t hash = 0;

	for (uint32_t i = 0; i < CALIBRATE_DEVIATIONS; i++) {
		uint32_t bits;

		memcpy(&bits, &estimate->deviations[i], sizeof(bits));
		hash = hash_add(hash, bits);
	}
	return hash;
}

static uint64_t estimate_hash(const struct snapshot *snapshot, uint32_t item)
{
	return deviations_hash(&snapshot->estimates[item]);
}

static bool estimate_is_exact(const struct snapshot_estimate *estimate)
{
	for (uint32_t i = 0; i < CALIBRATE_DEVIATIONS; i++)
		if (estimate->deviations[i] < 0 || estimate->deviations[i] > 0)
			return 0;
	return 1;
}

int builder_estimate(struct builder *builder, const struct snapshot_estimate *deviations,
		     struct snapshot_trace *trace)
{
	struct snapshot *snapshot = builder->snapshot;
	struct builder_index *index = &builder->estimate_index;

	trace->estimate = 0;
	if (estimate_is_exact(deviations))
		return 0;
	if (snapshot->estimate_count == SNAPSHOT_ESTIMATES_MAX)
		return -EOVERFLOW;
	int err = index_reserve(builder, index, snapshot->estimate_count, estimate_hash)
			  ?: RESERVE(estimates, estimate, 1);
	if (err)
		return err;
	size_t i = deviations_hash(deviations) & (index->capacity - 1);
	for (; index->slots[i]; i = (i + 1) & (index->capacity - 1)) {
		trace->estimate = index->slots[i] & SNAPSHOT_ESTIMATES_MAX;
		if (!memcmp(&snapshot->estimates[trace->estimate - 1], deviations,
			    sizeof(*deviations)))
			return 0;
	}
	snapshot->estimates[snapshot->estimate_count++] = *deviations;
	index->slots[i] = (uint32_t)snapshot->estimate_count;
	trace->estimate = index->slots[i] & SNAPSHOT_ESTIMATES_MAX;
	return 0;
}

static int total_add(uint64_t *total, const struct snapshot_trace *trace)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(trace->bytes, trace->count, &bytes) ||
	    __builtin_add_overflow(trace->weight ?: bytes, *total, &bytes) || bytes > INT64_MAX)
		return -EOVERFLOW;
	*total = bytes;
	return 0;
}

int builder_layer(struct builder *builder, uint32_t which, const struct snapshot_trace *trace)
{
	struct snapshot_layer *layer = &builder->snapshot->layers[which];
	int err = total_add(&builder->layer_bytes[which], trace)
			  ?: array_reserve_in(builder->account, &layer->traces,
					      &builder->layer_capacity[which], layer->trace_count,
					      1, sizeof(*layer->traces));

	if (!err)
		layer->traces[layer->trace_count++] = *trace;
	return err;
}

/* Writes the trace after the last one without counting it, and computes the new total of bytes. */
static int trace_stage(struct builder *builder, const struct snapshot_trace *trace, uint64_t *total)
{
	struct snapshot *snapshot = builder->snapshot;
	uint64_t bytes = builder->total_bytes;

	if (total_add(&bytes, trace))
		return -EOVERFLOW;
	int err = RESERVE(traces, trace, 1);
	if (err)
		return err;
	snapshot->traces[snapshot->trace_count] = *trace;
	*total = bytes;
	return 0;
}

int builder_append(struct builder *builder, const struct snapshot_trace *trace)
{
	int err = trace_stage(builder, trace, &builder->total_bytes);

	if (!err)
		builder->snapshot->trace_count++;
	return err;
}

int builder_trace(struct builder *builder, const struct snapshot_trace *trace)
{
	struct snapshot *snapshot = builder->snapshot;
	struct builder_index *index = &builder->trace_index;
	int err = index_reserve(builder, index, snapshot->trace_count, trace_hash)
			  ?: trace_stage(builder, trace, &builder->total_bytes);

	if (err)
		return err;
	size_t i = trace_hash(snapshot, (uint32_t)snapshot->trace_count) & (index->capacity - 1);
	for (; index->slots[i]; i = (i + 1) & (index->capacity - 1)) {
		struct snapshot_trace *known = &snapshot->traces[index->slots[i] - 1];

		if (known->traceback == trace->traceback && known->bytes == trace->bytes &&
		    known->domain == trace->domain && known->process == trace->process &&
		    known->flags == trace->flags && known->age == trace->age && !known->estimate &&
		    !trace->estimate) {
			known->count += trace->count;
			known->weight += trace->weight;
			return 0;
		}
	}
	index->slots[i] = (uint32_t)++snapshot->trace_count;
	return 0;
}

static uint64_t thread_hash(const struct snapshot *snapshot, uint32_t item)
{
	return hash_u64(snapshot->threads[item].tid);
}

int builder_thread(struct builder *builder, uint32_t tid, const char *name)
{
	struct snapshot *snapshot = builder->snapshot;
	struct builder_index *index = &builder->thread_index;
	int err = index_reserve(builder, index, snapshot->thread_count, thread_hash)
			  ?: RESERVE(threads, thread, 1);

	if (err)
		return err;
	size_t i = hash_u64(tid) & (index->capacity - 1);
	for (; index->slots[i]; i = (i + 1) & (index->capacity - 1))
		if (snapshot->threads[index->slots[i] - 1].tid == tid)
			return 0;
	struct snapshot_thread *thread = &snapshot->threads[snapshot->thread_count];

	thread->tid = tid;
	memset(thread->name, 0, sizeof(thread->name));
	memcpy(thread->name, name, strnlen(name, sizeof(thread->name) - 1));
	index->slots[i] = (uint32_t)++snapshot->thread_count;
	return 0;
}

int builder_process(struct builder *builder, struct snapshot_meta **meta)
{
	struct snapshot *snapshot = builder->snapshot;

	if (snapshot->process_count == SNAPSHOT_PROCESSES_MAX)
		return error_set(-EFBIG, "more than %u processes", SNAPSHOT_PROCESSES_MAX);
	int err = RESERVE(processes, process, 1);
	if (err)
		return err;
	*meta = &snapshot->processes[snapshot->process_count++];
	memset(*meta, 0, sizeof(**meta));
	return 0;
}

static int traces_ordered(const struct snapshot_trace *traces, size_t count)
{
	for (size_t i = 1; i < count; i++)
		if (traces[i - 1].process > traces[i].process)
			return 0;
	return 1;
}

static int traces_order(struct snapshot_trace **traces, size_t count, size_t processes)
{
	if (traces_ordered(*traces, count))
		return 0;
	size_t *ends = calloc(processes + 1, sizeof(*ends));
	struct snapshot_trace *ordered = malloc(count * sizeof(*ordered));
	if (!ends || !ordered) {
		free(ends);
		free(ordered);
		return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++)
		ends[(*traces)[i].process + 1]++;
	for (size_t i = 1; i < processes; i++)
		ends[i] += ends[i - 1];
	for (size_t i = 0; i < count; i++)
		ordered[ends[(*traces)[i].process]++] = (*traces)[i];
	free(ends);
	free(*traces);
	*traces = ordered;
	return 0;
}

int builder_order(struct builder *builder)
{
	struct snapshot *snapshot = builder->snapshot;
	size_t processes = snapshot_process_count(snapshot);
	int err = traces_order(&snapshot->traces, snapshot->trace_count, processes);

	for (size_t i = 0; i < SNAPSHOT_LAYERS && !err; i++)
		err = traces_order(&snapshot->layers[i].traces, snapshot->layers[i].trace_count,
				   processes);
	return err;
}

static void index_free(struct builder *builder)
{
	free(builder->binary_index.slots);
	free(builder->traceback_index.slots);
	free(builder->trace_index.slots);
	free(builder->estimate_index.slots);
	free(builder->thread_index.slots);
}

struct snapshot *builder_finish(struct builder *builder)
{
	struct snapshot *snapshot = builder->snapshot;

	index_free(builder);
	strings_disown(snapshot->strings);
	account_clear(builder->account);
	*builder = (struct builder){0};
	return snapshot;
}

void builder_abort(struct builder *builder)
{
	index_free(builder);
	snapshot_free(builder->snapshot);
	account_clear(builder->account);
	*builder = (struct builder){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (Python/uniqueid.c, 3.14t+). A type, a code object or a module's dictionary that many
 * threads use has a number, its place in a table of the interpreter. Each thread counts references
 * to it in an array of its own; the object's count is the sum of these and of its own. Places of
 * the table without an object hold the address of another place, or nothing.
 */
#include "graph/graph.h"

#define MAX_INTERPRETERS 1024u
#define MAX_THREADS      65536u
#define MAX_COUNT        (1 << 29)  /* of one object, also below 0 */
#define ZERO             (1u << 30) /* a sum of 0 in the map */

/* A table of words; NULL, and *count 0, if it is not in the image. */
static const uint8_t *table_at(const struct image *image, uint64_t address, uint64_t size,
			       uint64_t *count)
{
	uint64_t table = image_u64(image, address);
	const uint8_t *words;

	*count = image_u64(image, size);
	words = *count >> 32 || !table ? NULL : image_at(image, table, *count * 8);
	*count = words ? *count : 0;
	return words;
}

static int count_add(struct graph *graph, uint64_t object, int64_t more)
{
	int64_t sum = graph_thread_counts(graph, object);

	if (more == 0 || more < -MAX_COUNT || more > MAX_COUNT || sum + more < -MAX_COUNT ||
	    sum + more > MAX_COUNT || graph_find(graph, object) == GRAPH_NONE)
		return 0;
	return id_map_put(&graph->thread_counts, object, (uint32_t)(sum + more) + ZERO);
}

static int thread_read(struct graph *graph, uint64_t tstate, const uint8_t *ids, uint64_t id_count)
{
	const struct free_threaded_offsets *at = &graph->image->offsets.free_threaded;
	const uint8_t *counts;
	uint64_t count;
	int err = 0;

	counts = table_at(graph->image, tstate + at->tstate_counts, tstate + at->tstate_counts_size,
			  &count);
	if (count > id_count)
		count = id_count;
	for (uint64_t i = 0; i < count && !err; i++)
		err = count_add(graph, word_at(ids + i * 8), (int64_t)word_at(counts + i * 8));
	return err;
}

int graph_thread_counts_read(struct graph *graph)
{
	const struct image *image = graph->image;
	const struct python_offsets *offsets = &image->offsets;
	const struct free_threaded_offsets *at = &offsets->free_threaded;
	uint64_t interpreter = image->interpreters;
	int err = 0;

	if (offsets->build != BUILD_FREE_THREADED || at->tstate_counts == ABI_NONE)
		return 0;
	for (uint32_t i = 0; i < MAX_INTERPRETERS && interpreter && !err; i++) {
		uint64_t tstate = image_u64(image, interpreter + offsets->abi.interp_threads_head);
		uint64_t id_count;
		const uint8_t *ids = table_at(image, interpreter + at->interp_ids,
					      interpreter + at->interp_ids_size, &id_count);

		for (uint32_t j = 0; j < MAX_THREADS && tstate && !err; j++) {
			err = thread_read(graph, tstate, ids, id_count);
			tstate = image_u64(image, tstate + offsets->abi.tstate_next);
		}
		interpreter = image_u64(image, interpreter + offsets->abi.interp_next);
	}
	return err;
}

int32_t graph_thread_counts(const struct graph *graph, uint64_t address)
{
	uint32_t count = id_map_find(&graph->thread_counts, address);

	return count == ID_MAP_NONE ? 0 : (int32_t)(count - ZERO);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one layer lies mostly inside blocks of the next, so layers are not added up. Pages of a
 * block may never have been touched, so a process's blocks count at most up to its RSS.
 */
#include "snapshot/group/explained.h"

#include <stdlib.h>

#include "snapshot/estimate.h"

static void traces_add(const struct snapshot *snapshot, const struct snapshot_trace *traces,
		       size_t count, enum event_layer layer, struct estimate (*sums)[EVENT_LAYERS])
{
	for (size_t i = 0; i < count; i++)
		estimate_add_sampled(&sums[traces[i].process][layer],
				     estimate_chance_of(snapshot, &traces[i]), traces[i].bytes,
				     traces[i].count);
}

static uint64_t process_explained(uint64_t rss_bytes, const struct estimate layers[EVENT_LAYERS])
{
	double most = 0;

	for (size_t i = 0; i < EVENT_LAYERS; i++)
		if (layers[i].size > most)
			most = layers[i].size;
	return most < (double)rss_bytes ? (uint64_t)most : rss_bytes;
}

int explained_read(const struct snapshot *snapshot, struct explained *out)
{
	size_t count = snapshot_process_count(snapshot);
	struct estimate(*sums)[EVENT_LAYERS] = calloc(count, sizeof(*sums));

	*out = (struct explained){0};
	if (!sums)
		return 0;
	traces_add(snapshot, snapshot->traces, snapshot->trace_count, snapshot->meta.layer, sums);
	for (int i = 0; i < EVENT_LAYERS; i++)
		traces_add(snapshot, snapshot->layers[i].traces, snapshot->layers[i].trace_count, i,
			   sums);
	for (size_t i = 0; i < count; i++) {
		uint64_t rss_bytes = snapshot_process(snapshot, i)->rss_bytes;

		out->rss_bytes += rss_bytes;
		out->bytes += process_explained(rss_bytes, sums[i]);
		out->processes += rss_bytes != 0;
	}
	free(sums);
	return out->processes != 0;
}

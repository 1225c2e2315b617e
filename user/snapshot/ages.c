/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/ages.h"

#include <errno.h>
#include <string.h>

#include "util/error.h"
#include "util/sorted.h"

/* Steps from one power of two to the next: 32, or 16. */
#define STEP_LOG   5
#define COARSE_LOG 4

static uint32_t steps_round(uint64_t age_ns, uint64_t most_ns, unsigned int log)
{
	uint64_t ms = age_ns / AGE_UNIT_NS, step = AGE_STEP_MS;
	uint64_t most = lesser(most_ns / AGE_UNIT_NS, AGE_BEFORE - 1);

	while (ms >> log >= 2 * step)
		step *= 2;
	ms = lesser(ms / step * step + step / 2, most);
	return ms > AGE_UNKNOWN ? (uint32_t)ms : 1;
}

uint32_t ages_round(uint64_t age_ns, uint64_t most_ns)
{
	return steps_round(age_ns, most_ns, STEP_LOG);
}

uint32_t ages_coarse(uint64_t age_ns, uint64_t most_ns)
{
	return steps_round(age_ns, most_ns, COARSE_LOG);
}

bool ages_any(const struct ages *ages)
{
	return ages->least_ns || ages->most_ns != UINT64_MAX || ages->from_realtime_ns ||
	       ages->until_realtime_ns != UINT64_MAX;
}

bool ages_want(const struct ages *ages, uint32_t age, uint64_t moment_ns)
{
	uint64_t age_ns = age * AGE_UNIT_NS;
	uint64_t born_ns = moment_ns > age_ns ? moment_ns - age_ns : 0;

	switch (age) {
	case AGE_UNKNOWN:
		return false;
	case AGE_BEFORE:
		return ages->most_ns == UINT64_MAX && !ages->from_realtime_ns;
	}
	return age_ns >= ages->least_ns && age_ns <= ages->most_ns &&
	       born_ns >= ages->from_realtime_ns && born_ns <= ages->until_realtime_ns;
}

static size_t traces_keep(const struct snapshot *snapshot, const struct ages *ages,
			  struct snapshot_trace *traces, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		if (ages_want(ages, traces[i].age,
			      snapshot_process(snapshot, traces[i].process)->taken_realtime_ns))
			traces[kept++] = traces[i];
	return kept;
}

/* What describes all blocks, and not those that are left. */
static void meta_clear(struct snapshot_meta *meta)
{
	meta->of_ages = 1;
	meta->layers &= ~(1u << EVENT_LAYER_MMAP | 1u << EVENT_LAYER_PAGES);
	meta->peak_bytes = meta->native.peak_bytes = meta->rounded_blocks = 0;
	memset(meta->extra, 0, sizeof(meta->extra));
	memset(meta->sole_thread, 0, sizeof(meta->sole_thread));
	memset(meta->unknown, 0, sizeof(meta->unknown));
}

int ages_keep(struct snapshot *snapshot, const struct ages *ages)
{
	if (!snapshot->meta.ages)
		return error_set(-ENODATA, "this snapshot has no ages");
	if (snapshot->meta.layer == EVENT_LAYER_MMAP || snapshot->meta.layer == EVENT_LAYER_PAGES)
		return error_set(-ENODATA, "mapped memory and its pages have no ages");
	snapshot->trace_count =
		traces_keep(snapshot, ages, snapshot->traces, snapshot->trace_count);
	for (uint32_t i = 0; i < SNAPSHOT_LAYERS; i++) {
		struct snapshot_layer *layer = &snapshot->layers[i];
		bool has_ages = i < EVENT_LAYER_MMAP || i == SNAPSHOT_OLDER;

		layer->trace_count =
			has_ages ? traces_keep(snapshot, ages, layer->traces, layer->trace_count)
				 : 0;
	}
	meta_clear(&snapshot->meta);
	for (size_t i = 0; i < snapshot->process_count; i++)
		meta_clear(&snapshot->processes[i]);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "report/caveats/modes.h"

#include <inttypes.h>

#include "util/size.h"

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

static void change_print(FILE *out, const struct snapshot_change *change, uint64_t until_ns)
{
	fprintf(out, "%s%s %.1f-%.1f s", snapshot_mode_name(change->mode),
		snapshot_large_name(change->large), seconds(change->since_ns),
		seconds(until_ns > change->since_ns ? until_ns : change->since_ns));
	if (change->sample_bytes && change->mode != EVENT_MODE_OFF)
		fprintf(out, ", a sample of one in %s", SIZE_TEXT(change->sample_bytes));
	if (change->cost_permille)
		fprintf(out,
			" (probes took %.1f %% of its CPU time just before, the budget is %.1f %%)",
			change->cost_permille / 10.0, change->budget_permille / 10.0);
	else if (change->budget_permille)
		fprintf(out, " (its cost is within the budget again)");
}

/* Did the mode change because the heap could not be read, not for its cost? */
static bool is_fall_back(const struct snapshot_change *change)
{
	return change->mode == EVENT_MODE_EXACT && !change->cost_permille &&
	       !change->budget_permille;
}

/* A change of mode that clears the table: the figures cover only the time since then. */
static void since_print(FILE *out, const struct snapshot_meta *meta)
{
	const struct snapshot_change *changes = meta->changes;
	uint32_t last = meta->change_count - 1, begun;

	if (changes[last].mode == EVENT_MODE_OFF) {
		fprintf(out,
			"Nothing is traced since %.1f s: later allocations are not in the "
			"report%s\n",
			seconds(changes[last].since_ns),
			meta->coverage_known ? "" : ", later frees are not seen");
		last--;
	}
	/* Changes between exact and census, and to a sparser sample, keep the table. */
	for (begun = last; begun > 0; begun--)
		if (changes[begun - 1].mode == EVENT_MODE_OFF || is_fall_back(&changes[begun]) ||
		    (changes[begun - 1].mode == EVENT_MODE_GROWTH) !=
			    (changes[begun].mode == EVENT_MODE_GROWTH) ||
		    changes[begun].sample_bytes < changes[begun - 1].sample_bytes)
			break;
	if (begun)
		fprintf(out, "Figures cover the time since %.1f s, when %s mode began\n",
			seconds(changes[begun].since_ns), snapshot_mode_name(changes[begun].mode));
}

void modes_print(FILE *out, const struct snapshot_meta *meta)
{
	uint32_t count =
		meta->change_count < SNAPSHOT_CHANGES ? meta->change_count : SNAPSHOT_CHANGES;

	if (count < 2)
		return;
	fputs("Modes: ", out);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t until_ns =
			i + 1 < count ? meta->changes[i + 1].since_ns : meta->duration_ns;

		if (i == 1 && meta->changes_dropped)
			fprintf(out, "; … (%u not kept)", meta->changes_dropped);
		fputs(i ? "; " : "", out);
		change_print(out, &meta->changes[i], until_ns);
		if (i && is_fall_back(&meta->changes[i]))
			fputs(" (its heap could not be read)", out);
	}
	putc('\n', out);
	since_print(out, meta);
}

void modes_json(FILE *out, const struct snapshot_meta *meta)
{
	uint32_t count =
		meta->change_count < SNAPSHOT_CHANGES ? meta->change_count : SNAPSHOT_CHANGES;

	if (!count)
		return;
	fputs("\"modes\": [", out);
	for (uint32_t i = 0; i < count; i++) {
		const struct snapshot_change *change = &meta->changes[i];

		fprintf(out,
			"%s{\"mode\": \"%s\", \"since_ns\": %" PRIu64
			", \"sample_bytes\": %" PRIu64,
			i ? ", " : "", snapshot_mode_name(change->mode), change->since_ns,
			change->sample_bytes);
		fprintf(out, ", \"cost\": %.3f, \"budget\": %.3f", change->cost_permille / 1e3,
			change->budget_permille / 1e3);
		if (change->mode == EVENT_MODE_WINDOWS)
			fprintf(out, ", \"large_blocks\": \"%s\"",
				change->large == SNAPSHOT_LARGE_ALWAYS ? "always"
				: change->large == SNAPSHOT_LARGE_NONE ? "no"
								       : "windows");
		putc('}', out);
	}
	fprintf(out, "], \"modes_dropped\": %u, ", meta->changes_dropped);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What a text report says of entries beside what is alive. */
#include <inttypes.h>

#include "report/report_parts.h"
#include "util/size.h"

const char *report_temporary_key(const struct statistics *statistics)
{
	return statistics->temporary_by_walk ? "short_lived" : "temporary";
}

void report_beside_print(FILE *out, const struct statistic *sums,
			 const struct statistics *statistics, int compared)
{
	const struct statistic_sums *now = &sums->beside.allocated;
	const struct statistic_sums *old = &sums->old_beside.allocated;
	const char *about = statistics->sampled ? "~" : "";
	char text[SIZE_TEXT_MAX];

	if (!statistics->allocated_known)
		return;
	fprintf(out, ", allocated=%s%s", about, size_text(text, now->size));
	if (compared)
		fprintf(out, " (%s)",
			size_format(text, (double)report_diff(now->size, old->size), 1));
	fprintf(out, " in %s%" PRIu64, about, now->count);
	if (compared)
		fprintf(out, " (%+" PRId64 ")", report_diff(now->count, old->count));
	fputs(now->count == 1 ? " block" : " blocks", out);
	now = &sums->beside.temporary;
	old = &sums->old_beside.temporary;
	if (!now->count && !old->count)
		return;
	fprintf(out, ", %s=%s%" PRIu64, statistics->temporary_by_walk ? "short-lived" : "temporary",
		about, now->count);
	if (compared)
		fprintf(out, " (%+" PRId64 ")", report_diff(now->count, old->count));
}

static void subtract(uint64_t *from, uint64_t value)
{
	*from -= value < *from ? value : *from;
}

void report_beside_subtract(struct statistic_beside *from, const struct statistic_beside *part)
{
	subtract(&from->allocated.size, part->allocated.size);
	subtract(&from->allocated.count, part->allocated.count);
	subtract(&from->temporary.size, part->temporary.size);
	subtract(&from->temporary.count, part->temporary.count);
}

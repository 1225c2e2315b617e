/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/carry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

static uint32_t *indices_new(size_t count)
{
	uint32_t *indices = malloc((count ? count : 1) * sizeof(*indices));

	if (indices)
		memset(indices, 0xff, count * sizeof(*indices));
	return indices;
}

int carry_begin(struct carry *carry, const struct snapshot *from, struct builder *to)
{
	uint32_t longest = 1;

	for (size_t i = 0; i < from->traceback_count; i++)
		if (from->tracebacks[i].nframe > longest)
			longest = from->tracebacks[i].nframe;
	*carry = (struct carry){.from = from, .to = to};
	carry->strings = indices_new(strings_count(from->strings));
	carry->tracebacks = indices_new(from->traceback_count);
	carry->frames = calloc(longest, sizeof(*carry->frames));
	return carry->strings && carry->tracebacks && carry->frames ? 0 : -ENOMEM;
}

static int string_carry(struct carry *carry, uint32_t *id)
{
	uint32_t *known = &carry->strings[*id];
	int err = 0;

	if (*known == NONE) {
		const char *text = strings_get(carry->from->strings, *id);

		err = strings_intern(carry->to->snapshot->strings, text, strlen(text), known);
	}
	*id = *known;
	return err;
}

static int traceback_add(struct carry *carry, const struct snapshot_traceback *traceback,
			 uint32_t *added)
{
	int asked = carry->app && carry->app->ranks, err = 0;
	uint32_t first = 0, total = traceback->total;
	int rank = asked ? app_run_find(carry->app, traceback, &first) : 0;

	if (rank < 0)
		return rank;
	for (uint32_t i = first; !err && i < traceback->nframe; i++) {
		struct snapshot_frame *frame = &carry->frames[i - first];

		*frame = carry->from->frames[traceback->first + i];
		err = string_carry(carry, &frame->filename);
		if (!err)
			err = string_carry(carry, &frame->function);
	}
	if (total != SNAPSHOT_TOTAL_UNKNOWN)
		total -= first;
	return err ? err
		   : builder_traceback(carry->to, carry->frames, traceback->nframe - first, total,
				       added);
}

int carry_traceback(struct carry *carry, struct snapshot_trace *trace)
{
	const struct snapshot_traceback *traceback = &carry->from->tracebacks[trace->traceback];
	uint32_t *known = &carry->tracebacks[trace->traceback];
	int err = *known == NONE ? traceback_add(carry, traceback, known) : 0;

	trace->traceback = *known;
	return err;
}

void carry_end(struct carry *carry)
{
	free(carry->strings);
	free(carry->tracebacks);
	free(carry->frames);
	*carry = (struct carry){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/malloc/states.h"

#include <errno.h>
#include <stdlib.h>

#include "proc/memory.h"
#include "runtime/malloc/mapped.h"
#include "runtime/malloc/walk.h"
#include "util/sorted.h"

struct question {
	uint64_t address;
	size_t index;
	uint8_t state;
	uint8_t seen; /* in a heap */
};

/* Questions are sorted by address, as the chunks come. */
struct states_asked {
	struct question *questions;
	size_t count, next;
};

static int chunk_visit(const struct glibc_chunk *chunk, void *context)
{
	struct states_asked *asked = context;
	uint64_t end = chunk->address + chunk->bytes;

	while (asked->next < asked->count &&
	       asked->questions[asked->next].address < chunk->address + GLIBC_HEADER)
		asked->next++;
	for (; asked->next < asked->count &&
	       asked->questions[asked->next].address < end + GLIBC_HEADER;
	     asked->next++) {
		struct question *question = &asked->questions[asked->next];

		question->seen = 1;
		if (chunk->kind == GLIBC_UNKNOWN)
			question->state = GLIBC_STATE_UNKNOWN;
		else if (chunk->kind == GLIBC_USED &&
			 question->address == chunk->address + GLIBC_HEADER)
			question->state = GLIBC_STATE_ALLOCATED;
		else
			question->state = GLIBC_STATE_FREE;
	}
	return 0;
}

static int mapped_look(struct glibc *glibc, const struct process_maps *maps,
		       struct states_asked *asked)
{
	for (size_t i = 0; i < asked->count; i++) {
		struct question *question = &asked->questions[i];
		int got = question->seen ? 0 : glibc_is_mapped(glibc, maps, question->address);

		if (question->seen)
			continue;
		if (got < 0 && got != -ENODATA)
			return got;
		if (got > 0)
			question->state = GLIBC_STATE_ALLOCATED;
		else if (got < 0 || glibc->main_is_elsewhere)
			question->state = GLIBC_STATE_UNKNOWN;
		else
			question->state = GLIBC_STATE_FREE;
	}
	return 0;
}

static int look(struct glibc *glibc, struct states_asked *asked)
{
	struct glibc_totals totals;
	struct process_maps maps;
	int err = process_maps_read(space_pid(glibc->space), &maps);

	if (err)
		return err;
	asked->next = 0;
	for (size_t i = 0; i < asked->count; i++)
		asked->questions[i].seen = 0;
	err = glibc_look(glibc, &maps)
	      ?: glibc_walk(glibc, chunk_visit, asked, &totals)
	      ?: mapped_look(glibc, &maps, asked);
	process_maps_free(&maps);
	return err;
}

int glibc_states(struct glibc *glibc, const uint64_t *addresses, size_t count, uint8_t *states)
{
	struct states_asked asked = {.questions = calloc(count + 1, sizeof(*asked.questions)),
				     .count = count};
	size_t frees = 0;

	if (!asked.questions)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		asked.questions[i] = (struct question){.address = addresses[i], .index = i};
	SORT_BY(asked.questions, count, address);
	int err = look(glibc, &asked);
	for (size_t i = 0; i < count; i++) {
		states[asked.questions[i].index] = asked.questions[i].state;
		frees += asked.questions[i].state == GLIBC_STATE_FREE;
	}
	if (!err && frees)
		err = look(glibc, &asked);
	for (size_t i = 0; i < count && frees; i++) {
		uint8_t *state = &states[asked.questions[i].index];

		if (*state == GLIBC_STATE_FREE && asked.questions[i].state != GLIBC_STATE_FREE)
			*state = GLIBC_STATE_UNKNOWN;
	}
	free(asked.questions);
	return err;
}

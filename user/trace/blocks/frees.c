/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/frees.h"

#include "util/account.h"
#include "util/array.h"

static uint32_t age_of(uint64_t lived_ns)
{
	uint32_t age = 0;

	while (age + 1 < LIFE_AGES && lived_ns >= LIFE_AGE_NS << age)
		age++;
	return age;
}

static uint64_t life_key(const struct life *life)
{
	return hash_u64(death_row_key(life->stack, life->kind, life->class_bytes)) ^
	       age_of(life->lived_ns);
}

static bool life_is(const struct life *life, const struct life *like)
{
	return life->stack == like->stack && life->kind == like->kind &&
	       life->class_bytes == like->class_bytes && life->window == like->window;
}

/* A new one, in the place of the oldest if there are too many; NULL: no memory. */
static struct life *life_add(struct frees *frees, const struct life *like, uint64_t key)
{
	if (frees->life_count < LIVES_MAX) {
		if (ARRAY_RESERVE(frees->account, frees, lives, life_count, life_capacity, 1))
			return NULL;
		frees->last = frees->life_count++;
	} else {
		frees->last = (frees->last + 1) % LIVES_MAX;
	}
	frees->lives[frees->last] = *like;
	frees->lives[frees->last].lived_ns = 0;
	return id_map_put(&frees->index, key, (uint32_t)frees->last) ? NULL
								     : &frees->lives[frees->last];
}

static struct life *life_of(struct frees *frees, const struct life *like)
{
	uint64_t key = life_key(like);
	uint32_t found;

	if (frees->window != like->window) {
		id_map_free(&frees->index);
		frees->window = like->window;
	}
	found = id_map_find(&frees->index, key);
	return found != ID_MAP_NONE && life_is(&frees->lives[found], like)
		       ? &frees->lives[found]
		       : life_add(frees, like, key);
}

static int freed_add(struct frees *frees, const struct freed *freed)
{
	if (frees->count == FREES_MAX ||
	    ARRAY_RESERVE(frees->account, frees, items, count, capacity, 1))
		return 0;
	frees->items[frees->count++] = *freed;
	return 1;
}

void frees_life(struct frees *frees, const struct life *like, uint64_t address, uint32_t units)
{
	struct life *life = life_of(frees, like);

	if (!life || life->count == UINT32_MAX)
		return;
	life->count++;
	life->lived_ns += like->lived_ns;
	life->asked += (uint32_t)freed_add(frees, &(struct freed){
							  .address = address,
							  .units = units,
							  .place = (uint32_t)(life - frees->lives),
							  .window = like->window,
						  });
}

void frees_death(struct frees *frees, uint32_t place, uint32_t window, uint64_t address,
		 uint32_t units)
{
	if (place != DEATHS_NONE)
		freed_add(frees, &(struct freed){.address = address,
						 .units = units,
						 .place = place,
						 .window = window,
						 .is_death = 1});
}

void frees_walked(struct frees *frees, const struct chunk_table *chunks, struct deaths *deaths)
{
	for (size_t i = 0; i < frees->count; i++) {
		const struct freed *freed = &frees->items[i];
		const struct chunk *chunk = chunk_table_find(chunks, freed->address);
		uint32_t hidden = chunk && chunk->units == freed->units;

		/* A ring may have gone round since. */
		if (freed->is_death && deaths->items[freed->place].window == freed->window)
			deaths->items[freed->place].hidden = hidden;
		if (!freed->is_death && frees->lives[freed->place].window == freed->window)
			frees->lives[freed->place].hidden += hidden;
	}
	frees->count = 0;
}

void frees_halve(struct frees *frees)
{
	for (size_t i = 0; i < frees->life_count; i++)
		frees->lives[i].window /= 2;
	for (size_t i = 0; i < frees->count; i++)
		frees->items[i].window /= 2;
	id_map_free(&frees->index);
	frees->window /= 2;
}

void frees_free(struct frees *frees)
{
	struct account *account = frees->account;

	ARRAY_RELEASE(account, frees, items, capacity);
	ARRAY_RELEASE(account, frees, lives, life_capacity);
	id_map_free(&frees->index);
	*frees = (struct frees){.account = account, .index.account = account};
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/sampled_blocks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/account.h"
#include "util/hash.h"

#define CAPACITY_MIN 1024u
/* grows beyond 3/4 */
#define FULL_OF 4u
#define FULL    3u

static size_t slot_of(const struct sightings *sightings, uint64_t address)
{
	size_t mask = sightings->capacity - 1, i = hash_u64(address) & mask;

	while (sightings->slots[i].address && sightings->slots[i].address != address)
		i = (i + 1) & mask;
	return i;
}

/* Moves everything into a table of that capacity. */
static int capacity_set(struct sightings *sightings, size_t capacity)
{
	struct sightings other = {.capacity = capacity, .account = sightings->account};
	int err = account_charge(other.account, capacity * sizeof(*other.slots));

	if (err)
		return err;
	other.slots = calloc(capacity, sizeof(*other.slots));
	if (!other.slots) {
		account_uncharge(other.account, capacity * sizeof(*other.slots));
		return -ENOMEM;
	}
	for (size_t i = 0; i < sightings->capacity; i++)
		if (sightings->slots[i].address)
			other.slots[slot_of(&other, sightings->slots[i].address)] =
				sightings->slots[i];
	other.count = sightings->count;
	sightings_free(sightings);
	*sightings = other;
	return 0;
}

int sightings_put(struct sightings *sightings, const struct sighting *sighting)
{
	struct sighting *known = sightings_find(sightings, sighting->address);
	int err = 0;

	if (!sighting->address)
		return -EINVAL;
	if (known) {
		*known = *sighting;
		return 0;
	}
	if (sightings->count >= SIGHTINGS_MAX)
		return -EDQUOT;
	if (!sightings->capacity)
		err = capacity_set(sightings, CAPACITY_MIN);
	else if ((sightings->count + 1) * FULL_OF > sightings->capacity * FULL)
		err = capacity_set(sightings, sightings->capacity * 2);
	if (err)
		return err;
	sightings->slots[slot_of(sightings, sighting->address)] = *sighting;
	sightings->count++;
	return 0;
}

struct sighting *sightings_find(const struct sightings *sightings, uint64_t address)
{
	struct sighting *found;

	if (!sightings->count || !address)
		return NULL;
	found = &sightings->slots[slot_of(sightings, address)];
	return found->address ? found : NULL;
}

/* Closes the gap: a later entry of the same run moves there if its own place is before the gap. */
static void slot_clear(struct sightings *sightings, size_t gap)
{
	size_t mask = sightings->capacity - 1;

	for (size_t i = (gap + 1) & mask; sightings->slots[i].address; i = (i + 1) & mask) {
		size_t home = hash_u64(sightings->slots[i].address) & mask;

		if (((i - home) & mask) < ((i - gap) & mask))
			continue;
		sightings->slots[gap] = sightings->slots[i];
		gap = i;
	}
	sightings->slots[gap] = (struct sighting){0};
	sightings->count--;
}

int sightings_remove(struct sightings *sightings, uint64_t address)
{
	struct sighting *found = sightings_find(sightings, address);

	if (!found)
		return 0;
	slot_clear(sightings, (size_t)(found - sightings->slots));
	return 1;
}

const struct sighting *sightings_next(const struct sightings *sightings, size_t *cursor)
{
	while (*cursor < sightings->capacity) {
		const struct sighting *sighting = &sightings->slots[(*cursor)++];

		if (sighting->address)
			return sighting;
	}
	return NULL;
}

int sightings_copy(struct sightings *out, const struct sightings *from)
{
	int err = from->capacity ? capacity_set(out, from->capacity) : 0;

	if (err || !from->capacity)
		return err;
	memcpy(out->slots, from->slots, from->capacity * sizeof(*out->slots));
	out->count = from->count;
	return 0;
}

void sightings_free(struct sightings *sightings)
{
	free(sightings->slots);
	account_uncharge(sightings->account, sightings->capacity * sizeof(*sightings->slots));
	*sightings = (struct sightings){.account = sightings->account};
}

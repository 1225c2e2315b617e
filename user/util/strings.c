/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One entry per string, in order of id. The bytes are in chunks that never move, so that a returned
 * pointer stays valid. An open-addressed table of ids finds a string again. The table's hash is
 * seeded at random: the strings come from the target, which could otherwise choose names that all
 * collide.
 */
#include "util/strings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "util/account.h"
#include "util/array.h"
#include "util/hash.h"

/* Each process has its own strings, and most have few: every part starts small and doubles. */
#define CHUNK_FIRST   256u /* each chunk is twice as large as the one before, up to: */
#define CHUNK_BYTES   (64u * 1024)
#define ENTRIES_FIRST 16u
#define SLOTS_FIRST   32u
#define NO_ID         UINT32_MAX

struct strings_chunk {
	struct strings_chunk *next;
	char data[];
};

struct entry {
	const char *text;
	uint32_t bytes, hash;
};

struct strings {
	struct entry *entries;
	uint32_t count, capacity;
	uint32_t *slots;     /* id, or NO_ID for a free slot */
	uint32_t slot_count; /* a power of two, at least 4/3 of count */
	struct strings_chunk *chunks;
	char *left; /* unused part of the current chunk */
	size_t left_bytes;
	size_t chunk_bytes, chunk_next; /* of all chunks; of the next one */
	uint64_t seed;
	struct account *account;
};

static uint32_t hash_text(const struct strings *strings, const char *text, size_t bytes)
{
	uint64_t hash = strings->seed ^ bytes, word;

	for (; bytes >= sizeof(word); text += sizeof(word), bytes -= sizeof(word)) {
		memcpy(&word, text, sizeof(word));
		hash = hash_u64(hash ^ word) + strings->seed;
	}
	word = 0;
	memcpy(&word, text, bytes);
	return (uint32_t)hash_u64(hash ^ word);
}

static int grow_entries(struct strings *strings)
{
	uint32_t capacity = strings->capacity ? strings->capacity * 2 : ENTRIES_FIRST;
	size_t grown = (capacity - strings->capacity) * sizeof(struct entry);
	struct entry *entries;

	if (capacity > NO_ID / 4)
		return -ENOMEM;
	int err = account_charge(strings->account, grown);
	if (err)
		return err;
	entries = realloc(strings->entries, capacity * sizeof(*entries));
	if (!entries) {
		account_uncharge(strings->account, grown);
		return -ENOMEM;
	}
	strings->entries = entries;
	strings->capacity = capacity;
	return 0;
}

static int grow_slots(struct strings *strings)
{
	uint32_t slot_count = strings->slot_count ? strings->slot_count * 2 : SLOTS_FIRST, *slots;
	int err = account_charge(strings->account, slot_count * sizeof(*slots));

	if (err)
		return err;
	slots = malloc(slot_count * sizeof(*slots));
	if (!slots) {
		account_uncharge(strings->account, slot_count * sizeof(*slots));
		return -ENOMEM;
	}
	memset(slots, 0xff, slot_count * sizeof(*slots));
	for (uint32_t id = 0; id < strings->count; id++) {
		uint32_t slot = strings->entries[id].hash & (slot_count - 1);

		while (slots[slot] != NO_ID)
			slot = (slot + 1) & (slot_count - 1);
		slots[slot] = id;
	}
	free(strings->slots);
	account_uncharge(strings->account, strings->slot_count * sizeof(*slots));
	strings->slots = slots;
	strings->slot_count = slot_count;
	return 0;
}

/*
 * Allocates bytes in a chunk. A long string gets its own chunk and leaves the current one
 * unchanged.
 */
static int chunk_take(struct strings *strings, size_t bytes, char **out)
{
	size_t next = strings->chunk_next ? strings->chunk_next : CHUNK_FIRST;
	int own = bytes > next / 4, err;
	size_t size = own ? bytes : next;
	struct strings_chunk *chunk;

	if (bytes > strings->left_bytes) {
		err = account_charge(strings->account, sizeof(*chunk) + size);
		if (err)
			return err;
		chunk = malloc(sizeof(*chunk) + size);
		if (!chunk) {
			account_uncharge(strings->account, sizeof(*chunk) + size);
			return -ENOMEM;
		}
		chunk->next = strings->chunks;
		strings->chunks = chunk;
		strings->chunk_bytes += sizeof(*chunk) + size;
		*out = chunk->data;
		if (own)
			return 0;
		strings->left = chunk->data;
		strings->left_bytes = size;
		if (next < CHUNK_BYTES)
			strings->chunk_next = 2 * next;
	}
	*out = strings->left;
	strings->left += bytes;
	strings->left_bytes -= bytes;
	return 0;
}

/* The slot that holds the text's id, or the free one where it belongs. slots must exist. */
static uint32_t slot_find(const struct strings *strings, const char *text, size_t bytes,
			  uint32_t hash)
{
	uint32_t slot;

	for (slot = hash & (strings->slot_count - 1); strings->slots[slot] != NO_ID;
	     slot = (slot + 1) & (strings->slot_count - 1)) {
		const struct entry *entry = &strings->entries[strings->slots[slot]];

		if (entry->hash == hash && entry->bytes == bytes &&
		    !memcmp(entry->text, text, bytes))
			break;
	}
	return slot;
}

int strings_find(const struct strings *strings, const char *text, uint32_t *id)
{
	size_t bytes = strlen(text);
	uint32_t slot = slot_find(strings, text, bytes, hash_text(strings, text, bytes));

	*id = strings->slots[slot];
	return *id != NO_ID;
}

int strings_intern(struct strings *strings, const char *text, size_t bytes, uint32_t *id)
{
	char *copy;
	int err;

	if (bytes)
		bytes = strnlen(text, bytes); /* strings_get() cannot return what follows a NUL */
	else
		text = "";
	if (bytes >= UINT32_MAX)
		return -ENOMEM;
	if (strings->count >= strings->slot_count / 4 * 3) {
		err = grow_slots(strings);
		if (err)
			return err;
	}
	uint32_t hash = hash_text(strings, text, bytes);
	uint32_t slot = slot_find(strings, text, bytes, hash);
	if (strings->slots[slot] != NO_ID) {
		*id = strings->slots[slot];
		return 0;
	}

	if (strings->count == strings->capacity) {
		err = grow_entries(strings);
		if (err)
			return err;
	}
	err = chunk_take(strings, bytes + 1, &copy);
	if (err)
		return err;
	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	strings->entries[strings->count] = (struct entry){copy, (uint32_t)bytes, hash};
	strings->slots[slot] = strings->count;
	*id = strings->count++;
	return 0;
}

int strings_new(struct strings **out)
{
	return strings_new_in(out, NULL);
}

int strings_new_in(struct strings **out, struct account *account)
{
	struct strings *strings;
	uint32_t id;
	int err = account_charge(account, sizeof(*strings));

	if (err)
		return err;
	strings = calloc(1, sizeof(*strings));
	if (!strings) {
		account_uncharge(account, sizeof(*strings));
		return -ENOMEM;
	}
	strings->account = account;
	if (getrandom(&strings->seed, sizeof(strings->seed), GRND_NONBLOCK) !=
	    sizeof(strings->seed))
		/* address space randomisation is better than nothing */
		strings->seed = (uintptr_t)strings;
	err = strings_intern(strings, "", 0, &id);
	if (err) {
		strings_free(strings);
		return err;
	}
	*out = strings;
	return 0;
}

void strings_free(struct strings *strings)
{
	struct strings_chunk *next;

	if (!strings)
		return;
	for (struct strings_chunk *chunk = strings->chunks; chunk; chunk = next) {
		next = chunk->next;
		free(chunk);
	}
	free(strings->slots);
	free(strings->entries);
	account_uncharge(strings->account, strings_memory(strings));
	free(strings);
}

/* Ids are assigned in order of appearance, so interning in id order preserves every id. */
int strings_copy(struct strings **out, const struct strings *from, struct account *account)
{
	struct strings *copy;
	uint32_t id;
	int err = strings_new_in(&copy, account);

	if (err)
		return err;
	for (uint32_t i = 0; i < from->count && !err; i++)
		err = strings_intern(copy, from->entries[i].text, from->entries[i].bytes, &id);
	if (err)
		strings_free(copy);
	else
		*out = copy;
	return err;
}

void strings_disown(struct strings *strings)
{
	account_uncharge(strings->account, strings_memory(strings));
	strings->account = NULL;
}

void strings_fit(struct strings *strings)
{
	size_t capacity = strings->capacity;

	array_fit(strings->account, &strings->entries, &capacity, strings->count,
		  sizeof(*strings->entries));
	strings->capacity = (uint32_t)capacity;
}

const char *strings_get(const struct strings *strings, uint32_t id)
{
	return id < strings->count ? strings->entries[id].text : "";
}

uint32_t strings_count(const struct strings *strings)
{
	return strings->count;
}

size_t strings_memory(const struct strings *strings)
{
	return sizeof(*strings) + strings->capacity * sizeof(*strings->entries) +
	       strings->slot_count * sizeof(*strings->slots) + strings->chunk_bytes;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing with linear probing, in SEGMENTS independent arrays of struct block. The high
 * bits of a key's hash select the segment. The low 32 bits select the home slot by multiply-shift,
 * so a capacity need not be a power of two, and a full segment can grow by 1.4 instead of 2:
 * between 32 / 0.75 = 43 and 60 bytes per block. Removal shifts later entries back, so there are no
 * tombstones, and a table does not degrade with churn.
 *
 * An address of 0 marks an empty slot. Hashes are seeded, because the traced process controls the
 * addresses and must not be able to cause collisions.
 */
#include "trace/blocks/blocks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "util/account.h"
#include "util/hash.h"

#define SEGMENT_BITS 6
#define SEGMENTS     (1u << SEGMENT_BITS)
#define AHEAD        8u /* blocks of a pool: so far ahead of a walk slots are read */
#define FIRST_SLOTS  4u /* most processes have few blocks, about one per segment */
/* larger segments are mapped, so that memory returns to the kernel when they are replaced */
#define MMAP_BYTES    (128u << 10)
#define HASH_SPREADER 0x9e3779b97f4a7c15ull

struct segment {
	struct block *slots;
	uint32_t capacity;
	uint32_t count;
};

struct blocks {
	uint64_t seed;
	int hooked; /* a hooked block was added */
	struct account *account;
	size_t count;
	struct segment *segments; /* array of SEGMENTS; NULL until the first block */
};

static const struct segment segments_none[SEGMENTS];

static const struct segment *segments_of(const struct blocks *blocks)
{
	return blocks->segments ? blocks->segments : segments_none;
}

static void *zeros_allocate(size_t bytes)
{
	if (bytes < MMAP_BYTES)
		return calloc(1, bytes);
	void *zeros = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return zeros == MAP_FAILED ? NULL : zeros;
}

static int slots_allocate(struct account *account, uint32_t capacity, struct block **out)
{
	size_t bytes = (size_t)capacity * sizeof(struct block);
	int err = account_charge(account, bytes);

	if (err)
		return err;
	*out = zeros_allocate(bytes);
	if (*out)
		return 0;
	account_uncharge(account, bytes);
	return -ENOMEM;
}

static void slots_release(struct account *account, struct block *slots, uint32_t capacity)
{
	size_t bytes = (size_t)capacity * sizeof(struct block);

	account_uncharge(account, bytes);
	if (bytes < MMAP_BYTES)
		free(slots);
	else
		munmap(slots, bytes);
}

static uint64_t key_hash(const struct blocks *blocks, uint64_t address, uint32_t domain)
{
	return hash_u64((address ^ blocks->seed) + domain * HASH_SPREADER);
}

static uint32_t slot_home(uint64_t hash, uint32_t capacity)
{
	return (uint32_t)((hash & UINT32_MAX) * capacity >> 32);
}

static uint32_t slot_after(uint32_t slot, uint32_t capacity)
{
	return slot + 1 == capacity ? 0 : slot + 1;
}

/*
 * The slot that holds the key, or the empty slot where it belongs. The segment has at least one
 * empty slot.
 */
static uint32_t slot_find(const struct segment *segment, uint64_t hash, uint64_t address,
			  uint32_t domain)
{
	uint32_t slot = slot_home(hash, segment->capacity);

	for (;; slot = slot_after(slot, segment->capacity)) {
		const struct block *block = &segment->slots[slot];

		if (!block->address || (block->address == address && block->domain == domain))
			return slot;
	}
}

/* NULL: the segment has no slots yet. */
static struct block *slot_of(const struct segment *segment, uint64_t hash,
			     const struct block *block)
{
	return segment->capacity
		       ? &segment->slots[slot_find(segment, hash, block->address, block->domain)]
		       : NULL;
}

static int segment_grow(const struct blocks *blocks, struct segment *segment)
{
	uint64_t capacity = segment->capacity ? (uint64_t)segment->capacity * 7 / 5 : FIRST_SLOTS;
	struct segment grown = {.count = segment->count, .capacity = (uint32_t)capacity};

	if (capacity > UINT32_MAX)
		return -ENOMEM;
	int err = slots_allocate(blocks->account, grown.capacity, &grown.slots);
	if (err)
		return err;
	for (uint32_t i = 0; i < segment->capacity; i++) {
		const struct block *block = &segment->slots[i];

		if (!block->address)
			continue;
		uint64_t hash = key_hash(blocks, block->address, block->domain);
		grown.slots[slot_find(&grown, hash, block->address, block->domain)] = *block;
	}
	if (segment->slots)
		slots_release(blocks->account, segment->slots, segment->capacity);
	*segment = grown;
	return 0;
}

/*
 * Empties a slot. Each later entry of the cluster whose home is not after the hole moves into it
 * and leaves the next hole.
 */
static void slot_remove(struct blocks *blocks, struct segment *segment, uint32_t hole)
{
	uint32_t slot = hole;

	segment->count--;
	blocks->count--;
	for (;;) {
		slot = slot_after(slot, segment->capacity);
		const struct block *block = &segment->slots[slot];

		if (!block->address)
			break;
		uint32_t home = slot_home(key_hash(blocks, block->address, block->domain),
					  segment->capacity);
		int stays = hole < slot ? home > hole && home <= slot : home > hole || home <= slot;
		if (stays)
			continue;
		segment->slots[hole] = *block;
		hole = slot;
	}
	segment->slots[hole].address = 0;
}

static int segments_need(struct blocks *blocks)
{
	int err = blocks->segments ? 0 : account_charge(blocks->account, sizeof(segments_none));

	if (err || blocks->segments)
		return err;
	blocks->segments = calloc(SEGMENTS, sizeof(*blocks->segments));
	if (blocks->segments)
		return 0;
	account_uncharge(blocks->account, sizeof(segments_none));
	return -ENOMEM;
}

int blocks_new(struct blocks **out, struct account *account)
{
	struct blocks *blocks = calloc(1, sizeof(*blocks));

	if (!blocks)
		return -ENOMEM;
	/* Early in boot there may be none. Unseeded, a table is only slow under attack. */
	if (getrandom(&blocks->seed, sizeof(blocks->seed), GRND_NONBLOCK) != sizeof(blocks->seed))
		blocks->seed = 0;
	blocks->account = account;
	*out = blocks;
	return 0;
}

void blocks_free(struct blocks *blocks)
{
	if (!blocks)
		return;
	for (uint32_t i = 0; blocks->segments && i < SEGMENTS; i++)
		if (blocks->segments[i].slots)
			slots_release(blocks->account, blocks->segments[i].slots,
				      blocks->segments[i].capacity);
	if (blocks->segments)
		account_uncharge(blocks->account, sizeof(segments_none));
	free(blocks->segments);
	free(blocks);
}

static int segment_copy(const struct blocks *blocks, struct segment *segment,
			const struct segment *from)
{
	int err =
		from->slots ? slots_allocate(blocks->account, from->capacity, &segment->slots) : 0;

	if (err || !from->slots)
		return err;
	memcpy(segment->slots, from->slots, from->capacity * sizeof(*from->slots));
	segment->capacity = from->capacity;
	segment->count = from->count;
	return 0;
}

int blocks_copy(struct blocks **out, const struct blocks *blocks, struct account *account)
{
	struct blocks *copy = malloc(sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	*copy = *blocks;
	copy->account = account;
	copy->segments = NULL;
	int err = blocks->segments ? segments_need(copy) : 0;
	for (uint32_t i = 0; blocks->segments && !err && i < SEGMENTS; i++)
		err = segment_copy(copy, &copy->segments[i], &blocks->segments[i]);
	if (err)
		blocks_free(copy);
	else
		*out = copy;
	return err;
}

int blocks_put(struct blocks *blocks, const struct block *block, struct block *old)
{
	int err = block->address ? segments_need(blocks) : -EINVAL;
	if (err)
		return err;
	blocks->hooked |= block->hooked;
	uint64_t hash = key_hash(blocks, block->address, block->domain);
	struct segment *segment = &blocks->segments[hash >> (64 - SEGMENT_BITS)];

	struct block *slot = slot_of(segment, hash, block);
	if (slot && slot->address) {
		*old = *slot;
		*slot = *block;
		return 1;
	}
	if ((uint64_t)segment->count * 4 >= (uint64_t)segment->capacity * 3) {
		err = segment_grow(blocks, segment);
		if (err)
			return err;
		slot = slot_of(segment, hash, block);
	}
	*slot = *block;
	segment->count++;
	blocks->count++;
	return 0;
}

int blocks_take(struct blocks *blocks, uint64_t address, uint32_t domain, struct block *old)
{
	uint64_t hash = key_hash(blocks, address, domain);

	if (!address || !blocks->count)
		return 0;
	struct segment *segment = &blocks->segments[hash >> (64 - SEGMENT_BITS)];
	if (!segment->count)
		return 0;
	uint32_t slot = slot_find(segment, hash, address, domain);
	if (!segment->slots[slot].address)
		return 0;
	*old = segment->slots[slot];
	slot_remove(blocks, segment, slot);
	return 1;
}

const struct block *blocks_find(const struct blocks *blocks, uint64_t address, uint32_t domain)
{
	uint64_t hash = key_hash(blocks, address, domain);
	const struct segment *segment = &segments_of(blocks)[hash >> (64 - SEGMENT_BITS)];

	if (!address || !segment->count)
		return NULL;
	const struct block *block = &segment->slots[slot_find(segment, hash, address, domain)];
	return block->address ? block : NULL;
}

int blocks_retrace(struct blocks *blocks, const struct block *by)
{
	struct block *block = (struct block *)blocks_find(blocks, by->address, by->domain);

	if (!block)
		return 0;
	block->stack = by->stack;
	block->owner = by->owner;
	block->born_ms = by->born_ms;
	block->inherited = 0;
	return 1;
}

const struct block *blocks_at_allocator(const struct blocks *blocks, uint64_t address)
{
	const struct block *block = blocks_find(blocks, address, 0);

	if ((!block || block->hooked) && blocks->hooked)
		block = blocks_find(blocks, address + EVENT_HOOKS_BEFORE, 0);
	return block && block_allocator_address(block) == address ? block : NULL;
}

/*
 * Could the allocator have this block in a pool of that size class? A realloc keeps a block in
 * place if it uses more than three quarters of it, or with mimalloc at least half.
 */
static int class_fits(const struct block *block, uint32_t class_bytes, int is_mimalloc)
{
	uint64_t bytes = block_allocator_bytes(block);
	int is_kept =
		is_mimalloc ? bytes * 2 >= class_bytes : bytes * 4 > (uint64_t)class_bytes * 3;

	return bytes <= class_bytes && (bytes + EVENT_BLOCK_STEP > class_bytes || is_kept);
}

/* Where a block of domain 0 is looked for first; NULL: nowhere. */
static const struct block *slot_first(const struct blocks *blocks, uint64_t address)
{
	uint64_t hash = key_hash(blocks, address, 0);
	const struct segment *segment = &segments_of(blocks)[hash >> (64 - SEGMENT_BITS)];

	return segment->slots ? &segment->slots[slot_home(hash, segment->capacity)] : NULL;
}

int blocks_confirm(struct blocks *blocks, uint64_t address, uint32_t class_bytes, int is_mimalloc,
		   unsigned int epoch)
{
	/* A walk goes through a pool. Without this it would mostly wait for memory. */
	__builtin_prefetch(slot_first(blocks, address + (uint64_t)AHEAD * class_bytes));
	struct block *block = (struct block *)blocks_at_allocator(blocks, address);

	if (!block || !block->pooled || !class_fits(block, class_bytes, is_mimalloc))
		return 0;
	block->epoch = epoch;
	return 1;
}

void blocks_keep(struct blocks *blocks, uint64_t address, unsigned int epoch)
{
	struct block *block = (struct block *)blocks_find(blocks, address, 0);

	if (block && block->pooled)
		block->epoch = epoch;
}

void blocks_confirm_all(struct blocks *blocks, unsigned int epoch)
{
	struct block *block;

	for (size_t cursor = 0; (block = (struct block *)blocks_next(blocks, &cursor));)
		block->epoch = epoch;
}

void blocks_inherit_all(struct blocks *blocks)
{
	struct block *block;

	for (size_t cursor = 0; (block = (struct block *)blocks_next(blocks, &cursor));)
		block->inherited = 1;
}

void blocks_keep_if(struct blocks *blocks, unsigned int epoch,
		    bool (*is_kept)(const void *context, uint64_t address), const void *context)
{
	struct block *block;

	for (size_t cursor = 0; (block = (struct block *)blocks_next(blocks, &cursor));)
		if (block->pooled && is_kept(context, block->address))
			block->epoch = epoch;
}

void blocks_sweep(struct blocks *blocks, unsigned int epoch,
		  void (*removed)(void *context, const struct block *block), void *context)
{
	for (uint32_t i = 0; blocks->segments && i < SEGMENTS; i++) {
		struct segment *segment = &blocks->segments[i];

		for (uint32_t slot = 0; slot < segment->capacity;) {
			const struct block *block = &segment->slots[slot];

			if (!block->address || !block->pooled || block->epoch == epoch) {
				slot++;
				continue;
			}
			removed(context, block);
			/* A later entry may be here now, or one from the start, which was seen. */
			slot_remove(blocks, segment, slot);
		}
	}
}

size_t blocks_count(const struct blocks *blocks)
{
	return blocks->count;
}

size_t blocks_memory(const struct blocks *blocks)
{
	size_t bytes = sizeof(*blocks) + (blocks->segments ? sizeof(segments_none) : 0);

	for (uint32_t i = 0; i < SEGMENTS; i++)
		bytes += (size_t)segments_of(blocks)[i].capacity * sizeof(struct block);
	return bytes;
}

/* The cursor holds the segment in its upper half and the next slot in its lower half. */
const struct block *blocks_next(const struct blocks *blocks, size_t *cursor)
{
	uint64_t index = (uint64_t)*cursor >> 32;
	uint64_t slot = *cursor & UINT32_MAX;

	for (; index < SEGMENTS; index++, slot = 0) {
		const struct segment *segment = &segments_of(blocks)[index];

		for (; slot < segment->capacity; slot++) {
			if (segment->slots[slot].address) {
				*cursor = (size_t)(index << 32 | (slot + 1));
				return &segment->slots[slot];
			}
		}
	}
	*cursor = (size_t)(index << 32);
	return NULL;
}

/* --- containing ------------------------------------------------------------------------------- */

/* Finds the block that contains an address, which may be anywhere inside it. */

static int block_holds(const struct block *block, uint64_t address)
{
	/* A block of 0 bytes still has an address, and its object is looked up by it. */
	return address - block->address < (block->bytes ? block->bytes : 1);
}

/*
 * Allocators align to 16 bytes, so a small block that contains the address has few possible start
 * addresses.
 */
static const struct block *block_near(const struct blocks *blocks, uint64_t address)
{
	uint64_t start = address & ~15ull;

	for (uint64_t back = 0; back < BLOCKS_NEAR && back < start; back += 16) {
		const struct block *block = blocks_find(blocks, start - back, 0);

		if (block && block_holds(block, address))
			return block;
	}
	return NULL;
}

const struct block *blocks_containing(const struct blocks *blocks, uint64_t address)
{
	const struct block *found = block_near(blocks, address), *block;

	if (found)
		return found;
	for (size_t cursor = 0; (block = blocks_next(blocks, &cursor));) {
		if (!block_holds(block, address))
			continue;
		if (!found || (block->domain == 0) > (found->domain == 0) ||
		    ((block->domain == 0) == (found->domain == 0) &&
		     block->address > found->address))
			found = block;
	}
	return found;
}

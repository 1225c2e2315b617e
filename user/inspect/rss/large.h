/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocated blocks of malloc that are too large for pymalloc, and which of them Python's objects
 * refer to: a word of a live object that is the block's address, or the address behind the headers
 * that CPython puts in front of an object. Pure, except for memory_large_follow().
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct malloc_reader;

struct memory_block {
	uint64_t address;    /* as malloc() returned it */
	uint64_t bytes;      /* of its chunk, or of its mapping */
	unsigned mapped : 1; /* it has a mapping of its own */
	unsigned python : 1; /* it was referred to */
};

struct memory_large {
	struct memory_block *blocks; /* by address, once they are sorted */
	size_t count, capacity;
	uint64_t *pages; /* filter: hashes of the pages that have blocks; NULL: none is known */
	uint32_t *queue; /* blocks that were referred to and were not yet searched themselves */
	size_t queued, queue_capacity;
};

/* 0, -ENOMEM. */
int memory_large_add(struct memory_large *large, uint64_t address, uint64_t bytes, int mapped);
/* Call it once, after the last block. 0, -ENOMEM. */
int memory_large_sort(struct memory_large *large);
/* Marks the blocks that words of this content refer to. 0, -ENOMEM. */
int memory_large_search(struct memory_large *large, const uint8_t *content, size_t bytes);
/* Searches the marked blocks themselves, and those that they refer to. 0; -ESRCH; -ENOMEM. */
int memory_large_follow(struct memory_large *large, struct malloc_reader *reader);
/* The block at an address, or NULL. */
const struct memory_block *memory_large_find(const struct memory_large *large, uint64_t address);
void memory_large_free(struct memory_large *large);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that replaces malloc by a heap that no reader knows: blocks of powers of two, each
 * class with a list of those that were freed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define HEADER  16u
#define CLASSES 48u
#define PIECE   (4u << 20)

struct free_block {
	struct free_block *next;
};

static struct free_block *lists[CLASSES];
static unsigned char *piece;
static size_t left;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *carve(size_t bytes)
{
	void *block;

	if (bytes > PIECE / 4) {
		block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
		return block == MAP_FAILED ? NULL : block;
	}
	if (left < bytes) {
		block = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
		if (block == MAP_FAILED)
			return NULL;
		piece = block;
		left = PIECE;
	}
	block = piece;
	piece += bytes;
	left -= bytes;
	return block;
}

void *malloc(size_t bytes)
{
	unsigned int class = 5;
	unsigned char *block;

	while (class < CLASSES && (1ull << class) - HEADER < bytes)
		class ++;
	if (class == CLASSES) {
		errno = ENOMEM;
		return NULL;
	}
	pthread_mutex_lock(&lock);
	block = (unsigned char *)lists[class];
	if (block)
		lists[class] = lists[class]->next;
	else
		block = carve(1ull << class);
	pthread_mutex_unlock(&lock);
	if (!block)
		return NULL;
	*(size_t *)block = class;
	return block + HEADER;
}

void free(void *address)
{
	struct free_block *block;
	size_t class;

	if (!address)
		return;
	block = (void *)((unsigned char *)address - HEADER);
	class = *(size_t *)(void *)block;
	pthread_mutex_lock(&lock);
	block->next = lists[class];
	lists[class] = block;
	pthread_mutex_unlock(&lock);
}

void *calloc(size_t count, size_t bytes)
{
	void *block = bytes && count > SIZE_MAX / bytes ? NULL : malloc(count * bytes);

	return block ? memset(block, 0, count * bytes) : NULL;
}

void *realloc(void *address, size_t bytes)
{
	size_t class = address ? *(size_t *)(void *)((unsigned char *)address - HEADER) : 0, old;
	void *block = malloc(bytes);

	if (!address || !block)
		return block;
	old = (1ull << class) - HEADER;
	memcpy(block, address, old < bytes ? old : bytes);
	free(address);
	return block;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lives on musl's malloc, and keeps books of what musl's slots are. usage: musl_heap [ROUNDS]
 *
 * Says "ready"; then for each line on stdin: "load" begins to allocate and free without an end in
 * another thread, "free" frees nine blocks of ten; any other does nothing. Then it prints a line of
 * JSON: its blocks, the bytes that it asked for, and those from each block to the end of its slot;
 * for the latter it follows the block's header to its group and the group's meta, as free() does.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOTS 30000

struct slot {
	unsigned char *block;
	size_t bytes;
};

static struct slot slots[SLOTS];
static uint32_t seed = 2463534242u;

static uint32_t next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void work(int rounds)
{
	for (int i = 0; i < rounds; i++) {
		struct slot *slot = &slots[next(&seed) % SLOTS];

		if (slot->block && next(&seed) % 3) {
			free(slot->block);
			slot->block = NULL;
			continue;
		}
		slot->bytes = 1 + next(&seed) % (next(&seed) % 256 ? 2000 : 300000);
		slot->block = realloc(slot->block, slot->bytes);
		memset(slot->block, 1, slot->bytes);
	}
}

static void *load(void *argument)
{
	static unsigned char *blocks[1000];
	uint32_t state = 77;

	for (;;) {
		uint32_t i = next(&state) % 1000;

		free(blocks[i]);
		blocks[i] = malloc(1 + next(&state) % 3000);
	}
	return argument;
}

static size_t slot_bytes(const unsigned char *block)
{
	static const uint16_t units[] = {
		1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   12,   15,
		18,   20,   25,   31,   36,   42,   50,   63,   72,   84,   102,  127,
		146,  170,  204,  255,  292,  340,  409,  511,  584,  682,  818,  1023,
		1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
	};
	size_t offset = *(const uint16_t *)(block - 2), bytes;

	if (block[-4])
		offset = *(const uint32_t *)(block - 8);
	const unsigned char *group = block - 16 * offset - 16;
	const uint64_t *meta = *(const uint64_t *const *)group;
	size_t mapped = (meta[4] >> 12) * 4096, index = block[-3] & 31;

	if (!(meta[4] & 31) && mapped)
		bytes = mapped - 16;
	else
		bytes = 16u * units[meta[4] >> 6 & 63];
	return (size_t)(group + 16 + (index + 1) * bytes - block);
}

static void tell(void)
{
	size_t blocks = 0, asked = 0, slot = 0, large = 0;

	for (int i = 0; i < SLOTS; i++)
		if (slots[i].block) {
			size_t offset = slot_bytes(slots[i].block);

			blocks++;
			asked += slots[i].bytes;
			slot += offset;
			large += slots[i].bytes >= 131052;
		}
	printf("{\"blocks\": %zu, \"asked\": %zu, \"slots\": %zu, \"large\": %zu}\n", blocks, asked,
	       slot, large);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char line[16];
	pthread_t thread;

	work(argc > 1 ? atoi(argv[1]) : 300000);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (line[0] == 'l')
			pthread_create(&thread, NULL, load, NULL);
		for (int i = 0; line[0] == 'f' && i < SLOTS; i++)
			if (i % 10) {
				free(slots[i].block);
				slots[i].block = NULL;
			}
		tell();
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Overwrites headers and links in malloc's heap with sizes and addresses, by a seed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 2000

int main(int argc, char **argv)
{
	unsigned int seed = argc > 1 ? (unsigned int)atoi(argv[1]) : 0, kind = seed % 3;
	static char *blocks[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = malloc((size_t)rand_r(&seed) % 3000 + 64);
	for (int i = 0; i < BLOCKS; i += 2)
		free(blocks[i]);
	for (int i = 0; i < 300; i++) {
		char *at = blocks[rand_r(&seed) % BLOCKS] - 16 + 8 * (rand_r(&seed) % 8);
		uint64_t word = kind == 0   ? (uint64_t)rand_r(&seed)
				: kind == 1 ? (uintptr_t)blocks[rand_r(&seed) % BLOCKS] - 16
					    : (uint64_t)rand_r(&seed) << 33;

		memcpy(at, &word, sizeof(word));
	}
	if (write(1, "ready\n", 6) == 6)
		pause();
	_exit(0);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "util/siphash.h"

#include <endian.h>
#include <string.h>

struct state {
	uint64_t v[4];
};

static uint64_t rotate(uint64_t word, int bits)
{
	return word << bits | word >> (64 - bits);
}

/* The first or the second half of a round: it adds a to b and c to d. */
static void half_round(struct state *s, int a, int b, int c, int d, int first, int second)
{
	s->v[a] += s->v[b];
	s->v[c] += s->v[d];
	s->v[b] = rotate(s->v[b], first) ^ s->v[a];
	s->v[d] = rotate(s->v[d], second) ^ s->v[c];
	s->v[a] = rotate(s->v[a], 32);
}

static void rounds_run(struct state *s, int count)
{
	for (int i = 0; i < count; i++) {
		half_round(s, 0, 1, 2, 3, 13, 16);
		half_round(s, 2, 1, 0, 3, 17, 21);
	}
}

static void word_add(struct state *s, uint64_t word)
{
	s->v[3] ^= word;
	rounds_run(s, 2);
	s->v[0] ^= word;
}

uint64_t siphash(const struct siphash_key *key, const void *data, size_t bytes)
{
	const uint64_t *k = key->words;
	struct state s = {{k[0] ^ 0x736f6d6570736575, k[1] ^ 0x646f72616e646f6d,
			   k[0] ^ 0x6c7967656e657261, k[1] ^ 0x7465646279746573}};
	const uint8_t *at = data;
	uint64_t word;

	for (size_t left = bytes; left >= 8; left -= 8, at += 8) {
		memcpy(&word, at, 8);
		word_add(&s, le64toh(word));
	}
	word = 0;
	memcpy(&word, at, bytes & 7);
	word_add(&s, le64toh(word) | (uint64_t)bytes << 56);
	s.v[2] ^= 0xff;
	rounds_run(&s, 4);
	return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}

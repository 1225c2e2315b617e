/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that samples its own allocations and reports them by the probes of the provider
 * otel_memory: a block of S bytes is taken with p = 1 - exp(-S / RATE) and weighs S / p. Nothing is
 * sampled while nobody listens.
 */
#ifndef OTEL_SAMPLER_H
#define OTEL_SAMPLER_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "otel_memory.h"

#define RATE     65536.0
#define SAMPLES  4096
#define NOINLINE __attribute__((noinline, noclone))

SEMAPHORE(alloc);
SEMAPHORE(free);

/* The blocks that were reported and live. */
static struct sample {
	void *address;
	size_t bytes, weight;
	int mark;
} samples[SAMPLES];
static uint64_t random_state = 88172645463325252ull;

static double random_uniform(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (double)(random_state >> 11) * 0x1p-53;
}

/* Has the block been taken? Then it is in the list, and *weight is set. */
static inline int sample_take(void *address, size_t bytes, int mark, size_t *weight)
{
	double chance = 1 - exp(-(double)bytes / RATE);
	int i = 0;

	if (!otel_memory_alloc_semaphore || !address || random_uniform() >= chance)
		return 0;
	while (i < SAMPLES && samples[i].address)
		i++;
	if (i == SAMPLES)
		return 0;
	*weight = (size_t)((double)bytes / chance);
	samples[i] = (struct sample){address, bytes, *weight, mark};
	return 1;
}

static inline int sample_drop(void *address)
{
	for (int i = 0; address && i < SAMPLES; i++)
		if (samples[i].address == address) {
			samples[i].address = NULL;
			return 1;
		}
	return 0;
}

/* The bytes and blocks that the live samples of a mark stand for, and how many samples they are. */
static inline void samples_sum(int mark, size_t *bytes, double *blocks, int *count)
{
	*bytes = 0;
	*blocks = 0;
	*count = 0;
	for (int i = 0; i < SAMPLES; i++) {
		if (!samples[i].address || samples[i].mark != mark)
			continue;
		*bytes += samples[i].weight;
		*blocks += (double)samples[i].weight / (double)samples[i].bytes;
		(*count)++;
	}
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the cyclic garbage collector of each interpreter: whether it runs, and what it does
 * not free. Its place is that of the table or near it, since releases differ, and is recognised by
 * its lists: each object of a list leads back to the one before it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proc/memory.h"
#include "runtime/cpython/offsets.h"

#define COLLECTORS_MAX        1024u
#define COLLECTOR_GENERATIONS 3u

struct collector {
	uint64_t state;            /* address of its struct _gc_runtime_state */
	uint64_t young, permanent; /* addresses of its first generation and of the permanent one */
	/* 0: it is switched off, or its first threshold is 0: it runs when the program asks */
	int runs;
	uint64_t kept; /* address of the list gc.garbage; 0: none */
};

struct collectors {
	struct collector *entries; /* of the interpreters whose state was found */
	size_t count;
	bool cut; /* there may be further interpreters */
};

/* Of one generation; what it did is since the interpreter began. */
struct collector_generation {
	uint64_t objects; /* that are in it; 0 without the GIL: its lists are not used */
	/* It is collected when the count is above the threshold; 0: never by itself. */
	int32_t threshold, count;
	uint64_t collections, collected, uncollectable; /* the latter two: objects */
	double seconds;                                 /* NAN: not known, before 3.15 */
};

/* What gc.get_threshold(), get_count(), get_stats() and get_freeze_count() would say. */
struct collector_figures {
	bool enabled, collecting;
	struct collector_generation generations[COLLECTOR_GENERATIONS]; /* the youngest first */
	uint64_t frozen;                                                /* objects */
};

/* What collectors are read from: an image, or the memory of a process that runs. */
struct collector_source {
	/* Whether all of the bytes at the address could be read. */
	bool (*read)(void *context, uint64_t address, void *out, size_t bytes);
	void *context;
	const struct python_offsets *offsets;
	uint64_t runtime, interpreters; /* addresses of _PyRuntime, of the newest interpreter */
};

/*
 * Of a process's memory; space and offsets are borrowed. Once the process has ended, all figures
 * are 0.
 */
struct collector_source collector_source_space(struct space *space,
					       const struct python_offsets *offsets,
					       uint64_t runtime, uint64_t interpreters);
/*
 * Those of the newest interpreters, `most` of them at most. 0, -ENOMEM. The caller frees with
 * collectors_free(), also after a failure.
 */
int collectors_read(struct collectors *out, const struct collector_source *source, uint32_t most);
/* How many of them do not run by themselves. */
size_t collectors_off(const struct collectors *collectors);
void collectors_free(struct collectors *collectors);
/* Its figures without those that its lists tell: objects and frozen are 0. */
void collector_figures_read(const struct collector *collector,
			    const struct collector_source *source, struct collector_figures *out);
/* The link of a list, or of an object on it, that is at an address; 0: it is not there. */
uint64_t collector_link(const struct collector_source *source, uint64_t address);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the cyclic garbage collector of each interpreter: whether it runs, and what it does
 * not free. Its place is that of the table or near it, since releases differ, and is recognised by
 * its lists: each object of a list leads back to the one before it. Pure.
 */
#pragma once

#include "inspect/graph/image.h"

#define COLLECTORS_MAX 1024u

struct collector {
	uint64_t young, permanent; /* addresses of its first generation and of the permanent one */
	/* 0: it is switched off, or its first threshold is 0: it runs when the program asks */
	int runs;
	uint64_t kept; /* address of the list gc.garbage; 0: none */
};

struct collectors {
	struct collector *entries; /* of the interpreters whose state was found */
	size_t count;
};

/* 0, -ENOMEM. The caller frees with collectors_free(), also after a failure. */
int collectors_read(struct collectors *out, const struct image *image);
/* How many of them do not run by themselves. */
size_t collectors_off(const struct collectors *collectors);
void collectors_free(struct collectors *collectors);

/*
 * Visits the objects that gc.freeze() has put aside, by address, until visit returns not 0, which
 * it returns. Without the GIL there are none.
 */
typedef int (*collector_fn)(void *context, uint64_t object);
int collector_each_frozen(const struct collector *collector, const struct image *image,
			  collector_fn visit, void *context);
/* The same for each of its lists: what ends one does not end the others. */
void collector_each_list(const struct collector *collector, const struct image *image,
			 collector_fn visit, void *context);

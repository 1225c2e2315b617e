/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunks of glibc's malloc in an image, without its variables. A heap's chunks follow each
 * other from its start on: where it can be followed, they are known exactly. Elsewhere a block has
 * a chunk if the words in front of it look like a header, and those behind it, too. Pure.
 */
#pragma once

#include "inspect/graph/image.h"

/* Of a segment: its chunks up to an offset. */
struct chunks_heap {
	uint64_t *heads; /* a bit for each 16 bytes: a chunk begins there; NULL: nothing is known */
	uint64_t from, until; /* offsets: all chunks between them are known */
};

struct chunks {
	const struct image *image;
	struct chunks_heap *heaps; /* by segment */
};

/* 0, -ENOMEM. The image is borrowed. The caller frees with chunks_free(), also after a failure. */
int chunks_read(struct chunks *out, const struct image *image);
void chunks_free(struct chunks *chunks);
/* Usable bytes of the block that begins at address, if its chunk is in use; 0: there is none. */
uint64_t chunks_bytes(const struct chunks *chunks, uint64_t address);

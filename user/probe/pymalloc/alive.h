/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which functions of a rewritten file are used. A tool that optimises a linked file (BOLT) moves
 * functions into a section of its own and leaves the old section as it was. Some functions of the
 * old section are still used; the others are originals of functions that were moved. The originals
 * have the same shapes as the functions that run, and differ only in that nothing refers to them.
 * Internal to the analysis of inlined allocators.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "object/insn/insn.h"
#include "probe/pymalloc/sites.h"

#define INLINE_DEAD 0xcc /* int3: overwrites code that does not run */

struct inline_alive {
	const struct inline_image *image; /* text and starts */
	struct inline_range old;          /* the part of text whose functions were moved */
	struct inline_decoder decoder;
	uint8_t *reached; /* for each start: something refers to it */
	size_t *pending;  /* starts in old that were reached, but not yet searched */
	size_t pending_count;
};

/*
 * image is borrowed. Searches all code of its text but the old part. 0 or -ENOMEM;
 * inline_alive_close() releases, also after a failure.
 */
int inline_alive_open(struct inline_alive *alive, const struct inline_image *image,
		      const struct inline_range *old);
void inline_alive_close(struct inline_alive *alive);
/* Marks the functions that words of data point to. */
void inline_alive_data(struct inline_alive *alive, const struct inline_range *data);
/*
 * Marks what the marked functions refer to. Then overwrites the other functions of the old part
 * with INLINE_DEAD in text, which is the image's.
 */
void inline_alive_finish(struct inline_alive *alive, uint8_t *text);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which functions of a rewritten file are alive. A tool that optimises a linked file (BOLT) moves
 * functions into a section of its own and leaves the old one as it was: some of what is there is
 * still used, the rest are originals of what has moved. Those have the same shapes as the functions
 * that run, and nothing tells them apart but that nothing leads to them. Internal to the analysis
 * of inlined allocators.
 */
#ifndef TRACER_PYMALLOC_ALIVE_H
#define TRACER_PYMALLOC_ALIVE_H

#include <stddef.h>
#include <stdint.h>

#include "pymalloc/sites.h"
#include "x86/insn.h"

#define INLINE_DEAD 0xcc /* int3: what stands in place of code that does not run */

struct inline_alive {
	const struct inline_image *image; /* text and starts */
	struct inline_range old;          /* the part of text that others have taken the place of */
	struct inline_decoder decoder;
	uint8_t *reached; /* for each start: something leads to it */
	size_t *todo;     /* starts in old that were reached, but not looked at */
	size_t todo_count;
};

/*
 * image is borrowed. Looks at all code of its text but the old part's. 0 or -ENOMEM;
 * inline_alive_close() releases, also after a failure.
 */
int inline_alive_open(struct inline_alive *alive, const struct inline_image *image,
		      const struct inline_range *old);
void inline_alive_close(struct inline_alive *alive);
/* What the words of data lead to is alive. */
void inline_alive_data(struct inline_alive *alive, const struct inline_range *data);
/*
 * What living functions lead to is, too. Then the others of the old part are overwritten with
 * INLINE_DEAD in text, which is the image's.
 */
void inline_alive_finish(struct inline_alive *alive, uint8_t *text);

#endif

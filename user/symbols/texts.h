/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of cached names: printable, and each is kept once. */
#ifndef TRACER_SYMBOLS_TEXTS_H
#define TRACER_SYMBOLS_TEXTS_H

#include "symbols/symbols_state.h"

/* Keeps the printable form of a text. *out is borrowed. 0, -ENOMEM, -EDQUOT. */
int texts_keep(struct symbols *symbols, const char *text, const char **out);
/* The same for a place in a file: "[libfoo.so+0x1234]". */
int texts_keep_location(struct symbols *symbols, const char *path, uint64_t offset,
			const char **out);
/* Clears all cached names and their texts. 0; on failure the texts are still there. */
int texts_forget(struct symbols *symbols);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a worker about an address in a file, and handles a worker that ends before it answers. */
#ifndef TRACER_SYMBOLS_LOOKUP_H
#define TRACER_SYMBOLS_LOOKUP_H

#include "symbols/symbols_state.h"

/*
 * The frames at vaddr of a file that was read (file_read()), innermost first, from its DWARF.
 * symbol names the outermost frame if the DWARF does not. Texts are borrowed until the next call;
 * "": unknown. Returns the number of frames; 0: nothing is known beyond symbol, which needs no
 * demangling or cannot be demangled; -EAGAIN: no answer by until_ns, and the next question must be
 * the same.
 */
int lookup_frames(struct symbols *symbols, struct file *file, uint64_t vaddr, const char *symbol,
		  uint64_t until_ns, struct worker_frame frames[WORKER_FRAMES_MAX]);

/*
 * The name of the function symbol at vaddr of such a file, as in its tables; "" for none. *name is
 * borrowed until the next call. 0; -EAGAIN, as above.
 */
int lookup_symbol(struct symbols *symbols, struct file *file, uint64_t vaddr, uint64_t until_ns,
		  const char **name);
/* Drops a question whose answer is no longer needed: of lookup_symbol(); of either. */
void lookup_symbol_abandon(struct symbols *symbols);
void lookup_abandon(struct symbols *symbols);

#endif

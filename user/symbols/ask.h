/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the worker about a place in a file, and what is done when it ends over the question. */
#ifndef TRACER_SYMBOLS_ASK_H
#define TRACER_SYMBOLS_ASK_H

#include "symbols/symbols_state.h"

/*
 * The frames at vaddr of a file that was read (file_read()), innermost first, from its DWARF, the
 * outermost called by symbol where that says nothing; texts are borrowed until the next call. ""
 * for what is not known. Their number, 0: no more is known than symbol, which needs no demangling
 * or cannot be demangled; -EAGAIN: no answer has come until until_ns, and the next question is to
 * be the same.
 */
int ask_frames(struct symbols *symbols, struct file *file, uint64_t vaddr, const char *symbol,
	       uint64_t until_ns, struct worker_frame frames[WORKER_FRAMES_MAX]);

/*
 * The name of the function symbol at vaddr of such a file, as it stands in its tables; "" for none.
 * *name is borrowed until the next call. 0; -EAGAIN, as above.
 */
int ask_symbol(struct symbols *symbols, struct file *file, uint64_t vaddr, uint64_t until_ns,
	       const char **name);
/* Nobody waits for the answer any more. */
void ask_symbol_abandon(struct symbols *symbols);

#endif

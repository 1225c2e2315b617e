/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for native return addresses: {function, file, line}, with what was inlined there.
 *
 * An address is a place in a file; what is found there is kept, for all processes that map the
 * file. In this order: DWARF (the file's own, its debug file's on this machine, in the process's
 * root or in the cache of debuginfod's clients), ELF symbols (of the same files) that cover the
 * address, the process's perf map where code is in no file, and else "[libfoo.so+0x1234]" with the
 * offset in the file, "[vdso]", "[anon]". Nothing is taken for a function because it happens to be
 * the nearest. C++ and Rust names are demangled.
 *
 * Files and names are the target's. DWARF and mangled names are read in a process of our own
 * (worker.h): a file that costs it too much or brings it down is from then on one without DWARF,
 * which is counted. Nobody has to wait for it.
 *
 * Memory grows with the number of different addresses that were asked for, about 150 bytes each.
 */
#ifndef TRACER_SYMBOLS_SYMBOLS_H
#define TRACER_SYMBOLS_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#include "symbols/modules.h"

#define SYMBOLS_FRAMES_MAX 64u   /* at one address */
#define SYMBOLS_TEXT_MAX   1024u /* bytes of a name, with the NUL; the rest is cut off */

struct account;
struct symbols;

/*
 * UTF-8 without control characters: those, and what is none, are \xNN. Borrowed until
 * symbols_free().
 */
struct symbols_frame {
	const char *function; /* never empty */
	const char *
		/* of the source where DWARF says it, else of the module, or the module's "[...]" */
		filename;
	uint32_t line;    /* 0: not known */
	uint32_t inlined; /* 1: into the next frame */
};

struct symbols_stats {
	uint64_t addresses;       /* different places asked for in files */
	uint64_t unnamed;         /* of those, without a function's name */
	uint64_t cut;             /* calls that had more frames than room */
	uint32_t files;           /* held open */
	uint32_t dwarf_given_up;  /* files whose DWARF cost too much or ended the worker */
	uint32_t names_given_up;  /* files of which a mangled name did */
	uint32_t tables_given_up; /* files of which not all symbols could be read */
	uint32_t worker_starts;
};

/* Forks the workers: best done while the process is small. 0; -ENOMEM; -errno. */
int symbols_new(struct symbols **out);
/*
 * What is remembered is charged to an account, borrowed until symbols_free(). Names and places of
 * files, whoever maps them, have an eighth of its limit: then all is forgotten, and asked for
 * again. Each perf map has an account of its own with the share of a process, so that whoever
 * writes one does not have the others' memory. The symbol tables of files come on top, in another
 * process: an eighth of its limit, and one file.
 */
int symbols_new_in(struct symbols **out, struct account *account);
void symbols_free(struct symbols *symbols); /* all modules first */
/*
 * What one process's names may cost: so much CPU time, ours and the worker's. However slowly its
 * files are read, the names of others come.
 */
struct symbols_share;

int symbols_share_new(struct symbols_share **out, uint64_t max_ns); /* 0, -ENOMEM */
void symbols_share_free(struct symbols_share *share);

struct symbols_ask {
	uint64_t until_ns;           /* CLOCK_MONOTONIC: no longer is waited for the worker */
	struct symbols_share *share; /* NULL: none */
};

/*
 * The frames at a return address, innermost first, at most room of them (the outer ones are left
 * out). It is looked up one byte before, in the call; for an instruction's own address pass one
 * more. ask NULL: as long as it takes. Their number, at least 1; 0: the address is in none of the
 * modules, which may be out of date; -ENOMEM; -EDQUOT: there is no room for the names; -EAGAIN: it
 * is not known yet, and while the worker is still at it is best asked again, with other work
 * between; -ETIME: the share is used up. What was resolved before is borrowed until the next call.
 *
 * The first look at a file takes the worker up to a second if its DWARF is large; a hostile one is
 * given up when all looks at it have cost 10 s. To be called where the modules were taken, not in a
 * fork of it that has closed the files: what was asked for before is known there all the same.
 */
int symbols_resolve(struct symbols *symbols, const struct modules *modules, uint64_t address,
		    const struct symbols_ask *ask, struct symbols_frame frames[], size_t room);
/*
 * The same ahead of time, so that it is known when it is wanted; places in no file are left, since
 * who makes code may name it later. 0; -EAGAIN, -ETIME, -ENOMEM.
 */
int symbols_prepare(struct symbols *symbols, const struct modules *modules, uint64_t address,
		    const struct symbols_ask *ask);
/*
 * What can be said nearly at once: one frame, of the file's symbols if those were read, else by the
 * place. 1; 0; -ENOMEM. Who reads the symbols is waited for until it has let one question wait for
 * half a second.
 */
int symbols_resolve_plain(struct symbols *symbols, const struct modules *modules, uint64_t address,
			  struct symbols_frame *frame);
/* The CPU time of the processes that have read DWARF and symbols for us, so far. */
uint64_t symbols_worker_ns(const struct symbols *symbols);
/* Is it one of those? */
int symbols_is_worker(const struct symbols *symbols, pid_t pid);
void symbols_stats(const struct symbols *symbols, struct symbols_stats *out);

#endif

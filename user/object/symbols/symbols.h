/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbolises native return addresses: {function, file, line} and the functions inlined there.
 *
 * An address is resolved to {file, offset}, and the result is cached for all processes that map the
 * file. Sources, in this order: DWARF (of the file, or of its debug file on this machine, in the
 * process's root or in the cache of debuginfod clients), ELF symbols of the same files and of
 * .gnu_debugdata that cover the address, the process's perf map for code outside files, and
 * otherwise "[libfoo.so+0x1234]" with the offset in the file, "[vdso]", "[anon]". The nearest
 * symbol is never used unless it covers the address. C++ and Rust names are demangled.
 *
 * Files and names come from the target. DWARF and mangled names are read in a separate process
 * (worker.h). A file that takes too long or crashes that process is treated as one without DWARF
 * from then on, which is counted. Callers need not wait for an answer.
 *
 * Memory grows with the number of distinct addresses looked up, about 150 bytes each.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "object/elf/elf_file.h"
#include "object/symbols/modules.h"

#define SYMBOLS_FRAMES_MAX 64u   /* at one address */
#define SYMBOLS_TEXT_MAX   1024u /* bytes of a name, with the NUL; the rest is cut off */

struct account;
struct symbols;

/*
 * Texts are UTF-8; control characters and invalid bytes are written as \xNN. Borrowed until
 * symbols_free().
 */
struct symbols_frame {
	const char *function; /* never empty */
	/* the source file if DWARF has it, else the module's file or its "[...]" */
	const char *filename;
	uint32_t line;    /* 0: not known */
	uint32_t inlined; /* 1: inlined into the next frame */
};

struct symbols_stats {
	uint64_t addresses;       /* distinct {file, offset} looked up */
	uint64_t unnamed;         /* of those, without a function name */
	uint64_t cut;             /* calls with more frames than capacity */
	uint32_t files;           /* held open */
	uint32_t dwarf_given_up;  /* files whose DWARF took too long or ended the worker */
	uint32_t names_given_up;  /* files with a mangled name that did so */
	uint32_t tables_given_up; /* files whose symbols could not all be read */
	uint32_t worker_starts;
};

/* Forks the workers: call it while the process is small. 0; -ENOMEM; -errno. */
int symbols_new(struct symbols **out);
/*
 * The same, with caches charged to an account, which is borrowed until symbols_free(). Cached
 * results for files may use an eighth of its limit; beyond it the cache is cleared and results are
 * looked up again. Each perf map has its own account with the share of a process, so that the
 * writer of one map cannot use the memory of others. The symbol tables of files are extra, in
 * another process: an eighth of the limit, plus one file.
 */
int symbols_new_in(struct symbols **out, struct account *account);
void symbols_free(struct symbols *symbols); /* free all modules first */
/*
 * From now on debug files that are on no path of this machine are fetched from debuginfod servers,
 * as in $DEBUGINFOD_URLS. Forks a process that may use the network. 0; errors as fetch_new().
 */
int symbols_fetch_from(struct symbols *symbols, const char *urls);
/*
 * CPU time limit for one process's names, ours and the worker's. Slow files of one process do not
 * delay the names of others beyond it.
 */
struct symbols_share;

int symbols_share_new(struct symbols_share **out, uint64_t max_ns); /* 0, -ENOMEM */
void symbols_share_free(struct symbols_share *share);

struct symbols_ask {
	uint64_t until_ns;           /* CLOCK_MONOTONIC: limit of the wait for the worker */
	struct symbols_share *share; /* NULL: none */
};

/*
 * The frames at a return address, innermost first; at most capacity, the outer ones are left out.
 * The look-up uses the byte before it, which is in the call; for an instruction's own address pass
 * one more. ask NULL: waits as long as needed. Returns the number of frames, at least 1; 0: the
 * address is in no module, or the modules are out of date; -ENOMEM; -EDQUOT: the names do not fit;
 * -EAGAIN: not known yet, ask again after other work; -ETIME: the share is used up. Frames are
 * borrowed until the next call.
 *
 * The first look-up in a file with large DWARF takes the worker up to a second; a hostile file is
 * given up after 10 s in total. Call it in the process that took the modules, not in a fork of it
 * that has closed the files; cached results are available there too.
 */
int symbols_resolve(struct symbols *symbols, const struct modules *modules, uint64_t address,
		    const struct symbols_ask *ask, struct symbols_frame frames[], size_t capacity);
/* What is mapped at an address. Texts are borrowed from the modules. */
struct symbols_binary {
	const char *path;     /* or "[...]" */
	const char *build_id; /* in hex; "": it has none */
	/* of an ELF file, where the address is; limit 0: it is none, or cannot be read */
	struct elf_segment segment;
};

/* The file that is mapped at a return address. False: the address is in no module. */
bool symbols_binary(const struct modules *modules, uint64_t address, struct symbols_binary *out);
/*
 * Resolves an address ahead of time. Addresses outside files are skipped, since a JIT may name its
 * code later. 0; -EAGAIN, -ETIME, -ENOMEM.
 */
int symbols_prepare(struct symbols *symbols, const struct modules *modules, uint64_t address,
		    const struct symbols_ask *ask);
/*
 * Resolves an address quickly: one frame, from the file's symbols if they were read, else
 * "[libfoo.so+0x1234]". 1; 0: in no module; -ENOMEM. The symbol worker is waited for until one
 * question has taken half a second.
 */
int symbols_resolve_plain(struct symbols *symbols, const struct modules *modules, uint64_t address,
			  struct symbols_frame *frame);
/*
 * Drops the question that has no answer yet, so that the next one need not wait for it. What the
 * workers have read of files is lost.
 */
void symbols_abandon(struct symbols *symbols);
/* CPU time of all workers so far, ns. */
uint64_t symbols_worker_ns(const struct symbols *symbols);
/* Whether pid is a worker. */
bool symbols_is_worker(const struct symbols *symbols, pid_t pid);
void symbols_stats(const struct symbols *symbols, struct symbols_stats *out);

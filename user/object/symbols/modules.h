/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executable memory of a process and the files behind it: a snapshot, or kept up to date by
 * modules_map(). A snapshot reads the maps once and opens files that were not seen before in any
 * process.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct symbols;
struct file;
struct jit_map;
struct process_map;

#define MODULES_JIT_MAX 4 /* perf maps and jitdumps of a process */

struct module {
	uint64_t start, end; /* addresses */
	uint64_t offset;     /* in the file */
	uint32_t device_major, device_minor;
	uint64_t inode;
	/*
	 * as the kernel shows it, including " (deleted)"; "[vdso]", "[anon]" and so on for memory
	 * without a file
	 */
	char *path;
	struct file *file; /* NULL: none, or not accessible */
	int file_err;      /* error of opening it; 0 for memory without a file */
};

struct modules {
	struct symbols *symbols;
	pid_t pid;
	struct module *entries; /* in address order */
	size_t count, capacity;
	/* entries whose file could not be opened: their addresses have no names */
	size_t refused;
	/*
	 * Files that name its code outside of files. Its own ones come before those of the process
	 * that has forked it.
	 */
	struct jit_map *jit[MODULES_JIT_MAX];
	size_t jit_count, jit_own;
};

/*
 * Takes a snapshot. The caller frees it, before symbols_free(). 0; -ESRCH; -EPERM; -E2BIG; -ENOMEM;
 * -errno.
 */
int modules_new(struct modules **out, struct symbols *symbols, pid_t pid);
/*
 * The same for a process that has nothing mapped yet; modules_map() adds what it maps. 0, -ENOMEM.
 */
int modules_begin(struct modules **out, struct symbols *symbols, pid_t pid);
/*
 * Records a new executable map and drops earlier ones at its addresses. The process may have ended.
 * 0, -ENOMEM.
 */
int modules_map(struct modules *modules, const struct process_map *map);
/* The modules of a forked child, copied from its parent's. 0, -ENOMEM. */
int modules_copy(struct modules **out, const struct modules *from, pid_t pid);
void modules_free(struct modules *modules);
/*
 * Looks again for files that name the code of a process that runs: it may have begun to write one.
 * 0; -ENOENT: there is none; -errno.
 */
int modules_jit_look(struct modules *modules);
/* Takes the files that name code from a process's other modules, or from its parent's. */
void modules_jit_share(struct modules *modules, const struct modules *from);
/* Is this code outside of files, of which no file of the process is known that names it? */
int modules_jit_missing(const struct modules *modules, const struct module *module);
/* The entry that contains an address; NULL: none. */
const struct module *modules_find(const struct modules *modules, uint64_t address);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a process's memory was executable, and from which files: at one moment, or as it was
 * mapped, if somebody tells. To take it costs a reading of the maps, and the opening of files that
 * were not seen before in any process.
 */
#ifndef TRACER_SYMBOLS_MODULES_H
#define TRACER_SYMBOLS_MODULES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct symbols;
struct file;
struct jit_map;
struct process_map;

struct module {
	uint64_t start, end; /* addresses */
	uint64_t offset;     /* in the file */
	uint32_t device_major, device_minor;
	uint64_t inode;
	/*
	 * as the kernel shows it, " (deleted)" included; "[vdso]", "[anon]" and such for what is no
	 * file
	 */
	char *path;
	struct file *file; /* NULL: none, or not to be had */
	int file_err;      /* why not; 0 for what is no file */
};

struct modules {
	struct symbols *symbols;
	pid_t pid;
	struct module *entries; /* in address order */
	size_t count, room;
	/* entries whose file was not to be had: their addresses stay without names */
	size_t refused;
	struct jit_map *jit; /* NULL: no code outside files, or no perf map of it */
};

/* The caller frees them, before symbols_free(). 0; -ESRCH; -EPERM; -E2BIG; -ENOMEM; -errno. */
int modules_new(struct modules **out, struct symbols *symbols, pid_t pid);
/*
 * The same of a process that has nothing mapped yet; what it maps, modules_map() is told of. 0,
 * -ENOMEM.
 */
int modules_begin(struct modules **out, struct symbols *symbols, pid_t pid);
/*
 * Memory is executable from here on; what was known of those addresses is past. The process may be
 * gone. 0, -ENOMEM.
 */
int modules_map(struct modules *modules, const struct process_map *map);
/* Of a child that was forked: what its parent has mapped. 0, -ENOMEM. */
int modules_copy(struct modules **out, const struct modules *from, pid_t pid);
void modules_free(struct modules *modules);
/* The entry that holds an address; NULL. */
const struct module *modules_find(const struct modules *modules, uint64_t address);

#endif

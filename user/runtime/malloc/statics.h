/* SPDX-License-Identifier: Apache-2.0 */
/* Static variables of mapped files, which are searched for structures of allocators. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process_map;
struct process_maps;
struct space;

/* The writable maps of a file, and the anonymous memory behind them (.bss). */
struct statics {
	uint64_t start, end;
	const struct process_map *file; /* its first writable map; borrowed from the maps */
};

/* The first one from maps->entries[*at] on; *at is moved behind it. Whether there is one. */
bool statics_next(const struct process_maps *maps, size_t *at, struct statics *out);
/* Are they of the file of a map? */
bool statics_is_of(const struct statics *statics, const struct process_map *map);
/* The name of a file without its folders. */
const char *statics_file_name(const struct statics *statics);

/*
 * The text of the constants (.rodata) of a mapped file, the first `most` bytes of it, and a NUL. 0;
 * -errno. The caller frees *out.
 */
#define STATICS_TEXT (1u << 20) /* enough of a library */
int statics_constants(pid_t pid, const struct process_map *map, size_t most, char **out,
		      size_t *bytes);

#define STATICS_OVERLAP 1024u

/*
 * Takes bytes that were copied from an address, a multiple of 4096; pages that are not in memory
 * are zeros. The last STATICS_OVERLAP bytes come again, with those behind them. Returns non-zero to
 * stop.
 */
typedef int (*statics_fn)(uint64_t address, const uint8_t *bytes, size_t size, void *context);

/*
 * Shows all that was written to, at most 64 MiB of it. 0; what look() returned; -ESRCH; -EPERM;
 * -ENOMEM.
 */
int statics_search(struct space *space, const struct statics *statics, statics_fn look,
		   void *context);

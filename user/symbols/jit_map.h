/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perf map of a process that has code outside files: /tmp/perf-PID.map in its root, named by
 * its innermost PID. It is held open, read at the first look-up, and read further when it has
 * grown. The module snapshots of a process share it.
 */
#ifndef TRACER_SYMBOLS_JIT_MAP_H
#define TRACER_SYMBOLS_JIT_MAP_H

#include <stdint.h>
#include <sys/types.h>

struct account;
struct jit_map;

/*
 * Gets the map of a process from a list that is NULL at first and holds each map once. Each map has
 * an account below the given one, which may be NULL. 0; -ENOENT: none; -errno.
 */
int jit_map_get(struct jit_map **list, struct jit_map **out, pid_t pid, struct account *account);
/* Releases a map; NULL is legal. */
void jit_map_put(struct jit_map **list, struct jit_map *map);
/* The name of the code at an address, borrowed until the next call; NULL: none. */
const char *jit_map_find(struct jit_map *map, uint64_t address);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perf map of a process with code that is in no file: /tmp/perf-PID.map in its root, under its
 * innermost id. It is held open, read when an address is first looked up in it, and read on when it
 * has grown. The snapshots of a process's modules share it.
 */
#ifndef TRACER_SYMBOLS_JIT_MAP_H
#define TRACER_SYMBOLS_JIT_MAP_H

#include <stdint.h>
#include <sys/types.h>

struct account;
struct jit_map;

/*
 * A list of them, NULL at first, in which each is once. Each has an account below the one given,
 * which may be NULL. 0; -ENOENT none; -errno.
 */
int jit_map_get(struct jit_map **list, struct jit_map **out, pid_t pid, struct account *account);
/* NULL is allowed. */
void jit_map_put(struct jit_map **list, struct jit_map *map);
/* The name of the code at an address, borrowed until the next call; NULL: none. */
const char *jit_map_find(struct jit_map *map, uint64_t address);

#endif

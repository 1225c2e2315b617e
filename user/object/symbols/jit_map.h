/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files in which a process names its code outside of files: its perf map, /tmp/perf-PID.map in
 * its root, named by its innermost PID, and jitdumps. Each is held open, read at the first look-up,
 * and read further when it has grown. The module snapshots of a process share it.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct account;
struct jit_map;

/*
 * Gets the perf map of a process from a list that is NULL at first and holds each file once. Each
 * has an account below the given one, which may be NULL. 0; -ENOENT: none; -errno.
 */
int jit_map_get(struct jit_map **list, struct jit_map **out, pid_t pid, struct account *account);
/* The same for an open jitdump. Takes ownership of fd, also on failure. 0, -errno. */
int jit_map_get_dump(struct jit_map **list, struct jit_map **out, int fd, struct account *account);
/* One user more, who puts it. */
void jit_map_share(struct jit_map *map);
/* Releases a map; NULL is legal. */
void jit_map_put(struct jit_map **list, struct jit_map *map);
/* The name of the code at an address, borrowed until the next call; NULL: none. */
const char *jit_map_find(struct jit_map *map, uint64_t address);

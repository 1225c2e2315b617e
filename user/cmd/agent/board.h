/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which containers run on the machine, in memory that the agent shares with the web server and the
 * sender: these have not the rights to read the runtimes' state. The agent alone writes it. Whoever
 * has taken over one of the others could write it too, so nobody trusts a number or text of it.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cmd/agent/figures.h"
#include "proc/container/cgroup.h"

#define BOARD_MAX 1024u

/* Texts are those of figure_text(). */
struct board_container {
	char id[CGROUP_ID_SIZE];     /* "": the process is in no container */
	char label[FIGURE_TEXT + 1]; /* as container_names_find() */
	char name[FIGURE_TEXT + 1], namespace[FIGURE_TEXT + 1], pod[FIGURE_TEXT + 1]; /* "": none */
};

struct board {
	_Atomic uint32_t version; /* odd while it is being written */
	_Atomic uint32_t count;
	struct board_container items[BOARD_MAX];
};

/* Memory that later forks share; NULL: there is none. It stays until the process ends. */
struct board *board_new(void);
/* Reads the runtimes' state. If it cannot be read, the board stays as it is. */
void board_update(struct board *board);
/* Is the process in a container that is not on the board? For the process that updates it. */
bool board_lacks(const struct board *board, pid_t pid);
/* The container of a process. One that is not on the board has an id and label only. */
void board_find(const struct board *board, pid_t pid, struct board_container *out);

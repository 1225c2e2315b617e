/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the containers that processes are in, from a list that is cached. */
#pragma once

#include "proc/container/container.h"

/* Zero-initialise. */
struct container_names {
	struct container_list list;
	uint64_t read_ns; /* when it was read; 0: not yet */
};

/* The label of a process's container, or 12 digits of its id; "": it is in none. */
void container_names_find(struct container_names *names, pid_t pid, char *out, size_t capacity);
void container_names_free(struct container_names *names);

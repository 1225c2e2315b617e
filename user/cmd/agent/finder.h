/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes run Python, found by a process of the agent's own that may only read: maps and
 * ELF files of every process of the machine are what others have written.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Zero-initialise: the process starts with the first question, and again if it has ended. */
struct python_finder {
	pid_t child; /* 0: none */
	int socket;
};

/*
 * Does the process run Python now? No, also if that cannot be read, or not within FINDER_MS: a file
 * system may hang.
 */
bool finder_has_python(struct python_finder *finder, pid_t pid);
void finder_end(struct python_finder *finder);
#define FINDER_MS 5000

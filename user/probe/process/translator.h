/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that do not run a process's code, but copies that they make of it (valgrind,
 * DynamoRIO). They copy breakpoints, too. The kernel knows no probe in a copy, and the process is
 * killed by SIGTRAP.
 */
#pragma once

#include <sys/types.h>

/* The name of the translator that has this file, as a path of a map; NULL: none. Pure. */
const char *translator_of(const char *path);
/* 0: no translator is mapped in the process, or its maps cannot be read; -ENOTSUP (error_set()). */
int translator_check(pid_t pid);

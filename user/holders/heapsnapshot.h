/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of Chrome DevTools' heap snapshots, for its Memory panel and tools that read it. Nodes
 * are objects, named after their types; edges have the names of attributes and variables, and
 * numbers in place of keys: no content of a text is written.
 */
#ifndef TRACER_HOLDERS_HEAPSNAPSHOT_H
#define TRACER_HOLDERS_HEAPSNAPSHOT_H

#include <stdio.h>

#include "holders/paths.h"

/* 0; -ENOMEM. Errors of writing are left in ferror(out). */
int heapsnapshot_write(const struct paths *paths, FILE *out);

#endif

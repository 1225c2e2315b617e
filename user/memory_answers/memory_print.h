/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what `tracer memory` has read, on stdout. */
#ifndef TRACER_MEMORY_ANSWERS_MEMORY_PRINT_H
#define TRACER_MEMORY_ANSWERS_MEMORY_PRINT_H

#include "container/memory_usage.h"
#include "memory/memory.h"
#include "report/report.h"

/* usage: of its cgroup; NULL: none is visible. opts: top (children of a node), tables, brief. */
void memory_print_text(const struct memory_report *report, const struct memory_usage *usage,
		       const struct report_opts *opts);
/* One object on one line: the root of the tree, with further members. */
void memory_print_json(const struct memory_report *report, const struct memory_usage *usage);
/* A line per node: its path, with the names joined by " / ", and its figures. */
void memory_print_csv(const struct memory_report *report);

#endif

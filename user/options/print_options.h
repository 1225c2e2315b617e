/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a command for programs: shells complete them (completions/). */
#ifndef TRACER_OPTIONS_PRINT_OPTIONS_H
#define TRACER_OPTIONS_PRINT_OPTIONS_H

#include <argp.h>
#include <stdio.h>

/* As the only argument of a command, it prints that instead of running. */
#define PRINT_OPTIONS "--print-options"

/*
 * A line for each option of the table and of its children: "--name", "-n" or "", the name of its
 * argument or "", and what it does, separated by tabs.
 */
void options_print(const struct argp *argp, FILE *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the options of `tracer trace` go together. Included by user/options/ only. */
#ifndef TRACER_OPTIONS_TRACE_CHECKS_H
#define TRACER_OPTIONS_TRACE_CHECKS_H

#include "options/trace_options.h"

/* Each: 0, or EXIT_USAGE after a message: the targets; the mode and the layers; the files. */
int trace_options_targets(const struct trace_options *options);
int trace_options_modes(const struct trace_options *options);
int trace_options_files(const struct trace_options *options);
/* Takes the argument of --window: two numbers of milliseconds. */
error_t trace_options_window(struct trace_options *options, const char *arg);

#endif

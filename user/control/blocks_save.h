/* SPDX-License-Identifier: Apache-2.0 */
/* Writes which line allocated each live block of a process: what saver.h's child does. */
#ifndef TRACER_CONTROL_BLOCKS_SAVE_H
#define TRACER_CONTROL_BLOCKS_SAVE_H

#include <stddef.h>

struct trace;

/*
 * Writes a file of blocks/block_lines.h to fd, of the process's first layer. 0; -ENOTSUP: the mode
 * of tracing does not know single blocks (error_set); -ENOMEM; -errno.
 */
int blocks_save(struct trace *trace, size_t process, int fd);

#endif

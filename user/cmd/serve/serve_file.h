/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer export --format html of a dump or a recording: the page of tracer serve in one file, with
 * answers instead of a server.
 */
#pragma once

#include "cmd/serve/serve_time.h"
#include "util/outfile.h"

#define SERVE_FILE_BYTES (8u << 20) /* of the file, at most */

/*
 * Reads the dump, and writes the page with as many answers as fit: the views first, then what is
 * about the objects that retain most. What is left out is told, on the page and by log_info(). The
 * caller commits the file. 0; -errno after a message about the dump (*told), or without one.
 */
int serve_file_write(const char *dump, struct outfile *file, const char *name, bool *told);
/*
 * Writes the page of a recording, which was read from that path: its charts, and the ranges between
 * its stops, each with as many stacks as fit. 0, -errno (error_set).
 */
int serve_file_write_recording(const struct serve_recording *recording, const char *path,
			       struct outfile *file, const char *name);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer export --format html of a dump: the page of tracer serve in one file, with answers instead
 * of a server.
 */
#pragma once

#include "util/outfile.h"

#define SERVE_FILE_BYTES (8u << 20) /* of the file, at most */

/*
 * Reads the dump, and writes the page with as many answers as fit: the views first, then what is
 * about the objects that retain most. What is left out is told, on the page and by log_info(). The
 * caller commits the file. 0; -errno after a message about the dump (*told), or without one.
 */
int serve_file_write(const char *dump, struct outfile *file, const char *name, bool *told);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "util/buffer.h"

/* Appends the bytes, packed as a gzip file. 0; -EFBIG: 4 GiB or more (error_set); -ENOMEM. */
int gzip_append(const void *data, size_t bytes, struct buffer *out);

/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes in the format of tracemalloc._format_size(). Both return out. */
#ifndef TRACER_UTIL_SIZE_H
#define TRACER_UTIL_SIZE_H

#include <stdint.h>

#define SIZE_TEXT_MAX 32

/* "1234 B", "12.3 KiB" */
char *size_text(char out[SIZE_TEXT_MAX], uint64_t bytes);
/* The same in a buffer of its own, which lasts as long as the block around it. */
#define SIZE_TEXT(bytes) size_text((char[SIZE_TEXT_MAX]){0}, (bytes))
/* The same; sign: with a sign, "+1234 B". */
char *size_format(char out[SIZE_TEXT_MAX], double size, int sign);

#endif

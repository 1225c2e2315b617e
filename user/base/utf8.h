/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text as Python's str has it, a row of code points: UTF-8 with lone surrogates (WTF-8), and any
 * byte that is neither as U+DC80 + (byte - 0x80), Python's surrogateescape.
 */
#ifndef TRACER_BASE_UTF8_H
#define TRACER_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The code point at text, which is not empty and ends with a NUL. Returns the bytes taken. */
size_t utf8_take(const char *text, uint32_t *c);
/*
 * The bytes behind a file name of Python's, as os.fsencode() has them: surrogates of
 * surrogateescape become their byte again. out holds strlen(name) + 1 bytes. Returns the length;
 * text may be out.
 */
size_t utf8_fsencode(char *out, const char *text);
/*
 * 1 when the bytes are what CPython's "surrogatepass" codec reads: UTF-8, lone surrogates, no NUL.
 */
int utf8_valid(const char *text, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text as in Python's str, a sequence of code points: UTF-8 with lone surrogates (WTF-8); any other
 * byte is U+DC80 + (byte - 0x80), Python's surrogateescape.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The code point at text, which is not empty and ends with a NUL. Returns the bytes taken. */
size_t utf8_take(const char *text, uint32_t *c);
/*
 * The bytes of a Python file name, as os.fsencode() returns them: surrogateescape surrogates become
 * their byte again. out holds strlen(text) + 1 bytes and may be text. Returns the length.
 */
size_t utf8_fsencode(char *out, const char *text);
/*
 * The same text as valid UTF-8, for readers that accept nothing else: a byte that is not UTF-8,
 * also as a surrogateescape, becomes \xNN, and any other lone surrogate \uNNNN. Backslashes before
 * what looks like such an escape are doubled, so that utf8_unescape() restores the text. out holds
 * UTF8_ESCAPED(strlen(text)) bytes. Returns the length.
 */
#define UTF8_ESCAPED(bytes) (4 * (bytes) + 1)
size_t utf8_escape(char *out, const char *text);
/* The reverse, of bytes that need not end with a NUL; out holds bytes + 1 and may be text. */
size_t utf8_unescape(char *out, const char *text, size_t bytes);
#define UTF8_ENCODED(bytes) (3 * (bytes)) /* Latin-1 of NULs */
/*
 * UTF-8 of text as CPython stores it: `kind` bytes a character (1, 2, 4), native order. What is no
 * character, and NUL, becomes U+FFFD. out holds UTF8_ENCODED(bytes). Returns the length.
 */
size_t utf8_from_python(char *out, const uint8_t *data, uint32_t kind, uint32_t bytes);
/* 1 when CPython's "surrogatepass" codec decodes the bytes: UTF-8, lone surrogates, no NUL. */
int utf8_valid(const char *text, size_t bytes);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON strings in the format of Python's json.dumps() (ASCII only): lone surrogates (WTF-8) as
 * \udXXX, any byte that is not UTF-8 as \udc80 + (byte - 0x80), Python's surrogateescape. JSON
 * libraries refuse both.
 */
#pragma once

#include <stdio.h>

void json_string(FILE *out, const char *text); /* with quotes; errors are left in ferror(out) */
/* "key": value; key needs no escapes */
void json_member(FILE *out, const char *key, const char *value);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON strings as Python's json.dumps() writes them (ASCII only): lone surrogates (WTF-8) as
 * \udXXX, any byte that is not UTF-8 as \udc80 + (byte - 0x80), Python's surrogateescape. JSON
 * libraries refuse both.
 */
#ifndef TRACER_REPORT_JSON_H
#define TRACER_REPORT_JSON_H

#include <stdio.h>

void json_string(FILE *out, const char *text); /* with its quotes; errors stay in ferror(out) */

#endif

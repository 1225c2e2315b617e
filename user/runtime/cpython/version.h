/* SPDX-License-Identifier: Apache-2.0 */
/* PY_VERSION_HEX as text. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#define VERSION_TEXT 32

/*
 * "3.11.7", "3.14.0a3", "3.13.0rc1"; "3.8" when only the minor version is known (low 16 bits 0).
 * Returns out.
 */
static inline char *version_text(char out[VERSION_TEXT], uint32_t hex)
{
	unsigned int level = hex >> 4 & 0xf;
	int size = snprintf(out, VERSION_TEXT, "%u.%u", hex >> 24, hex >> 16 & 0xff);

	if (!(hex & 0xffff))
		return out;
	size += snprintf(out + size, VERSION_TEXT - (size_t)size, ".%u", hex >> 8 & 0xff);

	if (level >= 0xa && level <= 0xc)
		snprintf(out + size, VERSION_TEXT - (size_t)size, "%s%u",
			 level == 0xc   ? "rc"
			 : level == 0xb ? "b"
					: "a",
			 hex & 0xf);
	return out;
}

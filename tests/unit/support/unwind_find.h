/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the machine for tests of unwind tables. */
#pragma once

#include <glob.h>
#include <limits.h>
#include <stdio.h>

/* The first file that matches one of the patterns, which end with NULL. 0: none. */
static int file_find(char path[PATH_MAX], const char *const patterns[])
{
	for (size_t i = 0; patterns[i]; i++) {
		glob_t found;

		if (!glob(patterns[i], 0, NULL, &found)) {
			snprintf(path, PATH_MAX, "%s", found.gl_pathv[0]);
			globfree(&found);
			return 1;
		}
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the interpreters that pyenv has built on this machine; a test skips what is not there. */
#ifndef TRACER_TESTS_INTERPRETERS_H
#define TRACER_TESTS_INTERPRETERS_H

#include <glob.h>
#include <stdio.h>
#include <string.h>

/* The last match of "$(pyenv root)/versions/PATTERN" into out; 1 found, 0 not. */
static inline int interpreter_find(const char *pattern, char *out, size_t size)
{
	FILE *pipe = popen("pyenv root 2>/dev/null", "r");
	char root[512] = "", full[1024];
	glob_t matches;
	int found = 0;

	if (!pipe)
		return 0;
	if (!fgets(root, sizeof(root), pipe))
		root[0] = '\0';
	pclose(pipe);
	root[strcspn(root, "\n")] = '\0';
	if (!root[0])
		return 0;
	snprintf(full, sizeof(full), "%s/versions/%s", root, pattern);
	if (!glob(full, 0, NULL, &matches)) {
		found = snprintf(out, size, "%s", matches.gl_pathv[matches.gl_pathc - 1]) < (int)size;
		globfree(&matches);
	}
	return found;
}

#endif

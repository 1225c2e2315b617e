/* SPDX-License-Identifier: Apache-2.0 */
/* A path for a test's file, in a folder that is removed after the test. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place {
	char directory[32], path[64];
};

/* As a cmocka fixture: *state is the place. 0, -1. */
static inline int place_setup(void **state)
{
	struct place *place = calloc(1, sizeof(*place));

	strcpy(place->directory, "/tmp/tracer-test.XXXXXX");
	if (!mkdtemp(place->directory))
		return -1;
	snprintf(place->path, sizeof(place->path), "%s/file", place->directory);
	*state = place;
	return 0;
}

static inline int place_teardown(void **state)
{
	struct place *place = *state;

	unlink(place->path);
	rmdir(place->directory);
	free(place);
	return 0;
}

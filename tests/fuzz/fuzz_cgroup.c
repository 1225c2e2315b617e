/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cgroup file's text: a result lies within the text, is found again by its id, and refers to the
 * same cgroup.
 */
#include <stdlib.h>
#include <string.h>

#include "proc/container/cgroup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct cgroup_container found;
	struct cgroup_ref ref = {0};
	struct cgroup_line line;
	size_t bytes;

	memcpy(text, data, size);
	text[size] = '\0';
	if (cgroup_container_find(text, &found, &line)) {
		if (found.path_bytes > line.path_bytes || line.path < text ||
		    line.path + line.path_bytes > text + size ||
		    strlen(found.id) != CGROUP_ID_SIZE - 1)
			abort();
		if (!cgroup_id_find(text, found.id, &line, &bytes) ||
		    cgroup_ref_set(&ref, &line, bytes))
			abort();
		/* Only the first line of those controllers counts. */
		cgroup_ref_holds(&ref, text);
		cgroup_ref_free(&ref);
	}
	if (size > 1)
		cgroup_id_find(text, text + size / 2, &line, &bytes);
	free(text);
	return 0;
}

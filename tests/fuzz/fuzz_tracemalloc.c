/* SPDX-License-Identifier: Apache-2.0 */
/* A tracemalloc file; a valid one is also grouped, compared and filtered. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "report/tracemalloc/tracemalloc.h"
#include "snapshot_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char *copy = malloc(size + 1); /* a copy, so that an overread is detected */
	struct snapshot *snapshot;

	if (!copy)
		abort();
	memcpy(copy, data, size);
	struct infile file = infile_memory(copy, size);
	if (!tracemalloc_read(&file, &snapshot)) {
		snapshot_use(snapshot);
		snapshot_free(snapshot);
	}
	free(copy);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A jitdump, in pieces whose size the first byte gives. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "object/perfmap/process.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int code_take(void *context, const struct jitdump_code *code)
{
	if (code->name_bytes > PERFMAP_NAME_MAX ||
	    (code->name_bytes && memchr(code->name, 0, code->name_bytes)))
		abort();
	return perfmap_process_jitdump(context, code);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jitdump *jitdump = calloc(1, sizeof(*jitdump));
	struct perfmap_process *process;
	struct perfmaps *maps;
	size_t piece = size ? data[0] + 1 : 1;

	if (!jitdump || perfmaps_new(&maps, NULL) || perfmaps_add(maps, 1, &process))
		abort();
	for (size_t at = 1; at < size; at += piece)
		if (jitdump_read(jitdump, data + at, size - at < piece ? size - at : piece,
				 code_take, process))
			break;
	perfmaps_free(maps);
	free(jitdump);
	return 0;
}

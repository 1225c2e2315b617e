/* SPDX-License-Identifier: Apache-2.0 */
/* An unpacked profile; one that is read is grouped and filtered too. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "export/pprof.h"
#include "snapshot_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char ours[] = "\x32\x11tracer:snapshot=1\x68\x00";
	size_t prefix = size && data[0] == 'T' ? sizeof(ours) - 1 : 0; /* past the check whose file it is */
	unsigned char *profile = malloc(size + prefix + 1);
	struct snapshot *snapshot;

	if (!profile)
		abort();
	memcpy(profile, ours, prefix);
	if (prefix)
		memcpy(profile + prefix, data + 1, --size);
	else if (size)
		memcpy(profile, data, size);
	if (!pprof_parse(profile, size + prefix, &snapshot)) {
		snapshot_use(snapshot);
		snapshot_free(snapshot);
	}
	free(profile);
	return 0;
}

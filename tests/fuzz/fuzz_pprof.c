/* SPDX-License-Identifier: Apache-2.0 */
/* An uncompressed profile; a valid one is also grouped and filtered. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "report/pprof/pprof.h"
#include "snapshot_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/*
	 * Passes the check for the tracer's own files: by a comment, as in older files, or by the
	 * very first line.
	 */
	static const char older[] = "\x32\x11tracer:snapshot=1\x68\x00";
	static const char newer[] = "\x32\x00\x32\x12tracer:snapshot=1\n\x40\x01";
	char kind = size ? (char)data[0] : 0;
	const char *ours = kind == 'T' ? older : newer;
	size_t prefix = kind == 'T' ? sizeof(older) - 1 : kind == 'L' ? sizeof(newer) - 1 : 0;
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

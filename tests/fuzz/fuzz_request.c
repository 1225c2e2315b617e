/* SPDX-License-Identifier: Apache-2.0 */
/* A line from a client: an accepted request can be written, and reads back the same. */
#include <stdlib.h>
#include <string.h>

#include "session/ctl/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct request request, again;
	char text[REQUEST_BYTES];

	if (request_parse((const char *)data, size, &request))
		return 0;
	size_t length = request_print(text, &request);
	if (text[length - 1] != '\n' || request_parse(text, length - 1, &again) ||
	    again.kind != request.kind || again.pid != request.pid ||
	    again.address != request.address)
		abort();
	return 0;
}

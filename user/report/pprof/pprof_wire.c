/* SPDX-License-Identifier: Apache-2.0 */
#include "report/pprof/pprof_wire.h"

#include <errno.h>

#include "util/error.h"

int varint_take_long(struct span *span, uint64_t *value)
{
	*value = 0;
	for (unsigned int shift = 0; shift < 64 && span->bytes; shift += 7) {
		unsigned char byte = *span->data;

		span->data++;
		span->bytes--;
		*value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return 0;
	}
	return error_set(-EBADMSG, "the profile is corrupt: a number is cut off");
}

static int size_refuse(uint64_t bytes)
{
	return error_set(-EBADMSG, "the profile is corrupt: a field of %llu bytes cannot be",
			 (unsigned long long)bytes);
}

int span_check(const struct span *span)
{
	return span->bytes > MESSAGE_MAX ? size_refuse(span->bytes) : 0;
}

int span_take(struct span *span, struct span *out)
{
	uint64_t bytes;
	int err = varint_take(span, &bytes);

	if (err)
		return err;
	if (bytes > span->bytes)
		return size_refuse(bytes);
	*out = (struct span){.data = span->data, .bytes = (size_t)bytes};
	span->data += bytes;
	span->bytes -= (size_t)bytes;
	return 0;
}

int field_take(struct span *span, struct field *field)
{
	uint64_t tag;
	int err = varint_take(span, &tag);

	if (err)
		return err;
	*field = (struct field){.id = tag >> 3, .wire_type = tag & 7, .prefix = span->data};
	switch (field->wire_type) {
	case 0:
		return varint_take(span, &field->number);
	case 2:
		return span_take(span, &field->span);
	default:
		return error_set(-EBADMSG, "the profile is corrupt: wire type %u",
				 (unsigned int)field->wire_type);
	}
}

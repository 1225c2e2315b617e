/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the protobuf wire format that profiles use. Functions that take something remove it
 * from the front of the span.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MESSAGE_MAX (1u << 20) /* bytes of a submessage or name */

struct span {
	const unsigned char *data;
	size_t bytes;
};

int varint_take_long(struct span *span, uint64_t *value);
/* Takes a varint off span. 0 or -EBADMSG. */
static inline int varint_take(struct span *span, uint64_t *value)
{
	if (!span->bytes || *span->data & 0x80)
		return varint_take_long(span, value);
	*value = *span->data++;
	span->bytes--;
	return 0;
}

/* Takes a length and as many bytes off span. */
int span_take(struct span *span, struct span *out); /* 0, -EBADMSG (error_set) */
/* Is the span short enough to be unpacked or kept? Spans that are only scanned may be longer. */
int span_check(const struct span *span); /* 0; -EBADMSG: longer than MESSAGE_MAX (error_set) */

/* A field: number for a varint, otherwise span (prefix: the address of its length). */
struct field {
	/* 64 bits each: two 32-bit stores followed by one 64-bit load would stall the processor */
	uint64_t id, wire_type;
	uint64_t number;
	struct span span;
	const unsigned char *prefix;
};

int field_take(struct span *span, struct field *field); /* 0, -EBADMSG (error_set) */

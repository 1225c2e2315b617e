/* SPDX-License-Identifier: Apache-2.0 */
#include "util/buffer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int buffer_reserve(struct buffer *buffer, size_t extra)
{
	size_t capacity = buffer->capacity ? buffer->capacity : 256;

	if (extra > SIZE_MAX / 2 - buffer->size)
		return -ENOMEM;
	if (buffer->data && buffer->size + extra <= buffer->capacity)
		return 0;
	while (capacity < buffer->size + extra)
		capacity *= 2;
	unsigned char *data = realloc(buffer->data, capacity);
	if (!data)
		return -ENOMEM;
	buffer->data = data;
	buffer->capacity = capacity;
	return 0;
}

int buffer_append(struct buffer *buffer, const void *data, size_t size)
{
	int err = buffer_reserve(buffer, size);

	if (err)
		return err;
	if (size)
		memcpy(buffer->data + buffer->size, data, size);
	buffer->size += size;
	return 0;
}

int buffer_printf(struct buffer *buffer, const char *format, ...)
{
	va_list args;
	int length, err;

	/* The final NUL is written beyond size and is not counted. */
	for (;;) {
		size_t left = buffer->capacity - buffer->size;

		va_start(args, format);
		length = vsnprintf(buffer->data ? (char *)buffer->data + buffer->size : NULL, left,
				   format, args);
		va_end(args);
		if (length < 0)
			return -EINVAL;
		if ((size_t)length < left)
			break;
		err = buffer_reserve(buffer, (size_t)length + 1);
		if (err)
			return err;
	}
	buffer->size += (size_t)length;
	return 0;
}

void buffer_unquote(struct buffer *buffer)
{
	if (buffer->size < 2 || buffer->data[0] != '\'' || buffer->data[buffer->size - 1] != '\'')
		return;
	buffer->size -= 2;
	memmove(buffer->data, buffer->data + 1, buffer->size);
}

void buffer_trim(struct buffer *buffer)
{
	unsigned char *data = buffer->size ? realloc(buffer->data, buffer->size) : NULL;

	if (!data)
		return;
	buffer->data = data;
	buffer->capacity = buffer->size;
}

void buffer_free(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct buffer){0};
}

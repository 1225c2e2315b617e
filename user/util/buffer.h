/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing byte buffer. Zero-initialise; data is malloc'd and owned by the buffer until
 * buffer_free().
 */
#pragma once

#include <stddef.h>

struct buffer {
	unsigned char *data;
	size_t size; /* bytes in use */
	size_t capacity;
};

/* Makes room for extra more bytes; 0 or -ENOMEM. */
int buffer_reserve(struct buffer *buffer, size_t extra);
int buffer_append(struct buffer *buffer, const void *data, size_t size); /* 0 or -ENOMEM */
int buffer_printf(struct buffer *buffer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* 'shop' becomes shop. */
void buffer_unquote(struct buffer *buffer);
/* Frees the unused capacity. */
void buffer_trim(struct buffer *buffer);
void buffer_free(struct buffer *buffer);

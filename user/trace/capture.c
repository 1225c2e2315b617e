/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading uses a window of memory that holds at least the largest record. Records stay 8-byte
 * aligned in it, because the header and all records have sizes that are multiples of 8.
 */
#include "trace/capture.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/events.h"
#include "util/error.h"
#include "util/outfile.h"

#define RECORD_MAX   (1u << 20)
#define WINDOW_BYTES (2u * RECORD_MAX)

struct capture_header {
	char magic[8];
	uint32_t version; /* little-endian */
	uint32_t zero;
};

_Static_assert(sizeof(struct capture_header) == 16, "capture header");

static const char MAGIC[] = "TRACERCP";
_Static_assert(sizeof(MAGIC) - 1 == sizeof(((struct capture_header *)0)->magic), "capture magic");

struct window {
	int fd;
	unsigned char *data;
	size_t start, end; /* unread bytes in data */
	uint64_t offset;   /* file offset of start */
};

int capture_begin(struct outfile *file)
{
	struct capture_header header = {.version = htole32(1)};

	memcpy(header.magic, MAGIC, sizeof(header.magic));
	return outfile_write(file, &header, sizeof(header));
}

int capture_record(struct outfile *file, const void *record, size_t size)
{
	return outfile_write(file, record, size);
}

/* Makes that many bytes available at start, or fewer at the end of the file. 0 or -errno. */
static int window_fill(struct window *window, size_t bytes)
{
	if (window->end - window->start >= bytes)
		return 0;
	memmove(window->data, window->data + window->start, window->end - window->start);
	window->end -= window->start;
	window->start = 0;
	while (window->end < bytes) {
		ssize_t got =
			read(window->fd, window->data + window->end, WINDOW_BYTES - window->end);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_errno();
		if (!got)
			break;
		window->end += (size_t)got;
	}
	return 0;
}

static void window_skip(struct window *window, size_t bytes)
{
	window->start += bytes;
	window->offset += bytes;
}

static int header_read(struct window *window)
{
	struct capture_header header;
	int err = window_fill(window, sizeof(header));

	if (err)
		return err;
	if (window->end - window->start < sizeof(header))
		return error_set(-EBADMSG, "not a tracer capture: shorter than the header");
	memcpy(&header, window->data + window->start, sizeof(header));
	if (memcmp(header.magic, MAGIC, sizeof(header.magic)))
		return error_set(-EBADMSG, "not a tracer capture");
	if (header.version != htole32(1) || header.zero)
		return error_set(-EBADMSG,
				 "capture version %u is not supported; this tracer reads version 1",
				 le32toh(header.version));
	window_skip(window, sizeof(header));
	return 0;
}

static int cut_short(const struct window *window, size_t records)
{
	return error_set(-ENODATA, "truncated at offset %llu, after %zu complete records",
			 (unsigned long long)window->offset, records);
}

static int records_read(struct window *window, capture_record_fn record, void *context,
			size_t *records)
{
	for (;;) {
		const struct event_header *header;
		int err = window_fill(window, sizeof(*header));

		if (err)
			return err;
		if (window->start == window->end)
			return 0;
		if (window->end - window->start < sizeof(*header))
			return cut_short(window, *records);
		header = (const void *)(window->data + window->start);
		uint32_t size = header->size;
		if (size < sizeof(*header) || size > RECORD_MAX || size % 8)
			return error_set(-EBADMSG, "invalid record of %u bytes at offset %llu",
					 size, (unsigned long long)window->offset);
		err = window_fill(window, size);
		if (err)
			return err;
		if (window->end - window->start < size)
			return cut_short(window, *records);
		err = record(window->data + window->start, size, context);
		if (err)
			return err;
		window_skip(window, size);
		++*records;
	}
}

int capture_read(const char *path, capture_record_fn record, void *context, size_t *records)
{
	int own = strcmp(path, "-") != 0;
	struct window window = {.fd = own ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO};
	int err = -ENOMEM;

	error_clear();
	*records = 0;
	if (window.fd < 0)
		return error_errno();
	window.data = malloc(WINDOW_BYTES);
	if (!window.data)
		goto out;
	err = header_read(&window) ?: records_read(&window, record, context, records);
out:
	free(window.data);
	if (own)
		close(window.fd);
	return err;
}

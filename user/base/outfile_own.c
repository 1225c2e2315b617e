/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Most formats begin with a signature. Folded stacks and perf maps have none: there every line must
 * have their form.
 */
#include "base/outfile_own.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/array.h"

#define HEAD_BYTES 4096u

/* begin: the file's first bytes; within: a text that follows among the first ones. */
static const struct {
	const char *begin, *within;
} signatures[] = {
	{"\x89TRACER\n", NULL},      /* a recording */
	{"TRACERCP", NULL},          /* a capture */
	{"trcrheap", NULL},          /* a dump of a heap */
	{"PERFILE2", NULL},          /* perf.data */
	{"\x80\x04", "tracemalloc"}, /* a pickle of a Snapshot */
	{"\x80\x03", "tracemalloc"}, /* the same for older Pythons */
	{"{\"$schema\": ", "speedscope.app/file-format-schema.json"},
	{"{\"snapshot\":", "\"meta\""},       /* a heap snapshot of V8's form */
	{"<!doctype html>", "<title>tracer"}, /* our page */
};

/* Does the first message of an unpacked profile look like a sample type? */
static int is_profile(const uint8_t *head, size_t bytes)
{
	uint8_t first[4] = {0};
	z_stream stream = {.next_in = (Bytef *)head,
			   .avail_in = (uInt)bytes,
			   .next_out = first,
			   .avail_out = sizeof(first)};

	if (bytes < 18 || head[0] != 0x1f || head[1] != 0x8b || inflateInit2(&stream, 15 + 16))
		return 0;
	inflate(&stream, Z_SYNC_FLUSH);
	inflateEnd(&stream);
	return !stream.avail_out && first[0] == 0x0a && first[2] == 0x08;
}

/* "NAME;NAME 123" or "7f0012345678 40 NAME" */
static int is_line(const char *line, size_t bytes)
{
	size_t digits = 0, address = 0;

	while (digits < bytes && isdigit((unsigned char)line[bytes - 1 - digits]))
		digits++;
	if (digits && digits + 1 < bytes && line[bytes - 1 - digits] == ' ' &&
	    memchr(line, '(', bytes))
		return 1;
	while (address < bytes && isxdigit((unsigned char)line[address]))
		address++;
	return address >= 6 && address + 3 < bytes && line[address] == ' ' &&
	       isxdigit((unsigned char)line[address + 1]);
}

static int is_lines(const char *head, size_t bytes)
{
	size_t lines = 0;

	while (bytes) {
		const char *end = memchr(head, '\n', bytes);

		if (!end) /* cut */
			break;
		/* An empty perf map is an empty line. */
		if (end != head && !is_line(head, (size_t)(end - head)))
			return 0;
		lines++;
		bytes -= (size_t)(end + 1 - head);
		head = end + 1;
	}
	return lines > 0;
}

int outfile_is_own(int fd)
{
	char head[HEAD_BYTES + 1];
	ssize_t bytes = pread(fd, head, HEAD_BYTES, 0);

	if (bytes <= 0)
		return !bytes;
	head[bytes] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(signatures); i++) {
		size_t begin = strlen(signatures[i].begin);

		if ((size_t)bytes >= begin && !memcmp(head, signatures[i].begin, begin) &&
		    (!signatures[i].within || memmem(head, (size_t)bytes, signatures[i].within,
						     strlen(signatures[i].within))))
			return 1;
	}
	return is_profile((const uint8_t *)head, (size_t)bytes) || is_lines(head, (size_t)bytes);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/container/memory_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_LIMIT_BYTES (1ull << 60) /* v1 encodes "no limit" as a number near 2^63 */

size_t memory_text_read(const char *directory, const char *name, char *out, size_t capacity)
{
	char path[4096];

	out[0] = '\0';
	if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path))
		return 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t bytes = read(fd, out, capacity - 1);
	close(fd);
	out[bytes > 0 ? bytes : 0] = '\0';
	return bytes > 0 ? (size_t)bytes : 0;
}

uint64_t memory_number_read(const char *directory, const char *name)
{
	char text[32];

	if (!memory_text_read(directory, name, text, sizeof(text)) || text[0] < '0' ||
	    text[0] > '9')
		return UINT64_MAX;
	uint64_t value = strtoull(text, NULL, 10);
	return value >= NO_LIMIT_BYTES ? UINT64_MAX : value;
}

uint64_t memory_machine_read(const char *name)
{
	char text[MEMORY_FILE_BYTES];

	memory_text_read("/proc", "meminfo", text, sizeof(text));
	const char *at = strstr(text, name);
	return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : UINT64_MAX;
}

uint64_t memory_stat_value(const char *text, const char *name)
{
	size_t bytes = strlen(name);

	while (text && *text) {
		if (!strncmp(text, name, bytes) && text[bytes] == ' ')
			return strtoull(text + bytes + 1, NULL, 10);
		text = strchr(text, '\n');
		if (text)
			text++;
	}
	return 0;
}

int memory_line_counts(const struct cgroup_line *line)
{
	static const char word[] = "memory";
	const char *at = line->controllers, *end = at + line->controllers_bytes;

	if (!line->controllers_bytes)
		return 1;
	while (at < end) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		size_t bytes = (size_t)((comma ? comma : end) - at);

		if (bytes == sizeof(word) - 1 && !memcmp(at, word, bytes))
			return 1;
		at += bytes + 1;
	}
	return 0;
}

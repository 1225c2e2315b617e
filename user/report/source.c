/* SPDX-License-Identifier: Apache-2.0 */
#include "report/source.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base/utf8.h"

#define FILES_MAX 16u /* kept; the one that was read first makes room */
#define FILE_MAX  (16u << 20)

struct source_file {
	char *name, *text; /* NUL at the end; text NULL: it could not be read */
	size_t bytes;
	size_t at; /* where line `line` begins: the next one asked for is often behind it */
	uint32_t line;
};

struct source {
	struct source_file files[FILES_MAX];
	size_t count;
};

int source_new(struct source **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : -ENOMEM;
}

static void file_free(struct source_file *file)
{
	free(file->name);
	free(file->text);
	*file = (struct source_file){0};
}

void source_free(struct source *source)
{
	if (!source)
		return;
	for (size_t i = 0; i < FILES_MAX; i++)
		file_free(&source->files[i]);
	free(source);
}

static char *text_read(int fd, size_t size, size_t *bytes)
{
	char *text = malloc(size + 1);

	*bytes = 0;
	while (text && *bytes < size) {
		ssize_t got = read(fd, text + *bytes, size - *bytes);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		*bytes += (size_t)got;
	}
	if (text)
		text[*bytes] = '\0';
	return text;
}

static void file_load(struct source_file *file, const char *filename)
{
	size_t length = strlen(filename);
	char *path = malloc(length + 1);
	struct stat st;

	*file = (struct source_file){.name = strdup(filename), .line = 1};
	/* "<stdin>", "<frozen …>": no file, whatever may lie there under that name. */
	if (!path || !length || (filename[0] == '<' && filename[length - 1] == '>')) {
		free(path);
		return;
	}
	utf8_fsencode(path, filename);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	free(path);
	if (fd < 0)
		return;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= FILE_MAX)
		file->text = text_read(fd, (size_t)st.st_size, &file->bytes);
	close(fd);
}

static struct source_file *file_find(struct source *source, const char *filename)
{
	for (size_t i = 0; i < FILES_MAX; i++)
		if (source->files[i].name && !strcmp(source->files[i].name, filename))
			return &source->files[i];
	struct source_file *file = &source->files[source->count++ % FILES_MAX];
	file_free(file);
	file_load(file, filename);
	return file;
}

/* Where the line behind the one at `at` begins; "\n", "\r\n" and "\r" end one, as in Python. */
static size_t line_next(const struct source_file *file, size_t at)
{
	while (at < file->bytes && file->text[at] != '\n' && file->text[at] != '\r')
		at++;
	if (at + 1 < file->bytes && file->text[at] == '\r' && file->text[at + 1] == '\n')
		at++;
	return at < file->bytes ? at + 1 : at;
}

void source_print(struct source *source, FILE *out, const char *indent, const char *filename, uint32_t line)
{
	struct source_file *file = file_find(source, filename);

	if (!file->text || !line)
		return;
	if (line < file->line) {
		file->at = 0;
		file->line = 1;
	}
	for (; file->line < line && file->at < file->bytes; file->line++)
		file->at = line_next(file, file->at);
	if (file->line != line)
		return;
	size_t at = file->at, end = line_next(file, at);
	while (at < end && isspace((unsigned char)file->text[at]))
		at++;
	while (end > at && isspace((unsigned char)file->text[end - 1]))
		end--;
	if (at == end)
		return;
	char kept = file->text[end];
	file->text[end] = '\0';
	fputs(indent, out);
	text_print(out, file->text + at);
	putc('\n', out);
	file->text[end] = kept;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "report/source.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/buffer.h"
#include "util/error.h"
#include "util/regular.h"
#include "util/text.h"
#include "util/utf8.h"

#define FILES_MAX 16u /* files kept in memory; the oldest one is replaced */
#define FILE_MAX  (16u << 20)

struct source_file {
	char *name, *text; /* NUL-terminated; text NULL: it could not be read */
	int root;          /* descriptor; AT_FDCWD: ours */
	int err;           /* why it could not be read, -errno */
	size_t bytes;
	size_t at; /* offset of line `line`: the next line asked for is often a later one */
	uint32_t line;
};

/* Lines whose file could not be read; only the first file's name is kept. */
struct missing {
	uint64_t lines;
	char *name; /* the first one's */
	int err;
};

struct source {
	int roots[SOURCE_ROOTS_MAX + 1];
	size_t root_count;
	struct source_file
		/* more than there are roots, so that one name fits for every root */
		files[FILES_MAX];
	size_t count;
	struct missing missing;
	uint64_t differing; /* lines that are not the same in all roots */
};

_Static_assert(FILES_MAX > SOURCE_ROOTS_MAX + 1, "a line is compared between all roots");

int source_new(struct source **out, const struct source_roots *roots)
{
	struct source *source = calloc(1, sizeof(*source));

	if (!source)
		return -ENOMEM;
	if (!roots || roots->own)
		source->roots[source->root_count++] = AT_FDCWD;
	for (size_t i = 0; roots && i < roots->count; i++)
		source->roots[source->root_count++] = roots->fds[i];
	*out = source;
	return 0;
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
	free(source->missing.name);
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

/* "<stdin>" and "<frozen …>" are not files, even if a file of that name exists. */
static bool is_file_name(const char *filename)
{
	size_t length = strlen(filename);

	return length && (filename[0] != '<' || filename[length - 1] != '>');
}

/* A relative name refers to our current directory. In another root the directory is unknown. */
static int file_open(int root, const char *path)
{
	if (root == AT_FDCWD)
		return regular_open(root, path, 0);
	return path[0] == '/' ? regular_open(root, path, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
			      : -ENOENT;
}

static int file_read(struct source_file *file, const char *path)
{
	int fd = file_open(file->root, path), err = 0;
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st))
		err = error_errno();
	else if (st.st_size > FILE_MAX)
		err = -EFBIG;
	else
		file->text = text_read(fd, (size_t)st.st_size, &file->bytes);
	close(fd);
	return err || file->text ? err : -ENOMEM;
}

static void file_load(struct source_file *file, int root, const char *filename)
{
	char *path = malloc(strlen(filename) + 1);

	*file = (struct source_file){
		.name = strdup(filename), .root = root, .line = 1, .err = -ENOMEM};
	if (path && file->name) {
		utf8_fsencode(path, filename);
		file->err = file_read(file, path);
	}
	free(path);
}

static struct source_file *file_find(struct source *source, int root, const char *filename)
{
	for (size_t i = 0; i < FILES_MAX; i++)
		if (source->files[i].name && source->files[i].root == root &&
		    !strcmp(source->files[i].name, filename))
			return &source->files[i];
	struct source_file *file = &source->files[source->count++ % FILES_MAX];
	file_free(file);
	file_load(file, root, filename);
	return file;
}

/* The offset of the line after the one at `at`; "\n", "\r\n" and "\r" end a line, as in Python. */
static size_t line_next(const struct source_file *file, size_t at)
{
	while (at < file->bytes && file->text[at] != '\n' && file->text[at] != '\r')
		at++;
	if (at + 1 < file->bytes && file->text[at] == '\r' && file->text[at + 1] == '\n')
		at++;
	return at < file->bytes ? at + 1 : at;
}

/* A line without its end, a part of a file's text; bytes 0: there is none. */
struct source_line {
	const char *text;
	size_t bytes;
};

static struct source_line line_find(struct source_file *file, uint32_t line)
{
	if (line < file->line) {
		file->at = 0;
		file->line = 1;
	}
	for (; file->line < line && file->at < file->bytes; file->line++)
		file->at = line_next(file, file->at);
	if (file->line != line)
		return (struct source_line){0};
	size_t at = file->at, end = line_next(file, at);
	while (end > at && isspace((unsigned char)file->text[end - 1]))
		end--;
	return (struct source_line){file->text + at, end - at};
}

static void missing_add(struct missing *missing, const char *filename, int err)
{
	if (missing->lines++)
		return;
	missing->name = strdup(filename);
	missing->err = err;
}

static struct source_line line_strip(struct source_line line)
{
	for (; line.bytes && isspace((unsigned char)*line.text); line.bytes--)
		line.text++;
	return line;
}

static int lines_differ(struct source_line a, struct source_line b)
{
	return a.bytes != b.bytes || memcmp(a.text, b.text, a.bytes);
}

/* The line as all roots that have the file have it. */
static struct source_line line_get(struct source *source, const char *filename, uint32_t line)
{
	struct source_line found = {0};
	int readable = 0, differs = 0, err = -ENOENT;

	if (!line || !is_file_name(filename))
		return found;
	for (size_t i = 0; i < source->root_count; i++) {
		struct source_file *file = file_find(source, source->roots[i], filename);
		struct source_line here = {0};

		if (!file->text) {
			err = file->err == -ENOENT ? err : file->err;
			continue;
		}
		readable = 1;
		here = line_find(file, line);
		if (!found.bytes)
			found = here;
		else if (here.bytes)
			differs |= lines_differ(line_strip(here), line_strip(found));
	}
	if (!readable)
		missing_add(&source->missing, filename, err);
	source->differing += differs;
	if (differs)
		found = (struct source_line){0};
	return found;
}

int source_read(struct source *source, const char *filename, uint32_t line, struct buffer *out)
{
	struct source_line found = line_get(source, filename, line);

	out->size = 0;
	if (!found.bytes)
		return 0;
	return buffer_append(out, found.text, found.bytes) ?: buffer_append(out, "", 1) ?: 1;
}

void source_print(struct source *source, FILE *out, const char *indent, const char *filename,
		  uint32_t line)
{
	struct buffer text = {0};

	if (source_read(source, filename, line, &text) > 0) {
		const char *start = (const char *)text.data;

		while (isspace((unsigned char)*start))
			start++;
		fputs(indent, out);
		text_print(out, start);
		putc('\n', out);
	}
	buffer_free(&text);
}

void source_missing_print(const struct source *source, FILE *out)
{
	const struct missing *missing = &source->missing;

	if (missing->lines) {
		fprintf(out,
			"  source lines: %" PRIu64
			" not shown, because their file cannot be read (",
			missing->lines);
		text_print(out, missing->name ? missing->name : "?");
		fprintf(out, ": %s)\n",
			missing->err == -EINVAL ? "not a regular file" : strerror(-missing->err));
	}
	if (source->differing)
		fprintf(out,
			"  source lines: %" PRIu64
			" not shown, because they differ between containers\n",
			source->differing);
}

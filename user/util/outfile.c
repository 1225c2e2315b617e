/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory is opened once, and everything after goes through its descriptor: renaming the
 * directories of the path meanwhile cannot redirect the write. rename() replaces a name without
 * following it, whatever the name has become since the check at open.
 */
#include "util/outfile.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "util/array.h"
#include "util/descriptor.h"
#include "util/error.h"

/* --- outfile own ------------------------------------------------------------------------------ */

/* Which files tracer has written, by their contents: they may be replaced without being asked. */
/*
 * Most formats begin with a signature. Folded stacks and perf maps have none: there every line must
 * have their form.
 */

#define HEAD_BYTES 4096u

/* begin: the file's first bytes; within: a text that follows among the first ones. */
static const struct {
	const char *begin, *within;
} signatures[] = {
	{"\x89TRACER\n", NULL},      /* a recording */
	{"TRACERCP", NULL},          /* a capture */
	{"trcrheap", NULL},          /* a dump of a heap */
	{"PERFILE2", NULL},          /* perf.data */
	{"DTiJ\1", NULL},            /* a jitdump */
	{"\x80\x04", "tracemalloc"}, /* a pickle of a Snapshot */
	{"\x80\x03", "tracemalloc"}, /* the same for older Pythons */
	{"{\"$schema\": ", "speedscope.app/file-format-schema.json"},
	{"{\"snapshot\":", "\"meta\""},       /* a heap snapshot of V8's form */
	{"<!doctype html>", "<title>tracer"}, /* our page */
	{"\n", "\n\6tracer\22"},              /* OTLP: the scope's name and version */
	{"evidence.json", "ustar"},           /* a bundle of evidence (util/archive.h) */
};

/* Does the first message of an unpacked profile look like a sample type? */
static bool is_profile(const uint8_t *head, size_t bytes)
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
static bool is_line(const char *line, size_t bytes)
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

static bool is_lines(const char *head, size_t bytes)
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

/* 1: the file is empty, or begins as one of the formats that are written here. fd is readable. */
static bool outfile_is_own(int fd)
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

/* --- outfile ---------------------------------------------------------------------------------- */

#define OUTFILE_BUFFER_BYTES (64u * 1024)
#define OUTFILE_TRIES        16
#define OUTFILE_CLEAN_MAX    16384 /* directory entries to search for abandoned files */
#define TEMPORARY            ".tracer-%016" PRIx64 ".tmp"
#define TEMPORARY_BYTES      28

struct outfile {
	int directory; /* -1: standard output */
	int fd;
	int borrowed; /* fd is not closed */
	int err;      /* the first failure: the content is incomplete from there on */
	size_t used;
	char *path;         /* as given, for messages */
	const char *name;   /* in the directory; points into path, or is borrowed from the caller */
	char temporary[48]; /* "" when there is none to remove */
	unsigned char buffer[OUTFILE_BUFFER_BYTES];
};

static int open_directory(struct outfile *file)
{
	char *slash = strrchr(file->path, '/');

	file->name = slash ? slash + 1 : file->path;
	if (!slash)
		file->directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	else if (slash == file->path)
		file->directory = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	else {
		*slash = '\0';
		file->directory = open(file->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		*slash = '/';
	}
	if (file->directory < 0)
		return error_set(-errno, "its directory: %s", strerror(errno));
	return 0;
}

/* Only a regular file is ever replaced. */
static int check_name(const struct outfile *file)
{
	struct stat st;

	if (!file->name[0])
		return error_set(-EISDIR, "'%s' is a directory", file->path);
	if (fstatat(file->directory, file->name, &st, AT_SYMLINK_NOFOLLOW)) {
		if (errno == ENOENT)
			return 0;
		return error_set(-errno, "'%s': %s", file->path, strerror(errno));
	}
	if (S_ISREG(st.st_mode))
		return 0;
	if (S_ISDIR(st.st_mode))
		return error_set(-EISDIR, "'%s' is a directory", file->path);
	if (S_ISLNK(st.st_mode))
		return error_set(-ELOOP, "'%s' is a symbolic link, which is not followed",
				 file->path);
	return error_set(-EINVAL, "'%s' is not a regular file", file->path);
}

/* The writer of a temporary file holds its lock. 1: locked; 0: a concurrent cleaner was first. */
static int lock_temporary(const struct outfile *file)
{
	struct stat st;

	if (flock(file->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		return 0;
	return fstat(file->fd, &st) || st.st_nlink;
}

static bool is_temporary(const char *name)
{
	char again[TEMPORARY_BYTES + 1];
	uint64_t number;

	if (strlen(name) != TEMPORARY_BYTES || sscanf(name, ".tracer-%16" SCNx64, &number) != 1)
		return 0;
	snprintf(again, sizeof(again), TEMPORARY, number);
	return !strcmp(again, name);
}

/* Removes a temporary file of our user that no process has locked: its writer was killed. */
static void remove_abandoned(int directory, const char *name)
{
	struct stat st, now;

	if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) ||
	    st.st_uid != geteuid() || st.st_nlink != 1)
		return;
	int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return;
	if (!fstat(fd, &now) && now.st_dev == st.st_dev && now.st_ino == st.st_ino &&
	    !flock(fd, LOCK_EX | LOCK_NB))
		unlinkat(directory, name, 0);
	close(fd);
}

void outfile_clean(int directory)
{
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	for (int i = 0; stream && i < OUTFILE_CLEAN_MAX && (entry = readdir(stream)); i++)
		if (is_temporary(entry->d_name))
			remove_abandoned(directory, entry->d_name);
	if (stream)
		closedir(stream);
	else if (fd >= 0)
		close(fd);
}

static int create_temporary(struct outfile *file)
{
	for (int i = 0; i < OUTFILE_TRIES; i++) {
		uint64_t number;

		/*
		 * Unpredictable: otherwise another user of the directory could create every name
		 * first.
		 */
		if (getrandom(&number, sizeof(number), 0) != sizeof(number))
			return error_errno();
		snprintf(file->temporary, sizeof(file->temporary), TEMPORARY, number);
		file->fd = openat(file->directory, file->temporary,
				  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (file->fd >= 0 && lock_temporary(file))
			return 0;
		if (file->fd >= 0)
			close(file->fd);
		else if (errno != EEXIST)
			break;
		file->fd = -1;
	}
	file->temporary[0] = '\0';
	return error_set(-errno, "cannot create a file in its directory: %s", strerror(errno));
}

static int file_new(struct outfile **out, const char *path)
{
	struct outfile *file = calloc(1, sizeof(*file));

	if (!file)
		return -ENOMEM;
	file->directory = -1;
	file->fd = -1;
	file->path = strdup(path);
	if (!file->path) {
		free(file);
		return -ENOMEM;
	}
	*out = file;
	return 0;
}

/* Starts a file whose directory and name are known; err: an earlier error. */
static int file_begin(struct outfile **out, struct outfile *file, int err)
{
	err = err ?: check_name(file) ?: create_temporary(file);
	if (err)
		outfile_discard(file);
	else
		*out = file;
	return err;
}

int outfile_on(struct outfile **out, int fd, const char *name)
{
	int err = file_new(out, name);

	if (err)
		return err;
	(*out)->fd = fd;
	(*out)->borrowed = 1;
	return 0;
}

int outfile_beside(struct outfile **out, const struct outfile *like, const char *suffix)
{
	/* A name that the caller lent is borrowed from the caller again. */
	int lent = like->name < like->path || like->name > like->path + strlen(like->path);
	struct outfile *file;
	char *path;

	if (like->directory < 0 || (lent && suffix[0]))
		return error_set(-ENOTSUP, "cannot create a file beside '%s'", like->path);
	if (asprintf(&path, "%s%s", like->path, suffix) < 0)
		return -ENOMEM;
	int err = file_new(&file, path);
	free(path);
	if (err)
		return err;
	file->name = lent ? like->name : file->path + (like->name - like->path);
	file->directory = fcntl(like->directory, F_DUPFD_CLOEXEC, 0);
	return file_begin(out, file, file->directory < 0 ? error_errno() : 0);
}

int outfile_again(struct outfile **out, const struct outfile *like)
{
	return like->directory < 0 ? outfile_on(out, like->fd, like->path)
				   : outfile_beside(out, like, "");
}

int outfile_location(const struct outfile *file, char *path, size_t bytes)
{
	char link[32];

	if (file->directory < 0)
		return error_set(-ENOTSUP, "'%s' has no name", file->path);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", file->directory);
	ssize_t length = readlink(link, path, bytes);
	if (length < 0)
		return error_set(-errno, "cannot find the directory of '%s': %s: %s", file->path,
				 link, strerror(errno));
	if ((size_t)length == bytes || strlen(file->name) + 2 > bytes - (size_t)length)
		return -ENAMETOOLONG;
	/* The root is "/" itself. */
	snprintf(path + length, bytes - (size_t)length, "%s%s", length > 1 ? "/" : "", file->name);
	return 0;
}

/* 0; -EEXIST if the file that has the name is none that tracer has written. */
static int check_own(const struct outfile *file)
{
	int fd =
		openat(file->directory, file->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return 0; /* there is none, or check_name() says why */
	int own = fstat(fd, &st) || !S_ISREG(st.st_mode) || outfile_is_own(fd);
	close(fd);
	return own ? 0
		   : error_set(-EEXIST,
			       "'%s' is no file that tracer has written; --force replaces it",
			       file->path);
}

int outfile_open(struct outfile **out, const char *path, enum outfile_replace replace)
{
	struct outfile *file;

	error_clear();
	if (!path[0])
		return error_set(-ENOENT, "empty file name");
	int err = file_new(&file, path);
	if (err)
		return err;
	if (!strcmp(path, "-")) {
		file->borrowed = 1;
		file->fd = STDOUT_FILENO;
		*out = file;
		return 0;
	}
	err = open_directory(file);
	if (!err && replace == OUTFILE_OWN)
		err = check_own(file);
	if (!err)
		outfile_clean(file->directory);
	return file_begin(out, file, err);
}

int outfile_open_at(struct outfile **out, int directory, const char *name, const char *shown)
{
	struct outfile *file;
	int err = file_new(&file, shown);

	if (err)
		return err;
	file->name = name;
	file->directory = fcntl(directory, F_DUPFD_CLOEXEC, 0);
	return file_begin(out, file, file->directory < 0 ? error_errno() : 0);
}

int outfile_fd(const struct outfile *file)
{
	return file->fd;
}

static int flush(struct outfile *file)
{
	int err = file->err ? 0 : descriptor_write(file->fd, file->buffer, file->used);

	if (err)
		file->err = error_set(err, "cannot write to '%s': %s", file->path, strerror(-err));
	file->used = 0;
	return file->err;
}

int outfile_write(struct outfile *file, const void *data, size_t bytes)
{
	const unsigned char *from = data;

	while (!file->err && bytes) {
		size_t n = sizeof(file->buffer) - file->used;

		if (n > bytes)
			n = bytes;
		memcpy(file->buffer + file->used, from, n);
		file->used += n;
		from += n;
		bytes -= n;
		if (file->used == sizeof(file->buffer))
			flush(file);
	}
	return file->err;
}

/* FILE.number; FILE itself for 0. */
static int kept_name(const struct outfile *file, unsigned int number, char name[NAME_MAX + 1])
{
	int size = snprintf(name, NAME_MAX + 1, number ? "%s.%u" : "%s", file->name, number);

	return size > NAME_MAX ? -ENAMETOOLONG : 0;
}

/*
 * Shifts from the oldest on. The newest keeps its name and has a second one until the new file
 * takes the first.
 */
static int kept_shift(const struct outfile *file, unsigned int keep)
{
	char from[NAME_MAX + 1], to[NAME_MAX + 1];
	int at = file->directory, err = 0;

	for (unsigned int number = keep - 1; !err && number > 0; number--) {
		struct stat st;

		err = kept_name(file, number, to) ?: kept_name(file, number - 1, from);
		if (err)
			break;
		if (!fstatat(at, to, &st, AT_SYMLINK_NOFOLLOW) && !S_ISREG(st.st_mode))
			return error_set(-EINVAL, "'%s' is not a regular file", to);
		if (fstatat(at, from, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		if (!S_ISREG(st.st_mode))
			return error_set(-EINVAL, "'%s' is not a regular file", from);
		if (number == 1 && (!unlinkat(at, to, 0) || errno == ENOENT) &&
		    !linkat(at, from, at, to, 0))
			continue;
		/* Not every file system has hard links. */
		if (renameat(at, from, at, to))
			err = error_errno();
	}
	return err;
}

int outfile_rotate(struct outfile *file, unsigned int keep)
{
	int err = file->temporary[0] ? kept_shift(file, keep) : 0;

	if (!err)
		return outfile_commit(file);
	error_set(err, "cannot keep the earlier files of '%s': %s", file->path, error_reason(err));
	outfile_discard(file);
	return err;
}

/* Everything but the name. 0, -errno. */
static int finish(struct outfile *file)
{
	int err = flush(file);

	/* A file system that cannot sync returns EINVAL. Others report a full disk here. */
	if (!err && file->temporary[0] && fsync(file->fd) && errno != EINVAL)
		err = error_errno();
	return err;
}

static int take_name(struct outfile *file, unsigned int flags)
{
	if (renameat2(file->directory, file->temporary, file->directory, file->name, flags))
		return error_errno();
	/* After an exchange it is the other file's, which is removed. */
	if (flags != RENAME_EXCHANGE)
		file->temporary[0] = '\0';
	return 0;
}

static int commit_end(struct outfile *file, int err)
{
	if (err && !file->err)
		error_set(err, "cannot finish '%s': %s", file->path, strerror(-err));
	outfile_discard(file);
	return err;
}

int outfile_commit(struct outfile *file)
{
	int err = finish(file);

	if (!err && file->temporary[0])
		err = take_name(file, 0);
	return commit_end(file, err);
}

int outfile_end(struct outfile *file, int err)
{
	if (!err)
		return outfile_commit(file);
	outfile_discard(file);
	return err;
}

int outfile_commit_unless(struct outfile *file, bool (*keep)(void *context), void *context)
{
	int err = finish(file);

	if (!err && file->temporary[0]) {
		err = take_name(file, RENAME_EXCHANGE);
		if (err == -ENOENT)
			err = take_name(file, RENAME_NOREPLACE);
		else if (err == -EINVAL)
			err = take_name(file, 0);
		else if (!err && keep(context))
			err = take_name(file, RENAME_EXCHANGE) ?: -EBUSY;
	}
	return commit_end(file, err);
}

void outfile_discard(struct outfile *file)
{
	if (!file)
		return;
	if (file->fd >= 0 && !file->borrowed)
		close(file->fd);
	if (file->temporary[0])
		unlinkat(file->directory, file->temporary, 0);
	descriptor_close(file->directory);
	free(file->path);
	free(file);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file read from its beginning to its end through a buffer, so that a parser does not need the
 * whole file in memory. Any kind of file works (a pipe, standard input as /dev/stdin).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct infile {
	int fd, ended;
	unsigned char *data;
	size_t at, end, capacity; /* read and not yet consumed: data[at, end) */
	uint64_t offset;          /* in the file, of data[0] */
	uint64_t left;            /* bytes that may still be read of the file */
};

/*
 * Does a regular file begin with that text, of at most 32 bytes? Others are not opened: a pipe
 * would lose its writer.
 */
bool infile_begins(const char *path, const char *text);
int infile_open(struct infile *file, const char *path); /* 0, -errno */
void infile_close(struct infile *file);                 /* once, after infile_open() */
/* The file ends for the reader so many bytes further on. Call it before the first read. */
static inline void infile_limit(struct infile *file, uint64_t bytes)
{
	file->left = bytes;
}
/* The same over the caller's bytes, for tests; not to be closed. */
static inline struct infile infile_memory(unsigned char *data, size_t bytes)
{
	return (struct infile){.fd = -1, .ended = 1, .data = data, .end = bytes, .capacity = bytes};
}
/* Reads on until at least bytes are buffered, or the file ends. 0 (check end - at), -errno. */
int infile_fill(struct infile *file, size_t bytes);

static inline uint64_t infile_offset(const struct infile *file)
{
	return file->offset + file->at;
}

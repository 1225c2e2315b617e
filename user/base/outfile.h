/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that appears whole or not at all: written beside its final name as a temporary file (mode
 * 0600 less umask, O_EXCL, no symlink followed) and renamed by outfile_commit(). Until then an
 * existing file of that name is untouched; afterwards it is replaced. A final name that is a
 * directory, a symlink or a device is refused at open, before any work is done ("-" writes to
 * stdout).
 */
#ifndef TRACER_BASE_OUTFILE_H
#define TRACER_BASE_OUTFILE_H

#include <stddef.h>

struct outfile;

int outfile_open(struct outfile **out, const char *path); /* 0, -errno. Calls outfile_clean(). */
/*
 * Removes the temporary files that killed processes of our user have left in a directory: those
 * that nobody has locked, as whoever writes one has. Of a directory that is very large a part is
 * looked at.
 */
void outfile_clean(int directory);
/*
 * The same in a directory that is open already: name has no slash and is borrowed until the end,
 * shown is the path for messages. The directory's descriptor stays the caller's.
 */
int outfile_open_at(struct outfile **out, int directory, const char *name, const char *shown);
/* Another one for the same name in the same directory, which is not looked up again. 0, -errno. */
int outfile_again(struct outfile **out, const struct outfile *file);
/*
 * The same with a suffix to the name. -ENOTSUP when file is not one of outfile_open()'s, or
 * standard output.
 */
int outfile_beside(struct outfile **out, const struct outfile *file, const char *suffix);
/*
 * Where the file will be, as an absolute path without symbolic links, with NUL. 0; -ENAMETOOLONG;
 * -ENOTSUP when it is standard output or outfile_on()'s; -errno.
 */
int outfile_location(const struct outfile *file, char *path, size_t bytes);
/*
 * Around a descriptor that is already open, and stays so; name is for messages. Commit only
 * flushes. 0, -ENOMEM.
 */
int outfile_on(struct outfile **out, int fd, const char *name);
/*
 * The descriptor, for somebody else to write to before anything is written here, or to give it an
 * owner and a mode. Borrowed.
 */
int outfile_fd(const struct outfile *file);
/* buffered; 0, -errno (sticky) */
int outfile_write(struct outfile *file, const void *data, size_t bytes);
/*
 * Flushes, syncs, renames and frees. On failure the temporary file is removed, the old file stays.
 * 0, -errno.
 */
int outfile_commit(struct outfile *file);
/*
 * The same, and the file that was there becomes NAME.1, that NAME.2 and so on: keep are kept, with
 * the new one. At no moment is there no NAME. Something that is not a regular file among them is an
 * error.
 */
int outfile_rotate(struct outfile *file, unsigned int keep);
/* removes the temporary file and frees; NULL is legal */
void outfile_discard(struct outfile *file);

#endif

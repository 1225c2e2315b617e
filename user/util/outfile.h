/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that appears complete or not at all: it is written beside its final name as a temporary
 * file (mode 0600 less umask, O_EXCL, no symlink followed) and renamed by outfile_commit(). Until
 * then an existing file of that name is untouched; afterwards it is replaced. A final name that is
 * a directory, a symlink or a device is refused at open, before any work is done ("-" writes to
 * stdout).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct outfile;

/*
 * What an existing file must be that the new one replaces: one that tracer has written, or an empty
 * one (outfile.c); or any regular file.
 */
enum outfile_replace { OUTFILE_OWN, OUTFILE_ANY };

/* 0; -EEXIST: the file is not one to replace; -errno. Calls outfile_clean(). */
int outfile_open(struct outfile **out, const char *path, enum outfile_replace replace);
/*
 * Removes the temporary files that killed processes of our user have left in a directory: those
 * that are not locked, since a writer holds a lock. In a very large directory only a part is
 * searched.
 */
void outfile_clean(int directory);
/*
 * The same in a directory that is already open. name has no slash and is borrowed until the file is
 * committed or discarded; shown is the path for messages. The directory's descriptor stays the
 * caller's.
 */
int outfile_open_at(struct outfile **out, int directory, const char *name, const char *shown);
/* Another file for the same name in the same directory, which is not resolved again. 0, -errno. */
int outfile_again(struct outfile **out, const struct outfile *file);
/*
 * The same with a suffix to the name. -ENOTSUP when file was not made by outfile_open(), or is
 * standard output.
 */
int outfile_beside(struct outfile **out, const struct outfile *file, const char *suffix);
/*
 * Where the file will be, as an absolute path without symbolic links, with NUL. 0; -ENAMETOOLONG;
 * -ENOTSUP for standard output and for files of outfile_on(); -errno.
 */
int outfile_location(const struct outfile *file, char *path, size_t bytes);
/*
 * Wraps a descriptor that is already open and stays open; name is for messages. Commit only
 * flushes. 0, -ENOMEM.
 */
int outfile_on(struct outfile **out, int fd, const char *name);
/*
 * The descriptor, borrowed: to write to it directly before anything is written here, or to set an
 * owner and a mode.
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
 * The same, but the existing file gets its name back if keep() says so, and the new file is
 * discarded: -EBUSY. keep() is called when no one can open the existing file by its name any more.
 * A file that appears meanwhile is not replaced (-EEXIST). (Where a file system has no flags for
 * renaming, it is replaced, and keep() is not called.)
 */
int outfile_commit_unless(struct outfile *file, bool (*keep)(void *context), void *context);
/*
 * The same as outfile_commit(), and the existing file becomes NAME.1, that NAME.2 and so on; keep
 * files are kept, including the new one. NAME exists at every moment. It is an error if one of them
 * is not a regular file.
 */
int outfile_rotate(struct outfile *file, unsigned int keep);
/* removes the temporary file and frees; NULL is legal */
void outfile_discard(struct outfile *file);
/* The end of writing: discards the file if that has failed, else commits it. 0; err; -errno. */
int outfile_end(struct outfile *file, int err);

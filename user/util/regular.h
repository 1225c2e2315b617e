/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens what others have named: regular files, and folders that such files lie in. Two things may
 * go wrong with a name, and neither does here:
 *
 * - The type. Opening a FIFO would block, and opening a device may have side effects. So the type
 *   is checked before a file is opened.
 * - The file system. One that is served by another process or machine (FUSE, NFS, SMB) may never
 *   answer, and a task that waits for it cannot always be killed. So a process of its own,
 *   "tracer-files", follows every path, and answers by a descriptor whose use never waits: the file
 *   itself on a local file system, else a copy of it in memory, which that process has made.
 *
 *   If there is no progress for REGULAR_WAIT_MS, or if we are asked to end meanwhile, the process
 *   is left behind and the result is -ETIMEDOUT. The same question is then not asked again for
 *   REGULAR_AGAIN_MS.
 *
 * Local are file systems of this machine's kernel and memory, and what our own root lies on. An
 * overlay is local if it is also mounted where we are: then root has mounted it. One that a user
 * has mounted in a namespace of its own may lie on anything.
 *
 * Probes are placed in the file itself, whatever its content was read from: regular_origin().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define REGULAR_WAIT_MS  1000
#define REGULAR_AGAIN_MS 30000
#define REGULAR_COPY_MAX (512ull << 20) /* bytes of a file that is copied */
#define REGULAR_KEPT_MAX (1ull << 30)   /* bytes of all copies of a process, which it keeps */

/*
 * resolve: flags of openat2(), RESOLVE_…; 0 follows every link. Returns a descriptor for reading;
 * -EINVAL: not a regular file; -EISDIR; -ETIMEDOUT, -EFBIG, with error_set(); -errno.
 */
int regular_open(int directory, const char *path, uint64_t resolve);
/* The same for a descriptor opened with O_PATH, which stays open. */
int regular_reopen(int path_fd);
/* fstat() of the file that was opened, also if the descriptor is a copy's. 0, -errno. */
int regular_stat(int fd, struct stat *out);
/*
 * A descriptor of the file itself: fd, or for a copy one that was opened with O_PATH, and belongs
 * to this module. The pages of the file are in memory then, as far as can be: placing a probe in
 * one that is not would wait for its file system within the kernel. -ETIMEDOUT; -errno.
 */
int regular_origin(int fd);
/* Is it the descriptor of a copy? */
bool regular_is_copy(int fd);

/*
 * For a process that was forked and is about to close the descriptors that it has inherited: those
 * of this module are closed, and their numbers forgotten.
 */
void regular_forget(void);

/* A folder, opened with O_PATH, for the functions here. -ENOTDIR; -ETIMEDOUT; -errno. */
int regular_folder(int directory, const char *path, uint64_t resolve);
/* Does no use of an open folder wait for others? 1, 0; -ETIMEDOUT; -errno. */
int regular_is_local(int folder);
/*
 * Calls each() with the names in a folder, without "." and "..", until it returns another value
 * than 0, which is returned. -E2BIG after max names; -ETIMEDOUT; -errno.
 */
int regular_names(int folder, size_t max, int (*each)(void *context, const char *name),
		  void *context);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /tmp as a process sees it, and files in it that the process may have planted. Symlinks of the
 * target are never followed: the directory is opened with openat2(RESOLVE_IN_ROOT |
 * RESOLVE_NO_SYMLINKS) under /proc/PID/root, and files are checked before they are opened.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/*
 * Returns a descriptor of /tmp in the root of that process, for *at() calls; pid 0: our own. -ELOOP
 * it is a symlink; -errno.
 */
int tmp_dir_open(pid_t pid);
/*
 * Opens a file in it, if it is regular, has a single link and belongs to root, to us or to user
 * uid. flags: O_RDONLY, or O_RDWR | O_APPEND. Returns a descriptor; -ENOENT; -EPERM it belongs to
 * another user, -ELOOP a symlink, -EINVAL not a regular file, -EXDEV something is mounted there,
 * all with error_set(); -errno.
 */
int tmp_dir_file(int directory, const char *name, uint32_t uid, int flags);
/*
 * The same for a file that the process has open, by descriptor number. The file may have been
 * unlinked.
 */
int tmp_dir_descriptor(pid_t pid, const char *number, uint32_t uid);

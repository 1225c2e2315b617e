/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /tmp as a process sees it, and files there that it may have planted. No symlink of the target's
 * is ever followed: the directory is opened with openat2(RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS)
 * under /proc/PID/root, files are looked at before they are opened.
 */
#ifndef TRACER_PROCESS_TMP_DIR_H
#define TRACER_PROCESS_TMP_DIR_H

#include <stdint.h>
#include <sys/types.h>

/*
 * A descriptor of /tmp in the root of that process, for *at() calls; pid 0: our own. -ELOOP it is a
 * symlink; -errno.
 */
int tmp_dir_open(pid_t pid);
/*
 * Opens a file there for reading, if it is regular, has one name only and belongs to root, to us or
 * to that user. A descriptor; -ENOENT; -EPERM somebody else's, -ELOOP a symlink, -EINVAL no regular
 * file, all with error_set(); -errno.
 */
int tmp_dir_file(int directory, const char *name, uint32_t uid);
/*
 * The same of a file that the process has open, by the number of its descriptor; the file's name
 * may be gone.
 */
int tmp_dir_descriptor(pid_t pid, const char *number, uint32_t uid);

#endif

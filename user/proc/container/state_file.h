/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State files of other programs (container runtimes). They are untrusted. A directory may be
 * reached through symlinks, as an administrator sets them up (/var/lib/docker on another disk), but
 * not outside the root in which it is looked up. A file may not be reached through symlinks. Only
 * regular files are read, up to a size limit, without blocking.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>

#include "util/buffer.h"

#define STATE_ENTRIES_MAX 65536      /* entries of a directory that are read */
#define STATE_VALUES_MAX  (1u << 19) /* values of a JSON file */
#define STATE_FILE_COST   1024u      /* bytes that could be read in the time of opening a file */

/* Opens the root of process pid (0: ours), to look names up in. Returns a descriptor or -errno. */
int state_root_open(pid_t pid);
/* Opens a directory in that root. Returns a descriptor or -errno. */
int state_dir_open(pid_t pid, const char *path);
/* Opens a directory below another one, following no symlinks. Returns a descriptor or -errno. */
int state_dir_below(int directory, const char *path);
/*
 * Reads a file below a directory, following no symlinks. out is NUL-terminated; the NUL is not
 * counted. 0; -EFBIG beyond max bytes; -EINVAL not a regular file; -errno.
 */
int state_file_read(int directory, const char *path, size_t max, struct buffer *out);
/*
 * Reads a file as a JSON object or array. The caller releases *out with json_decref(). bytes may be
 * NULL; *bytes is the number of bytes read, also on failure. 0; -EBADMSG not JSON; -EFBIG also
 * beyond STATE_VALUES_MAX values, as each costs about a hundred bytes of memory; otherwise as
 * state_file_read().
 */
int state_json_read(int directory, const char *path, size_t max, size_t *bytes, json_t **out);
/* Reads a file that holds one process id. 0: no such file, or not a number. */
pid_t state_pid_read(int directory, const char *path);
/*
 * Calls each for every entry of a directory except "." and "..", until it returns non-zero. Returns
 * that value; -E2BIG after STATE_ENTRIES_MAX entries; -errno.
 */
int state_dir_each(int directory, int (*each)(void *context, int directory, const char *name),
		   void *context);
/* A string member of an object; "" if there is none. Borrowed from the object. */
const char *state_text(const json_t *object, const char *key);

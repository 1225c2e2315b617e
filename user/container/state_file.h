/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files in which others keep their state (container runtimes): hostile. A directory may be reached
 * through links, as an administrator places them (/var/lib/docker on another disk), but never out
 * of the root that it is looked up in; a file in it may not. Only regular files are read, at most
 * so much of them, and nothing is waited for.
 */
#ifndef TRACER_CONTAINER_STATE_FILE_H
#define TRACER_CONTAINER_STATE_FILE_H

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buffer.h"

#define STATE_ENTRIES_MAX 65536      /* of a directory that are looked at */
#define STATE_VALUES_MAX  (1u << 19) /* of a JSON file */
#define STATE_FILE_COST   1024u      /* bytes that could be read while a file is opened */

/* The root of process pid (0: ours), to look names up in. A descriptor; -errno. */
int state_root_open(pid_t pid);
/* A directory in that root. A descriptor; -errno. */
int state_dir_open(pid_t pid, const char *path);
/* A directory below another one, no link on the way. A descriptor; -errno. */
int state_dir_below(int directory, const char *path);
/*
 * A file below a directory, no link on the way, NUL-terminated (not counted). 0; -EFBIG beyond max
 * bytes; -EINVAL no regular file; -errno.
 */
int state_file_read(int directory, const char *path, size_t max, struct buffer *out);
/*
 * The same, as a JSON object or array. *out is the caller's: json_decref(). *bytes, if not NULL:
 * what was read of it, whatever came of that. 0; -EBADMSG no JSON; -EFBIG also beyond
 * STATE_VALUES_MAX values, each of which costs a hundred bytes of memory; as above.
 */
int state_json_read(int directory, const char *path, size_t max, size_t *bytes, json_t **out);
/* A process id, alone in a file. It; 0: no such file or no number. */
pid_t state_pid_read(int directory, const char *path);
/*
 * Calls each with the name of every entry of a directory ("." and ".." left out) until it returns
 * other than 0, which is returned then; -E2BIG there are more than STATE_ENTRIES_MAX, those were
 * handed out; -errno.
 */
int state_dir_each(int directory, int (*each)(void *context, int directory, const char *name),
		   void *context);
/* A member of an object that is a string, "" for any other. Borrowed from the object. */
const char *state_text(const json_t *object, const char *key);

#endif

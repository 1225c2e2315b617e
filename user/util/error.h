/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors: leaves return a negative errno and may leave a reason behind; the layer that knows what
 * the user asked for prints one line: what failed, on which target, why, and the remedy.
 *
 * A reason is a short text kept per thread: error_set() stores it and returns the errno, so that a
 * leaf reads "return error_set(-EINVAL, "section %u ends beyond the file", i);". The next
 * error_set() replaces it. An error of the kernel's is error_errno(), which has none.
 */
#pragma once

#include <errno.h>

/*
 * Stores a reason (printf style, no final full stop, cut at 255 bytes) and returns err, which is
 * negative.
 */
int error_set(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Forgets the stored reason. Call it where an operation begins whose error will be printed:
 * otherwise an error of the same number without a reason is printed with the old one.
 */
void error_clear(void);
/* Forgets the stored reason if it belongs to err. */
void error_forget(int err);
/*
 * -errno. Forgets a stored reason of the same number, which was another error's. That of another
 * number stays: it may be of an error that is on its way to the user, past a step that fails, too.
 */
static inline int error_errno(void)
{
	int err = -errno;

	error_forget(err);
	return err;
}
/*
 * The stored reason if it belongs to err, else strerror(-err). Borrowed until the next error_set().
 */
const char *error_reason(int err);

/*
 * Prints "tracer: WHAT: REASON; REMEDY" on stderr, on one line; control characters (the target's
 * names may hold any) come out as \xNN. remedy may be NULL; those of -EROFS, and of -EMFILE without
 * a stored reason, are added. Returns err.
 */
int error_print(int err, const char *remedy, const char *what, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Print a caveat on stderr, "tracer: …": log_info() unless log_level is 0, log_debug() only with
 * -v.
 */
extern int log_level; /* 0 quiet, 1 normal, 2 verbose; set once by cli/ before anything else runs */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

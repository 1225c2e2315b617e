/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allow list of files, by Landlock, for a process that keeps the user id 0: what belongs to
 * root could be opened by it without any capability.
 */
#pragma once

#include <stddef.h>

enum files_right {
	FILES_LIST,  /* names of a folder and those below it */
	FILES_READ,  /* that, and files below it */
	FILES_WRITE, /* one file, which is read and written */
};

struct files_rule {
	const char *path; /* NULL, or of nothing that exists: no rule */
	enum files_right right;
};

/*
 * Applies to this thread and its future children; it cannot be undone. A file that no rule allows
 * cannot be opened (EACCES); what is open stays so. no_new_privs must be set (privileges_drop()).
 * 0; -ENOTSUP: the kernel has no Landlock (it came with 5.13, and may be off), or a container's
 * system call filter refuses it; -errno.
 */
int files_limit(const struct files_rule *rules, size_t count);

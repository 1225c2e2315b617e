/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extension modules of a Python interpreter's standard library (lib-dynload), which a program
 * may map later. They are looked for where the interpreter itself looks: below the folders that its
 * file is in, in the root of the process. The process may have planted folder and files: symbolic
 * links are not followed, and only regular files are opened.
 */
#ifndef TRACER_UNWIND_LOAD_MODULES_H
#define TRACER_UNWIND_LOAD_MODULES_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#define UNWIND_MODULE_BYTES (4u << 20) /* of a file; larger ones are left out */
#define UNWIND_MODULE_NAMES 1024u      /* of the folder; further ones are not looked at */
#define UNWIND_MODULE_ABOVE 6u         /* folders above the interpreter's file */

struct unwind_modules {
	int fd;     /* of the folder */
	char *path; /* as the process sees it */
};

/*
 * Takes the descriptor and the path (NULL: no memory for it). Not 0: no further one is wanted.
 */
typedef int (*unwind_module_fn)(void *context, int fd, char *path);

/*
 * interpreter: of a file that the process maps as code. 0; -ENOENT: there is no such folder;
 * -errno.
 */
int unwind_modules_open(struct unwind_modules *out, pid_t pid, const struct stat *interpreter,
			uint32_t version_hex);
void unwind_modules_each(const struct unwind_modules *modules, unwind_module_fn each,
			 void *context);
void unwind_modules_close(struct unwind_modules *modules);

#endif

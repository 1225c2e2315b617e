/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocators of running processes: every file that they have mapped code of is looked at once,
 * by its inode, however many processes map it, and kept in mind also if it has none. So a process
 * more costs its maps and a look at each file.
 */
#ifndef TRACER_PLAN_PLAN_NATIVE_PROCESS_H
#define TRACER_PLAN_PLAN_NATIVE_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

#include "elf/elf_file.h"
#include "plan/plan_native.h"
#include "process/process.h"

/*
 * A file with an allocator. Both are the cache's, and the same for everyone who asks: probe each
 * plan once.
 */
struct plan_file {
	struct elf_file *file;
	const struct plan *plan; /* all of it may be missing: no sites */
};

struct plan_native_cache;

/*
 * CPU time for files of one process that were not seen before; a hundred libraries take a quarter
 * of a second.
 */
#define PLAN_NATIVE_SHARE_NS 2000000000ull

/* opts: copied, what it points to is borrowed until the cache is freed; NULL: none. 0, -ENOMEM. */
int plan_native_cache_new(struct plan_native_cache **out, const struct plan_native_opts *opts);
void plan_native_cache_free(struct plan_native_cache *cache);

/*
 * The files with an allocator among those that the process has mapped code of, each once, in the
 * order of their addresses; none is no error. A file that cannot be looked into is told (log_info),
 * once; so are those that are left when the others have taken PLAN_NATIVE_SHARE_NS. 0, the caller
 * frees *list (free()); -ESRCH, -EPERM, -ENOMEM.
 */
int plan_native_process(pid_t pid, struct plan_native_cache *cache, struct plan_file **list,
			size_t *count);
/*
 * The same of a single map, as when a library was loaded. 1 and *out; 0 it has no allocator;
 * -ENOMEM.
 */
int plan_native_map(pid_t pid, const struct process_map *map, struct plan_native_cache *cache,
		    struct plan_file *out);
/*
 * Once all targets have been asked for: is there a function of the user's that no file of theirs
 * has, or that cannot be probed there? 0; -ENOENT, -ENOTSUP, error_set names file and function.
 */
int plan_native_unfound(const struct plan_native_cache *cache);
/* How many files have been looked at. */
size_t plan_native_files(const struct plan_native_cache *cache);

/* On stdout, as plan_print(). */
void plan_native_print(pid_t pid, const struct plan_file *list, size_t count);

#endif

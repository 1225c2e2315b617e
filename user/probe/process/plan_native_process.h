/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocators of running processes. Every file of which a process has mapped code is inspected
 * once, by its inode, however many processes map it. The result is cached, also if the file has no
 * allocator. So each further process costs reading its maps and a lookup per file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "object/elf/elf_file.h"
#include "probe/malloc/plan_native.h"
#include "proc/process.h"

/*
 * A file with an allocator. Both are the cache's, and shared by all processes: probe each plan
 * once.
 */
struct plan_file {
	struct elf_file *file;
	const struct plan *plan; /* may have no sites: then all functions are missing */
};

struct plan_native_cache;

/* CPU time for the new files of one process; a hundred libraries take a quarter of a second. */
#define PLAN_NATIVE_SHARE_NS 2000000000ull

/* opts: copied; what it points to is borrowed until the cache is freed; NULL: none. 0, -ENOMEM. */
int plan_native_cache_new(struct plan_native_cache **out, const struct plan_native_opts *opts);
void plan_native_cache_free(struct plan_native_cache *cache);

/*
 * Lists the files with an allocator of which the process has mapped code, each once, in the order
 * of their addresses; none is no error. If some have the probes of a process that samples itself
 * (plan_provider.h), only these are listed. The first file that cannot be read is logged
 * (log_info), as is the number of files skipped once the others took PLAN_NATIVE_SHARE_NS. 0, the
 * caller frees *list (free()); -ESRCH, -EPERM, -ENOMEM.
 */
int plan_native_process(pid_t pid, struct plan_native_cache *cache, struct plan_file **list,
			size_t *count);
/* Does the process of this list sample itself? Then no file without its probes is in the list. */
bool plan_native_is_self_sampled(const struct plan_file *list, size_t count);
/*
 * Is there a user's function that no file of any target has, or that cannot be probed there? Call
 * it once all targets were planned. 0; -ENOENT, -ENOTSUP (error_set names file and function).
 */
int plan_native_unfound(const struct plan_native_cache *cache);
/* The number of files that were inspected. */
size_t plan_native_files(const struct plan_native_cache *cache);

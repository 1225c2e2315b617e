/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans by file: the analysis of a stripped interpreter takes up to a second, and what is traced at
 * once often runs the same one. Which files may be the same their build ids say; that they are,
 * their bytes: a build id is easily forged, and probes placed by another file's plan would crash
 * the process.
 */
#ifndef TRACER_PLAN_PLAN_CACHE_H
#define TRACER_PLAN_PLAN_CACHE_H

#include "plan/plan.h"
#include "python/runtime_files.h"

struct plan_cache;

int plan_cache_new(struct plan_cache **out);
void plan_cache_free(struct plan_cache *cache);
/*
 * As plan_python(); a copy of what that said of the same bytes and wishes before, if it was asked.
 * NULL: no cache.
 */
int plan_cache_python(struct plan_cache *cache, struct elf_file *file, const struct plan_opts *opts,
		      struct plan *out);
/* What is known of files with and without a runtime. Borrowed; NULL without a cache. */
struct runtime_files *plan_cache_files(struct plan_cache *cache);
/* How many files have been analysed. */
size_t plan_cache_count(const struct plan_cache *cache);

#endif

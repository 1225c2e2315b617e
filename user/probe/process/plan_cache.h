/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches plans by file: the analysis of a stripped interpreter takes up to a second, and processes
 * traced together often run the same one. The build id selects files that may be the same; their
 * bytes are compared to be sure. A build id is easily forged, and probes placed by another file's
 * plan would crash the process.
 */
#pragma once

#include "probe/python/plan.h"
#include "runtime/cpython/runtime_files.h"

struct plan_cache;

int plan_cache_new(struct plan_cache **out);
void plan_cache_free(struct plan_cache *cache);
/* As plan_python(), or its result for the same bytes and options. NULL: no cache. */
int plan_cache_python(struct plan_cache *cache, struct elf_file *file, const struct plan_opts *opts,
		      struct plan *out);
/* What is known about files with and without a runtime. Borrowed; NULL without a cache. */
struct runtime_files *plan_cache_files(struct plan_cache *cache);
/* The number of files that were analysed. */
size_t plan_cache_count(const struct plan_cache *cache);

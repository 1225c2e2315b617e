/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/process/plan_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "object/elf/elf_file.h"
#include "util/array.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/regular.h"

#define COMPARE_BYTES (64u << 10)

struct cached {
	int fd; /* the file, for comparisons */
	char *build_id;
	struct plan_opts opts;
	struct plan plan;
};

struct plan_cache {
	struct cached *entries;
	size_t count, capacity;
	struct runtime_files *files;
};

static int bytes_same(int a, int b)
{
	struct stat of_a, of_b;
	off_t offset = 0;
	int same = 0;

	if (regular_stat(a, &of_a) || regular_stat(b, &of_b) || of_a.st_size != of_b.st_size)
		return 0;
	if (of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino)
		return 1;
	uint8_t *bytes = malloc(2 * (size_t)COMPARE_BYTES);
	while (bytes && offset < of_a.st_size) {
		ssize_t got = pread(a, bytes, COMPARE_BYTES, offset);

		if (got <= 0 || pread(b, bytes + COMPARE_BYTES, got, offset) != got ||
		    memcmp(bytes, bytes + COMPARE_BYTES, got))
			break;
		offset += got;
	}
	same = offset == of_a.st_size;
	free(bytes);
	return same;
}

static struct plan *plan_find(struct plan_cache *cache, struct elf_file *file,
			      const struct plan_opts *opts)
{
	for (size_t i = 0; i < cache->count; i++) {
		struct cached *entry = &cache->entries[i];

		if (!memcmp(&entry->opts, opts, sizeof(*opts)) &&
		    !strcmp(entry->build_id, elf_file_build_id(file)) &&
		    bytes_same(entry->fd, elf_file_fd(file)))
			return &entry->plan;
	}
	return NULL;
}

static void cached_free(struct cached *entry)
{
	descriptor_close(entry->fd);
	free(entry->build_id);
	plan_free(&entry->plan);
}

/* Keeps the plan, too. Failure is ignored: it is used either way. */
static void plan_keep(struct plan_cache *cache, const struct elf_file *file,
		      const struct plan_opts *opts, struct plan *plan)
{
	struct cached entry = {.opts = *opts,
			       .fd = fcntl(elf_file_fd(file), F_DUPFD_CLOEXEC, 0),
			       .build_id = strdup(elf_file_build_id(file))};

	if (entry.fd < 0 || !entry.build_id || plan_share(&entry.plan, plan) ||
	    ARRAY_GROW(cache->entries, cache->capacity, cache->count))
		cached_free(&entry);
	else
		cache->entries[cache->count++] = entry;
}

int plan_cache_new(struct plan_cache **out)
{
	struct plan_cache *cache = calloc(1, sizeof(*cache));

	if (!cache || runtime_files_new(&cache->files)) {
		free(cache);
		return -ENOMEM;
	}
	*out = cache;
	return 0;
}

void plan_cache_free(struct plan_cache *cache)
{
	if (!cache)
		return;
	for (size_t i = 0; i < cache->count; i++)
		cached_free(&cache->entries[i]);
	runtime_files_free(cache->files);
	free(cache->entries);
	free(cache);
}

int plan_cache_python(struct plan_cache *cache, struct elf_file *file, const struct plan_opts *opts,
		      struct plan *out)
{
	struct plan *known = cache ? plan_find(cache, file, opts) : NULL;

	if (known) {
		log_debug("%s: the plan is that of the same file before", elf_file_path(file));
		return plan_share(out, known);
	}
	int err = plan_python(file, opts, out);
	if (!err && cache)
		plan_keep(cache, file, opts, out);
	return err;
}

size_t plan_cache_count(const struct plan_cache *cache)
{
	return cache->count;
}

struct runtime_files *plan_cache_files(struct plan_cache *cache)
{
	return cache ? cache->files : NULL;
}

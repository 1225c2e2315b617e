/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file is identified by stat() of the mapped inode: device and number, plus size and times in
 * case the file was written to or the number reused. A file with an allocator stays open, which
 * keeps its number from being reused.
 */
#include "probe/process/plan_native_process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "probe/malloc/plan_provider.h"
#include "probe/python/function_option.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/regular.h"

/* Files without an allocator that are remembered; then they are read again. */
#define EMPTY_FILES_MAX 4096u

struct identity {
	uint64_t device, inode;
	int64_t size, modified_s, modified_ns, changed_s, changed_ns;
};

struct cached_file {
	struct identity identity;
	struct elf_file *file; /* NULL: it has no allocator */
	struct plan *plan;     /* a pointer, because the array moves */
};

struct plan_native_cache {
	struct plan_native_opts opts;
	struct cached_file *files; /* sorted by identity */
	size_t count, capacity, empty;
	struct seen {
		unsigned file : 1, function : 1;
		char refused[128]; /* why the function is not probed */
	} * seen;                  /* for each of opts.allocs: which targets have it */
	int refused;               /* number of files that could not be opened */
};

int plan_native_cache_new(struct plan_native_cache **out, const struct plan_native_opts *opts)
{
	struct plan_native_cache *cache = calloc(1, sizeof(*cache));

	if (cache && opts)
		cache->opts = *opts;
	if (cache)
		cache->seen = calloc(cache->opts.alloc_count + 1, sizeof(*cache->seen));
	if (!cache || !cache->seen) {
		free(cache);
		return -ENOMEM;
	}
	*out = cache;
	return 0;
}

static void cached_file_free(struct cached_file *known)
{
	plan_free(known->plan);
	free(known->plan);
	elf_file_close(known->file);
}

void plan_native_cache_free(struct plan_native_cache *cache)
{
	if (!cache)
		return;
	for (size_t i = 0; i < cache->count; i++)
		cached_file_free(&cache->files[i]);
	free(cache->files);
	free(cache->seen);
	free(cache);
}

size_t plan_native_files(const struct plan_native_cache *cache)
{
	return cache->count;
}

static int identity_read(int fd, struct identity *out)
{
	struct stat st;

	if (regular_stat(fd, &st))
		return error_errno();
	*out = (struct identity){.device = st.st_dev,
				 .inode = st.st_ino,
				 .size = st.st_size,
				 .modified_s = st.st_mtim.tv_sec,
				 .modified_ns = st.st_mtim.tv_nsec,
				 .changed_s = st.st_ctim.tv_sec,
				 .changed_ns = st.st_ctim.tv_nsec};
	return 0;
}

/* *at: the file's index, or where to insert it. 1: it is known. */
static int cached_file_find(const struct plan_native_cache *cache, const struct identity *identity,
			    size_t *at)
{
	size_t low = 0, high = cache->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (memcmp(&cache->files[middle].identity, identity, sizeof(*identity)) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*at = low;
	return low < cache->count &&
	       !memcmp(&cache->files[low].identity, identity, sizeof(*identity));
}

static void allocs_check(struct plan_native_cache *cache, const char *path, struct elf_file *file)
{
	for (size_t i = 0; i < cache->opts.alloc_count; i++) {
		const struct plan_alloc *alloc = &cache->opts.allocs[i];

		cache->seen[i].file |= function_option_is_in(alloc->file, path);
		cache->seen[i].function |= file && plan_alloc_is_in(alloc, file);
	}
}

/* Records which of the user's functions are in the file but cannot be probed. */
static void refusals_record(struct plan_native_cache *cache, const char *path,
			    const struct plan *plan)
{
	for (size_t i = 0; i < cache->opts.alloc_count; i++)
		for (size_t m = 0; m < plan->missing_count; m++)
			if (!strcmp(cache->opts.allocs[i].symbol, plan->missing[m].symbol) &&
			    function_option_is_in(cache->opts.allocs[i].file, path))
				snprintf(cache->seen[i].refused, sizeof(cache->seen[i].refused),
					 "%s", plan->missing[m].why);
}

/*
 * Plans the file, and takes the descriptor. 0; known->file is NULL if it has no allocator; -ENOMEM.
 */
static int cached_file_fill(struct plan_native_cache *cache, int fd, const char *path,
			    struct cached_file *known)
{
	struct plan *plan = calloc(1, sizeof(*plan));
	struct elf_file *file = NULL;

	error_clear();
	int err = plan ? elf_file_open(&file, fd, path, NULL) : -ENOMEM;
	if (err)
		close(fd);
	allocs_check(cache, path, file);
	err = err ?: plan_native_layer(file, &cache->opts, plan);
	if (err) {
		/*
		 * Files that are not ELF are skipped silently: what a JIT has mapped, for example.
		 */
		if (err != -ENOENT && file)
			log_info("%s: its allocators cannot be found: %s", path, error_reason(err));
		elf_file_close(file);
		free(plan);
		return err == -ENOMEM ? err : 0;
	}
	refusals_record(cache, path, plan);
	/*
	 * The file stays open, like every file with an allocator. Its symbol tables take too much
	 * memory to keep.
	 */
	elf_file_forget(file);
	known->file = file;
	known->plan = plan;
	return 0;
}

/* Nobody refers to a file that has no allocator. */
static void empty_files_drop(struct plan_native_cache *cache)
{
	size_t kept = 0;

	for (size_t i = 0; i < cache->count; i++)
		if (cache->files[i].file)
			cache->files[kept++] = cache->files[i];
	cache->count = kept;
	cache->empty = 0;
}

static int cached_file_add(struct plan_native_cache *cache, size_t at, int fd, const char *path,
			   const struct identity *identity)
{
	struct cached_file known = {.identity = *identity};
	int err = ARRAY_GROW(cache->files, cache->capacity, cache->count);

	if (err) {
		close(fd);
		return err;
	}
	err = cached_file_fill(cache, fd, path, &known);
	if (err)
		return err;
	memmove(&cache->files[at + 1], &cache->files[at],
		(cache->count - at) * sizeof(*cache->files));
	cache->files[at] = known;
	cache->count++;
	cache->empty += !known.file;
	return 0;
}

/* Device memory, and memory of a process that has ended, hold no allocator: not logged. */
static void refusal_log(struct plan_native_cache *cache, pid_t pid, const struct process_map *map,
			int err)
{
	if (err == -EINVAL || err == -ENOENT || err == -ESRCH)
		return;
	if (!cache->refused++)
		log_info("PID %d: %s cannot be read: %s (further ones: -v)", pid, map->path,
			 error_reason(err));
	else
		log_debug("PID %d: %s cannot be read: %s", pid, map->path, error_reason(err));
}

/* Of a single map. 1 and *out; 0 it has no allocator; -ENOMEM. */
static int plan_native_map(pid_t pid, const struct process_map *map,
			   struct plan_native_cache *cache, struct plan_file *out)
{
	struct identity identity;
	int fd, err = 0;
	size_t at;

	error_clear();
	if (!map->inode || !map->executable)
		return 0;
	fd = process_map_open(pid, map);
	if (fd < 0) {
		refusal_log(cache, pid, map, fd);
		return 0;
	}
	if (identity_read(fd, &identity)) {
		close(fd);
		return 0;
	}
	if (cache->empty >= EMPTY_FILES_MAX)
		empty_files_drop(cache);
	if (cached_file_find(cache, &identity, &at))
		close(fd);
	else
		err = cached_file_add(cache, at, fd, map->path, &identity);
	if (err)
		return err;
	if (!cache->files[at].file)
		return 0;
	*out = (struct plan_file){cache->files[at].file, cache->files[at].plan};
	return 1;
}

static bool list_has(const struct plan_file *list, size_t count, const struct plan *plan)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].plan == plan)
			return 1;
	return 0;
}

/* A file may have many maps, mostly adjacent: skips those of the file that was just inspected. */
static bool is_same_file(const struct process_map *a, const struct process_map *b)
{
	return a->inode == b->inode && a->device_major == b->device_major &&
	       a->device_minor == b->device_minor;
}

/* 1: the process's new files took too long; the rest are skipped. */
static bool is_too_slow(uint64_t began_ns)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID) - began_ns > PLAN_NATIVE_SHARE_NS;
}

/* In a process that samples itself, no other file is probed. Returns the number that is left. */
static size_t providers_keep(struct plan_file *list, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		if (list[i].plan->self_sampled)
			list[kept++] = list[i];
	return kept ? kept : count;
}

bool plan_native_is_self_sampled(const struct plan_file *list, size_t count)
{
	return count && list[0].plan->self_sampled;
}

int plan_native_process(pid_t pid, struct plan_native_cache *cache, struct plan_file **list,
			size_t *count)
{
	uint64_t began_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	const struct process_map *last = NULL;
	struct plan_file *found = NULL;
	size_t found_count = 0, capacity = 0, skipped = 0;
	struct process_maps maps;
	int err = process_maps_read(pid, &maps);

	if (err)
		return err;
	for (size_t i = 0; i < maps.count && !err; i++) {
		const struct process_map *map = &maps.entries[i];
		struct plan_file file;

		if (!map->executable || (last && is_same_file(map, last)))
			continue;
		last = map;
		if (is_too_slow(began_ns)) {
			skipped++;
			continue;
		}
		int has = plan_native_map(pid, map, cache, &file);
		if (has < 0)
			err = has;
		else if (has && !list_has(found, found_count, file.plan))
			err = ARRAY_GROW(found, capacity, found_count);
		else
			continue;
		if (!err)
			found[found_count++] = file;
	}
	process_maps_free(&maps);
	if (skipped)
		log_info("PID %d: %zu of its mapped files are not searched for "
			 "allocators: the others took more than %llu s",
			 pid, skipped, PLAN_NATIVE_SHARE_NS / 1000000000);
	if (err) {
		free(found);
		return err;
	}
	*list = found;
	*count = providers_keep(found, found_count);
	return 0;
}

int plan_native_unfound(const struct plan_native_cache *cache)
{
	for (size_t i = 0; i < cache->opts.alloc_count; i++) {
		const struct plan_alloc *alloc = &cache->opts.allocs[i];

		if (!cache->seen[i].file)
			return error_set(-ENOENT,
					 "no target has mapped a file %s with a function %s",
					 alloc->file, alloc->symbol);
		if (!cache->seen[i].function)
			return error_set(-ENOENT, "the targets' %s has no function %s", alloc->file,
					 alloc->symbol);
		if (cache->seen[i].refused[0])
			return error_set(-ENOTSUP, "%s of %s is not probed: %s", alloc->symbol,
					 alloc->file, cache->seen[i].refused);
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind_load/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/regular.h"
#include "process/process.h"
#include "tables/id_map.h"
#include "unwind_load/lane.h"
#include "unwind_load/modules.h"

#define KERNEL_MINOR_BITS 20

/* A small file does not wait for large ones, nor a mapped one for those that may be mapped. */
enum lanes { LANE_SMALL, LANE_LARGE, LANE_EXPECTED, LANES };

#define ROWS_OF_FOLDER 0xffu /* instead of enum abi_unwind_rows: the key is a folder's */

struct unwind_loader {
	struct unwind_loader_opts opts;
	struct unwind_store *store;
	struct lane lanes[LANES];
	struct id_map known; /* hashes of the keys that were published or queued */
	uint64_t absent, failed;
};

static uint64_t key_hash(const struct abi_unwind_key *key)
{
	return hash_u64(key->inode ^ hash_u64(key->changed_ns ^
					      hash_u64(key->device | (uint64_t)key->rows << 32)));
}

static void table_dropped(void *context, const struct abi_unwind_key *key)
{
	struct unwind_loader *loader = context;

	id_map_remove(&loader->known, key_hash(key));
	loader->opts.publish(loader->opts.context, key, ABI_UNWIND_WANTED);
}

int unwind_loader_new(struct unwind_loader **out, const struct unwind_loader_opts *opts)
{
	struct unwind_loader *loader = calloc(1, sizeof(*loader));
	int err;

	if (!loader)
		return -ENOMEM;
	loader->opts = *opts;
	for (size_t i = 0; i < LANES; i++)
		loader->lanes[i].table_fd = -1;
	err = unwind_store_new(&loader->store, &opts->areas, table_dropped, loader);
	if (!err)
		err = worker_new(&loader->lanes[LANE_SMALL].worker);
	if (err) {
		unwind_loader_free(loader);
		return err;
	}
	*out = loader;
	return 0;
}

void unwind_loader_free(struct unwind_loader *loader)
{
	if (!loader)
		return;
	for (size_t i = 0; i < LANES; i++)
		lane_free(&loader->lanes[i]);
	unwind_store_free(loader->store);
	id_map_free(&loader->known);
	free(loader);
}

/* A file that waits for its turn is mapped, or is asked for once more. 1; 0: it does not wait. */
static int queue_has(struct unwind_loader *loader, const struct abi_unwind_key *key)
{
	struct lane *expected = &loader->lanes[LANE_EXPECTED];
	struct wanted *wanted = lane_find(expected, key);

	if (wanted)
		lane_hurry(expected, wanted);
	return wanted || lane_find(&loader->lanes[LANE_SMALL], key) ||
	       lane_find(&loader->lanes[LANE_LARGE], key);
}

/* Takes the descriptor and the path. 0, -ENOMEM, -EMFILE. */
static int queue_add(struct unwind_loader *loader, struct lane *lane, const struct wanted *wanted)
{
	uint64_t hash = key_hash(&wanted->key);
	int err = lane_add(lane, wanted,
			   lane == &loader->lanes[LANE_EXPECTED] ? UNWIND_EXPECTED_MAX
								 : UNWIND_QUEUE_MAX);

	if (!err)
		id_map_put(&loader->known, hash, 1); /* if it fails, the file is only met again */
	return err;
}

/* The lane of a mapping's file, with a worker. */
static struct lane *lane_of(struct unwind_loader *loader, const struct wanted *wanted)
{
	struct lane *lane = &loader->lanes[LANE_LARGE];

	if (wanted->end - wanted->start < UNWIND_LARGE_BYTES ||
	    (!lane->worker && worker_new(&lane->worker)))
		lane = &loader->lanes[LANE_SMALL];
	return lane;
}

void unwind_loader_want(struct unwind_loader *loader, const struct event_unwind_file *file)
{
	struct wanted wanted = {.key = file->key,
				.pid = (pid_t)file->header.tgid,
				.start = file->start,
				.end = file->end,
				.fd = -1,
				.debug_fd = -1};

	if (!queue_has(loader, &file->key) && queue_add(loader, lane_of(loader, &wanted), &wanted))
		loader->opts.publish(loader->opts.context, &file->key, ABI_UNWIND_WANTED);
}

/* The key that the kernel has for a file, as far as fstat() tells. */
static int key_guess(int fd, struct abi_unwind_key *key)
{
	struct stat st;

	if (regular_stat(fd, &st))
		return -errno;
	*key = (struct abi_unwind_key){
		.inode = st.st_ino,
		.changed_ns =
			(uint64_t)st.st_ctim.tv_sec * 1000000000ull + (uint64_t)st.st_ctim.tv_nsec,
		.device = major(st.st_dev) << KERNEL_MINOR_BITS | minor(st.st_dev),
	};
	return 0;
}

/* A file that waits, and was not opened yet, may have this descriptor. 1: it is in a queue. */
static int queue_open(struct unwind_loader *loader, const struct wanted *wanted, const char *path)
{
	int has = queue_has(loader, &wanted->key);

	for (size_t i = 0; has && i < LANES; i++) {
		struct wanted *known = lane_find(&loader->lanes[i], &wanted->key);

		if (!known)
			continue;
		known->is_urgent |= wanted->is_urgent;
		if (known->fd < 0) {
			known->fd = fcntl(wanted->fd, F_DUPFD_CLOEXEC, 0);
			known->path = strdup(path);
		}
	}
	return has;
}

/* Is its table there, or is it in a queue? */
static int is_known(struct unwind_loader *loader, const struct abi_unwind_key *key)
{
	return id_map_find(&loader->known, key_hash(key)) != ID_MAP_NONE;
}

/* is_own: it is the program's own file, which all of its stacks end in. */
static void map_add(struct unwind_loader *loader, pid_t pid, const struct process_map *map,
		    int is_own)
{
	struct wanted wanted = {.pid = pid,
				.start = map->start,
				.end = map->end,
				.debug_fd = -1,
				.is_urgent = is_own};

	wanted.fd = process_map_open(pid, map);
	if (wanted.fd < 0)
		return;
	if (key_guess(wanted.fd, &wanted.key) || queue_open(loader, &wanted, map->path) ||
	    is_known(loader, &wanted.key)) {
		close(wanted.fd);
	} else {
		wanted.path = strdup(map->path);
		queue_add(loader, is_own ? &loader->lanes[LANE_SMALL] : lane_of(loader, &wanted),
			  &wanted);
	}
}

void unwind_loader_map(struct unwind_loader *loader, pid_t pid, const struct process_map *map)
{
	if (map->executable && map->inode)
		map_add(loader, pid, map, 0);
}

void unwind_loader_prepare(struct unwind_loader *loader, pid_t pid)
{
	struct process_maps maps;
	int is_own = 1; /* the kernel maps the program below its libraries */

	if (process_maps_read(pid, &maps))
		return;
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (!map->executable || !map->inode)
			continue;
		map_add(loader, pid, map, is_own);
		is_own = 0;
	}
	process_maps_free(&maps);
}

struct expecting {
	struct unwind_loader *loader;
	pid_t pid;
};

static int module_add(void *context, int fd, char *path)
{
	const struct expecting *expecting = context;
	struct unwind_loader *loader = expecting->loader;
	struct wanted wanted = {.pid = expecting->pid, .path = path, .fd = fd, .debug_fd = -1};

	if (!key_guess(fd, &wanted.key) && !is_known(loader, &wanted.key))
		return queue_add(loader, &loader->lanes[LANE_EXPECTED], &wanted);
	wanted_close(&wanted);
	return 0;
}

int unwind_loader_expect(struct unwind_loader *loader, pid_t pid, const struct stat *interpreter,
			 uint32_t version_hex)
{
	struct expecting expecting = {loader, pid};
	struct lane *lane = &loader->lanes[LANE_EXPECTED];
	struct unwind_modules modules;
	struct abi_unwind_key key;
	size_t before = lane->count;

	if (unwind_modules_open(&modules, pid, interpreter, version_hex))
		return 0;
	if (!key_guess(modules.fd, &key)) {
		key.rows = ROWS_OF_FOLDER;
		if (!is_known(loader, &key) && (lane->worker || !worker_new(&lane->worker))) {
			id_map_put(&loader->known, key_hash(&key), 1);
			unwind_modules_each(&modules, module_add, &expecting);
		}
	}
	unwind_modules_close(&modules);
	return lane->count > before;
}

/* Opens the file that a walk has met. 0; -ESRCH: it is not mapped any more; -errno. */
static int wanted_open(struct wanted *wanted)
{
	struct process_maps maps;
	int err = process_maps_read(wanted->pid, &maps), fd = -ESRCH;

	if (err)
		return err;
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		/* A part of the mapping may have another protection by now. */
		if (map->inode && map->start < wanted->end && wanted->start < map->end) {
			fd = process_map_open(wanted->pid, map);
			wanted->path = fd < 0 ? NULL : strdup(map->path);
			break;
		}
	}
	process_maps_free(&maps);
	wanted->fd = fd;
	return fd < 0 ? fd : 0;
}

/* Compiles the first file of the queue and stores its table. 0; -EAGAIN: not yet; -errno. */
static int table_make(struct unwind_loader *loader, struct lane *lane, uint64_t until_ns,
		      uint32_t *number)
{
	struct wanted *wanted = &lane->queue[0];
	struct unwind_table *table = NULL;
	int err = wanted->fd < 0 ? wanted_open(wanted) : 0;

	if (!err)
		err = lane_compile(lane, until_ns, &table);
	if (err)
		return err;
	err = unwind_store_put(loader->store, &wanted->key, table, number);
	unwind_table_free(table);
	return err;
}

/* Works until the lane's queue is empty, or has no urgent file: 1; 0: not yet. */
static int lane_step(struct unwind_loader *loader, struct lane *lane, int urgent_only,
		     uint64_t until_ns)
{
	while (urgent_only ? lane_has_urgent(lane) : lane->count > 0) {
		struct wanted *first = &lane->queue[0];
		uint32_t number = ABI_UNWIND_ABSENT;
		int err = table_make(loader, lane, until_ns, &number);

		if (err == -EAGAIN)
			return 0;
		if (err == -ESRCH || err == -ENOMEM) {
			/* Another process, or a later walk, asks again. */
			number = ABI_UNWIND_WANTED;
			id_map_remove(&loader->known, key_hash(&first->key));
		} else if (err == -ENOENT) {
			loader->absent++;
		} else if (err) {
			loader->failed++;
			log_debug("PID %d: no unwind table for its code at 0x%llx: %s", first->pid,
				  (unsigned long long)first->start, error_reason(err));
		}
		loader->opts.publish(loader->opts.context, &first->key, number);
		lane_remove_first(lane);
	}
	return 1;
}

int unwind_loader_hurry(struct unwind_loader *loader, uint64_t until_ns)
{
	/* A program that has just been executed may have been asked for as any large file. */
	return lane_step(loader, &loader->lanes[LANE_SMALL], 0, until_ns) &&
	       lane_step(loader, &loader->lanes[LANE_LARGE], 1, until_ns) &&
	       lane_step(loader, &loader->lanes[LANE_EXPECTED], 1, until_ns);
}

int unwind_loader_hurry_expected(struct unwind_loader *loader, uint64_t until_ns)
{
	return lane_step(loader, &loader->lanes[LANE_EXPECTED], 0, until_ns);
}

int unwind_loader_step(struct unwind_loader *loader, uint64_t until_ns)
{
	int large = lane_step(loader, &loader->lanes[LANE_LARGE], 0, 0);
	int expected = lane_step(loader, &loader->lanes[LANE_EXPECTED], 0, 0);

	return unwind_loader_hurry(loader, until_ns) && large && expected;
}

int unwind_loader_is_worker(const struct unwind_loader *loader, pid_t pid)
{
	for (size_t i = 0; i < LANES; i++)
		if (loader->lanes[i].worker && worker_pid(loader->lanes[i].worker) == pid)
			return 1;
	return 0;
}

void unwind_loader_use(const struct unwind_loader *loader, struct unwind_loader_use *out)
{
	*out = (struct unwind_loader_use){.absent = loader->absent, .failed = loader->failed};
	for (size_t i = 0; i < LANES; i++)
		if (loader->lanes[i].worker)
			out->took_ns += worker_spent_ns(loader->lanes[i].worker);
	unwind_store_use(loader->store, &out->store);
}

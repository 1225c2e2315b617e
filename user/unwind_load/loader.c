/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind_load/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/hash.h"
#include "process/process.h"
#include "symbols/worker.h"
#include "tables/id_map.h"
#include "unwind/table.h"
#include "unwind_load/debug_file.h"

#define KERNEL_MINOR_BITS 20

struct wanted {
	struct abi_unwind_key key;
	pid_t pid;
	uint64_t start, end; /* of its mapping */
	char *path;          /* of its mapping; NULL: not open yet, or no memory */
	int fd;              /* -1: not open yet */
	int debug_fd;        /* -1: none, or not looked for */
	int is_own;          /* it is a program's own file, which its attach waits for */
};

/* Files that are compiled one after the other, and the process that does it. */
struct lane {
	struct worker *worker; /* NULL: none was needed yet */
	struct wanted *queue;  /* the first one is being compiled */
	size_t count, capacity;
	int table_fd;                 /* what the worker writes to; -1: it was not asked yet */
	int is_again;                 /* it is asked again, with the first file's debug file */
	struct unwind_table *without; /* what it answered before; NULL: nothing */
};

/* A small file does not wait for large ones. */
enum lanes { LANE_SMALL, LANE_LARGE, LANES };

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

static void wanted_close(const struct wanted *wanted)
{
	if (wanted->fd >= 0)
		close(wanted->fd);
	if (wanted->debug_fd >= 0)
		close(wanted->debug_fd);
	free(wanted->path);
}

static void table_fd_close(struct lane *lane)
{
	if (lane->table_fd >= 0)
		close(lane->table_fd);
	lane->table_fd = -1;
}

static void queue_remove_first(struct lane *lane)
{
	wanted_close(&lane->queue[0]);
	table_fd_close(lane);
	unwind_table_free(lane->without);
	lane->without = NULL;
	lane->is_again = 0;
	lane->count--;
	memmove(lane->queue, lane->queue + 1, lane->count * sizeof(*lane->queue));
}

static void lane_free(struct lane *lane)
{
	while (lane->count)
		queue_remove_first(lane);
	worker_free(lane->worker);
	free(lane->queue);
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

/* The file that waits for its turn; NULL: it does not. */
static struct wanted *queue_find(struct unwind_loader *loader, const struct abi_unwind_key *key)
{
	for (size_t k = 0; k < LANES; k++) {
		struct lane *lane = &loader->lanes[k];

		for (size_t i = 0; i < lane->count; i++)
			if (!memcmp(&lane->queue[i].key, key, sizeof(*key)))
				return &lane->queue[i];
	}
	return NULL;
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

/* Takes the descriptor and the path. 0, -ENOMEM, -EMFILE. */
static int queue_add(struct unwind_loader *loader, struct lane *lane, const struct wanted *wanted)
{
	int err = lane->count < UNWIND_QUEUE_MAX
			  ? array_reserve(&lane->queue, &lane->capacity, lane->count, 1,
					  sizeof(*lane->queue))
			  : -EMFILE;

	if (!err)
		err = id_map_put(&loader->known, key_hash(&wanted->key), 1);
	if (!err)
		lane->queue[lane->count++] = *wanted;
	else
		wanted_close(wanted);
	return err;
}

void unwind_loader_want(struct unwind_loader *loader, const struct event_unwind_file *file)
{
	struct wanted wanted = {.key = file->key,
				.pid = (pid_t)file->header.tgid,
				.start = file->start,
				.end = file->end,
				.fd = -1,
				.debug_fd = -1};

	if (!queue_find(loader, &file->key) && queue_add(loader, lane_of(loader, &wanted), &wanted))
		loader->opts.publish(loader->opts.context, &file->key, ABI_UNWIND_WANTED);
}

/* The key that the kernel has for a file, as far as fstat() tells. */
static int key_guess(int fd, struct abi_unwind_key *key)
{
	struct stat st;

	if (fstat(fd, &st))
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
	struct wanted *known = queue_find(loader, &wanted->key);

	if (known)
		known->is_own |= wanted->is_own;
	if (known && known->fd < 0) {
		known->fd = fcntl(wanted->fd, F_DUPFD_CLOEXEC, 0);
		known->path = strdup(path);
	}
	return known != NULL;
}

/* is_own: it is the program's own file, which all of its stacks end in. */
static void map_add(struct unwind_loader *loader, pid_t pid, const struct process_map *map,
		    int is_own)
{
	struct wanted wanted = {
		.pid = pid, .start = map->start, .end = map->end, .debug_fd = -1, .is_own = is_own};

	wanted.fd = process_map_open(pid, map);
	if (wanted.fd < 0)
		return;
	if (key_guess(wanted.fd, &wanted.key) || queue_open(loader, &wanted, map->path) ||
	    id_map_find(&loader->known, key_hash(&wanted.key)) != ID_MAP_NONE) {
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

int unwind_loader_read(int fd, struct unwind_table **out)
{
	struct stat st;
	size_t size;
	char *bytes;
	int err = 0;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_size <= 0 || (uint64_t)st.st_size > UNWIND_PACKED_MAX)
		return -EPROTO;
	bytes = malloc((size_t)st.st_size);
	if (!bytes)
		return -ENOMEM;
	for (size = 0; size < (size_t)st.st_size && !err;) {
		ssize_t got = pread(fd, bytes + size, (size_t)st.st_size - size, (off_t)size);

		if (got > 0)
			size += (size_t)got;
		else if (got == 0 || errno != EINTR)
			err = -EPROTO;
	}
	if (!err)
		err = unwind_table_unpack(out, bytes, size);
	free(bytes);
	return err;
}

/* Compiles the table of the first file of the queue. 0; -EAGAIN: not yet; -errno. */
static int table_ask(struct lane *lane, const struct wanted *wanted, uint64_t until_ns,
		     struct unwind_table **table)
{
	int err;

	if (lane->table_fd < 0)
		lane->table_fd = memfd_create("unwind-table", MFD_CLOEXEC);
	if (lane->table_fd < 0)
		return -errno;
	err = worker_unwind(lane->worker, wanted->fd, wanted->debug_fd, lane->table_fd,
			    wanted->key.rows, until_ns);
	return err ? err : unwind_loader_read(lane->table_fd, table);
}

/* The same, and once more with its debug file if that may describe what it does not itself. */
static int table_compile(struct lane *lane, struct wanted *wanted, uint64_t until_ns,
			 struct unwind_table **table)
{
	int err = table_ask(lane, wanted, until_ns, table);

	if (err != -EAGAIN && !lane->is_again && wanted->path &&
	    unwind_debug_is_wanted(err, *table))
		wanted->debug_fd = unwind_debug_open(wanted->pid, wanted->fd, wanted->path);
	if (wanted->debug_fd >= 0 && !lane->is_again) {
		lane->is_again = 1;
		lane->without = err ? NULL : *table;
		table_fd_close(lane);
		err = table_ask(lane, wanted, until_ns, table);
	}
	if (err && err != -EAGAIN && lane->without) {
		*table = lane->without;
		lane->without = NULL;
		return 0;
	}
	return err;
}

/* Compiles the first file of the queue and stores its table. 0; -EAGAIN: not yet; -errno. */
static int table_make(struct unwind_loader *loader, struct lane *lane, uint64_t until_ns,
		      uint32_t *number)
{
	struct wanted *wanted = &lane->queue[0];
	struct unwind_table *table = NULL;
	int err = wanted->fd < 0 ? wanted_open(wanted) : 0;

	if (!err)
		err = table_compile(lane, wanted, until_ns, &table);
	if (err)
		return err;
	err = unwind_store_put(loader->store, &wanted->key, table, number);
	unwind_table_free(table);
	return err;
}

/* Has the lane a file that an attach waits for? */
static int lane_has_own(const struct lane *lane)
{
	for (size_t i = 0; i < lane->count; i++)
		if (lane->queue[i].is_own)
			return 1;
	return 0;
}

/* Works until the lane's queue is empty, or has no program's own file: 1; 0: not yet. */
static int lane_step(struct unwind_loader *loader, struct lane *lane, int own_only,
		     uint64_t until_ns)
{
	while (own_only ? lane_has_own(lane) : lane->count > 0) {
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
		queue_remove_first(lane);
	}
	return 1;
}

int unwind_loader_hurry(struct unwind_loader *loader, uint64_t until_ns)
{
	/* A program that has just been executed may have been asked for as any large file. */
	return lane_step(loader, &loader->lanes[LANE_SMALL], 0, until_ns) &&
	       lane_step(loader, &loader->lanes[LANE_LARGE], 1, until_ns);
}

int unwind_loader_step(struct unwind_loader *loader, uint64_t until_ns)
{
	int large = lane_step(loader, &loader->lanes[LANE_LARGE], 0, 0);

	return unwind_loader_hurry(loader, until_ns) && large;
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

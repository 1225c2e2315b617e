/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/unwind/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <unistd.h>

#include "abi/unwind.h"
#include "attach/unwind/debug_file.h"
#include "object/symbols/worker.h"
#include "object/unwind/unwind_table.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/id_map.h"
#include "util/regular.h"

/* --- modules ---------------------------------------------------------------------------------- */

/*
 * The extension modules of a Python interpreter's standard library (lib-dynload), which a program
 * may map later. They are looked for where the interpreter itself looks: below the folders that its
 * file is in, in the root of the process. The process may have planted folder and files: symbolic
 * links are not followed, and only regular files are opened.
 */

#define UNWIND_MODULE_BYTES (4u << 20) /* of a file; larger ones are left out */

#define UNWIND_MODULE_NAMES 1024u /* of the folder; further ones are not looked at */

#define UNWIND_MODULE_ABOVE 6u /* folders above the interpreter's file */

struct unwind_modules {
	int fd;     /* of the folder */
	char *path; /* as the process sees it */
};

/* Takes the descriptor and the path (NULL: no memory for it). Not 0: no further one is wanted. */
typedef int (*unwind_module_fn)(void *context, int fd, char *path);

#define NO_LINKS (RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

/* The path of the file, as the process sees it. 0; -ENOENT, -errno. */
static int mapped_path(pid_t pid, const struct stat *file, char path[PATH_MAX])
{
	struct process_maps maps;
	int err = process_maps_read(pid, &maps);

	if (err)
		return err;
	err = -ENOENT;
	for (size_t i = 0; err && i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (process_map_is_code(map, file) && map->path[0] == '/' &&
		    strlen(map->path) < PATH_MAX) {
			strcpy(path, map->path);
			err = 0;
		}
	}
	process_maps_free(&maps);
	return err;
}

/* -1: it is no folder, or there is none. */
static int folder_open(int root, const char *path)
{
	return regular_folder(root, path, NO_LINKS);
}

/* Looks below this folder, of this length. */
static int folder_find(struct unwind_modules *out, int root, const char *above, int length,
		       uint32_t version_hex)
{
	/* With a "t" it is that of a build without the global lock. */
	static const char *const forms[] = {
		"%.*s/lib/python%u.%u/lib-dynload", "%.*s/lib64/python%u.%u/lib-dynload",
		"%.*s/lib/python%u.%ut/lib-dynload", "%.*s/lib64/python%u.%ut/lib-dynload"};
	char path[PATH_MAX + 64];

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		snprintf(path, sizeof(path), forms[i], length, above, version_hex >> 24,
			 version_hex >> 16 & 0xff);
		out->fd = folder_open(root, path);
		if (out->fd < 0)
			continue;
		out->path = strdup(path);
		return 0;
	}
	return -ENOENT;
}

/*
 * interpreter: of a file that the process maps as code. 0; -ENOENT: there is no such folder;
 * -errno.
 */
static int unwind_modules_open(struct unwind_modules *out, pid_t pid,
			       const struct stat *interpreter, uint32_t version_hex)
{
	char path[PATH_MAX];
	int root, err = mapped_path(pid, interpreter, path);

	if (err)
		return err;
	root = process_root_open(pid);
	if (root < 0)
		root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return error_errno();
	err = -ENOENT;
	for (size_t i = 0; err && i < UNWIND_MODULE_ABOVE && strrchr(path, '/'); i++) {
		*strrchr(path, '/') = '\0';
		err = folder_find(out, root, path, (int)strlen(path), version_hex);
	}
	close(root);
	return err;
}

static bool is_module(const char *name)
{
	size_t length = strlen(name);

	return length > 3 && !strcmp(name + length - 3, ".so");
}

/* A file of the folder; -1: it is none that can be compiled. */
static int module_open(int folder, const char *name)
{
	int fd = regular_open(folder, name, NO_LINKS);
	struct stat st;

	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && st.st_size <= UNWIND_MODULE_BYTES)
		return fd;
	close(fd);
	return -1;
}

static char *module_path(const char *folder, const char *name)
{
	char *path = NULL;

	return folder && asprintf(&path, "%s/%s", folder, name) >= 0 ? path : NULL;
}

struct modules_walk {
	const struct unwind_modules *modules;
	unwind_module_fn each;
	void *context;
};

static int name_take(void *context, const char *name)
{
	const struct modules_walk *walk = context;
	int fd = is_module(name) ? module_open(walk->modules->fd, name) : -1;

	return fd >= 0 && walk->each(walk->context, fd, module_path(walk->modules->path, name));
}

static void unwind_modules_each(const struct unwind_modules *modules, unwind_module_fn each,
				void *context)
{
	struct modules_walk walk = {modules, each, context};

	regular_names(modules->fd, UNWIND_MODULE_NAMES, name_take, &walk);
}

static void unwind_modules_close(struct unwind_modules *modules)
{
	close(modules->fd);
	free(modules->path);
	*modules = (struct unwind_modules){.fd = -1};
}

/* --- lane ------------------------------------------------------------------------------------- */

/*
 * A lane: files whose unwind tables are compiled one after the other, and the process that does it.
 * The inside of loader.c.
 */

struct wanted {
	struct abi_unwind_key key;
	pid_t pid;
	uint64_t start, end; /* of its mapping */
	char *path;          /* of its mapping; NULL: not open yet, or no memory */
	int fd;              /* -1: not open yet */
	int debug_fd;        /* -1: none, or not looked for */
	int is_urgent;       /* it is waited for, whatever lane it is in */
};

struct lane {
	struct worker *worker; /* NULL: none was needed yet */
	struct wanted *queue;  /* the first one is being compiled */
	size_t count, capacity;
	int table_fd;                 /* what the worker writes to; -1: it was not asked yet */
	int is_again;                 /* it is asked again, with the first file's debug file */
	struct unwind_table *without; /* what it answered before; NULL: nothing */
};

/* Closes the descriptors, frees the path. */
static void wanted_close(const struct wanted *wanted)
{
	descriptor_close(wanted->fd);
	descriptor_close(wanted->debug_fd);
	free(wanted->path);
}

static void table_fd_close(struct lane *lane)
{
	descriptor_close(lane->table_fd);
	lane->table_fd = -1;
}

static void lane_remove_first(struct lane *lane)
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
		lane_remove_first(lane);
	worker_free(lane->worker);
	free(lane->queue);
}

/* Takes the descriptors and the path, also on failure. 0, -ENOMEM; -EMFILE: count is max. */
static int lane_add(struct lane *lane, const struct wanted *wanted, size_t max)
{
	int err =
		lane->count < max ? ARRAY_GROW(lane->queue, lane->capacity, lane->count) : -EMFILE;

	if (!err)
		lane->queue[lane->count++] = *wanted;
	else
		wanted_close(wanted);
	return err;
}

/* The file that waits for its turn; NULL: it does not. Valid until the queue changes. */
static struct wanted *lane_find(struct lane *lane, const struct abi_unwind_key *key)
{
	for (size_t i = 0; i < lane->count; i++)
		if (!memcmp(&lane->queue[i].key, key, sizeof(*key)))
			return &lane->queue[i];
	return NULL;
}

/* It is urgent from now on, and next after the file that is being compiled. */
static void lane_hurry(struct lane *lane, struct wanted *wanted)
{
	size_t at = (size_t)(wanted - lane->queue);
	struct wanted copy = *wanted;

	copy.is_urgent = 1;
	if (at > 1) {
		memmove(lane->queue + 2, lane->queue + 1, (at - 1) * sizeof(copy));
		at = 1;
	}
	lane->queue[at] = copy;
}

static bool lane_has_urgent(const struct lane *lane)
{
	for (size_t i = 0; i < lane->count; i++)
		if (lane->queue[i].is_urgent)
			return 1;
	return 0;
}

int unwind_loader_read(int fd, struct unwind_table **out)
{
	struct stat st;
	size_t size;
	int err = 0;

	if (regular_stat(fd, &st))
		return error_errno();
	if (st.st_size <= 0 || (uint64_t)st.st_size > UNWIND_PACKED_MAX)
		return -EPROTO;
	char *bytes = malloc((size_t)st.st_size);
	if (!bytes)
		return -ENOMEM;
	for (size = 0; size < (size_t)st.st_size && !err;) {
		ssize_t got = pread(fd, bytes + size, (size_t)st.st_size - size, (off_t)size);

		if (got > 0)
			size += (size_t)got;
		else if (got == 0 || errno != EINTR)
			err = -EPROTO;
	}
	err = err ?: unwind_table_unpack(out, bytes, size);
	free(bytes);
	return err;
}

/* Compiles the table of the first file of the queue. 0; -EAGAIN: not yet; -errno. */
static int table_ask(struct lane *lane, const struct wanted *wanted, uint64_t until_ns,
		     struct unwind_table **table)
{
	if (lane->table_fd < 0)
		lane->table_fd = memfd_create("unwind-table", MFD_CLOEXEC);
	if (lane->table_fd < 0)
		return error_errno();
	return worker_unwind(lane->worker, wanted->fd, wanted->debug_fd, lane->table_fd,
			     wanted->key.rows, until_ns)
		       ?: unwind_loader_read(lane->table_fd, table);
}

/*
 * Compiles the table of the first file, which is open, and once more with its debug file if that
 * may describe what it does not itself. 0: the caller frees *table; -EAGAIN: not yet; -errno.
 */
static int lane_compile(struct lane *lane, uint64_t until_ns, struct unwind_table **table)
{
	struct wanted *wanted = &lane->queue[0];
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

/* --- loader ----------------------------------------------------------------------------------- */

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

	if (!loader)
		return -ENOMEM;
	loader->opts = *opts;
	for (size_t i = 0; i < LANES; i++)
		loader->lanes[i].table_fd = -1;
	int err = unwind_store_new(&loader->store, &opts->areas, table_dropped, loader)
			  ?: worker_new(&loader->lanes[LANE_SMALL].worker);
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
static bool queue_has(struct unwind_loader *loader, const struct abi_unwind_key *key)
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
		return error_errno();
	*key = (struct abi_unwind_key){
		.inode = st.st_ino,
		.changed_ns = timespec_ns(st.st_ctim),
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
static bool is_known(struct unwind_loader *loader, const struct abi_unwind_key *key)
{
	return id_map_find(&loader->known, key_hash(key)) != ID_MAP_NONE;
}

/* is_own: it is the program's own file, which all of its stacks end in. */
static void map_add(struct unwind_loader *loader, pid_t pid, const struct process_map *map,
		    enum abi_unwind_rows rows, int is_own)
{
	struct wanted wanted = {.pid = pid,
				.start = map->start,
				.end = map->end,
				.debug_fd = -1,
				.is_urgent = is_own};

	wanted.fd = process_map_open(pid, map);
	if (wanted.fd < 0)
		return;
	int err = key_guess(wanted.fd, &wanted.key);
	wanted.key.rows = rows;
	if (err || queue_open(loader, &wanted, map->path) || is_known(loader, &wanted.key)) {
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
		map_add(loader, pid, map, ABI_UNWIND_ROWS_CALLS, 0);
}

void unwind_loader_prepare(struct unwind_loader *loader, pid_t pid, enum abi_unwind_rows rows)
{
	struct process_maps maps;
	int is_own = 1; /* the kernel maps the program below its libraries */

	if (process_maps_read(pid, &maps))
		return;
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (!map->executable || !map->inode)
			continue;
		map_add(loader, pid, map, rows, is_own);
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

	err = err ?: lane_compile(lane, until_ns, &table);
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

bool unwind_loader_is_worker(const struct unwind_loader *loader, pid_t pid)
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/unwind/survey.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attach/unwind/debug_file.h"
#include "attach/unwind/loader.h"
#include "object/symbols/worker.h"
#include "object/unwind/unwind_table.h"
#include "proc/process.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"

#define FILE_NS 5000000000ull /* the largest files take a tenth of a second */

/* Has an earlier mapping of the process the same file? */
static bool is_known(const struct process_maps *maps, size_t at)
{
	const struct process_map *map = &maps->entries[at];

	for (size_t i = 0; i < at; i++) {
		const struct process_map *other = &maps->entries[i];

		if (other->executable && other->inode == map->inode &&
		    other->device_major == map->device_major &&
		    other->device_minor == map->device_minor)
			return 1;
	}
	return 0;
}

/* 0: the caller frees *out; else as unwind_survey_fn's err. */
static int table_ask(struct worker *worker, int file, int debug_fd, struct unwind_table **out)
{
	_cleanup_close_ int fd = memfd_create("unwind-table", MFD_CLOEXEC);
	int err = fd < 0 ? error_errno() : 0;

	return err
		?: worker_unwind(worker, file, debug_fd, fd, ABI_UNWIND_ROWS_CALLS,
				 clock_ns(CLOCK_MONOTONIC) + FILE_NS)
		?: unwind_loader_read(fd, out);
}

/* As the loader makes it. */
static int table_make(struct worker *worker, pid_t pid, const struct process_map *map,
		      struct unwind_table **out)
{
	int file = process_map_open(pid, map), debug_fd = -1, err, again;
	struct unwind_table *table;

	if (file < 0)
		return file;
	err = table_ask(worker, file, -1, out);
	if (err != -EAGAIN && unwind_debug_is_wanted(err, *out))
		debug_fd = unwind_debug_open(pid, file, map->path);
	if (debug_fd >= 0) {
		again = table_ask(worker, file, debug_fd, &table);
		close(debug_fd);
		if (!again) {
			unwind_table_free(err ? NULL : *out);
			*out = table;
			err = 0;
		} else if (again == -EAGAIN) {
			unwind_table_free(err ? NULL : *out);
			*out = NULL;
			err = again;
		}
	}
	close(file);
	return err;
}

static size_t table_bytes(const struct unwind_table *table)
{
	return table->row_count * sizeof(struct abi_unwind_row) +
	       (table->page_count + 1ul) * sizeof(uint32_t) +
	       table->rule_count * sizeof(struct abi_unwind_rule);
}

int unwind_survey(pid_t pid, unwind_survey_fn each, void *context)
{
	struct worker *worker = NULL;
	struct process_maps maps;
	size_t files = 0;
	int err = process_maps_read(pid, &maps);

	if (err)
		return err;
	err = worker_new(&worker);
	for (size_t i = 0; i < maps.count && files < UNWIND_SURVEY_FILES && !err; i++) {
		const struct process_map *map = &maps.entries[i];
		struct unwind_table *table = NULL;

		if (!map->executable || !map->inode || is_known(&maps, i))
			continue;
		files++;
		int made = table_make(worker, pid, map, &table);
		each(context, map->path, made, table ? table->row_count : 0,
		     table ? table_bytes(table) : 0);
		unwind_table_free(table);
		if (made == -EAGAIN) {
			/* It is still at work: the next file needs another one. */
			worker_free(worker);
			worker = NULL;
			err = worker_new(&worker);
		}
	}
	worker_free(worker);
	process_maps_free(&maps);
	return err;
}

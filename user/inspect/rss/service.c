/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/rss/service.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "proc/pagemap.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"

#define MAP_PAGES_MAX (1ull << 24) /* of a map: 64 GiB */

/* The pages of a process and of the one that has forked it. */
struct common {
	int own, parent; /* their pagemaps */
	uint64_t *own_entries, *parent_entries;
	unshared_fn visit;
	void *context;
};

/* Is it anonymous memory of this process alone? */
static bool is_own(uint64_t entry)
{
	return (entry & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED | PAGEMAP_FILE | PAGEMAP_OWN)) ==
	       (PAGEMAP_PRESENT | PAGEMAP_OWN);
}

/* Does the process have a page of its own where its parent has another? */
static bool is_unshared(const struct common *common, size_t page)
{
	uint64_t parent = common->parent_entries[page];

	return is_own(common->own_entries[page]) && parent & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED) &&
	       !(parent & PAGEMAP_FILE);
}

static int piece_compare(const struct common *common, uint64_t address, size_t count)
{
	ssize_t got = pagemap_read(common->own, address, common->own_entries, count);
	ssize_t had = pagemap_read(common->parent, address, common->parent_entries, count);
	int err = got < 0 ? (int)got : had < 0 ? (int)had : 0;

	if (!err && (got != (ssize_t)count || had != (ssize_t)count))
		err = -ESRCH;
	for (size_t i = 0; i < count && !err; i++) {
		size_t first = i;

		while (i < count && is_unshared(common, i))
			i++;
		if (i > first)
			err = common->visit(common->context, address + first * PAGEMAP_PAGE,
					    i - first);
	}
	return err;
}

static int map_compare(const struct common *common, const struct process_map *map)
{
	uint64_t pages = (map->end - map->start) / PAGEMAP_PAGE;
	int err = 0;

	/* The kernel's own map at the end of the address space has no page tables. */
	if (map->shared || pages > MAP_PAGES_MAX || map->start >> 63)
		return 0;
	for (uint64_t first = 0; first < pages && !err; first += PAGEMAP_PIECE)
		err = piece_compare(common, map->start + first * PAGEMAP_PAGE,
				    pages - first < PAGEMAP_PIECE ? pages - first : PAGEMAP_PIECE);
	return err;
}

int service_unshared_each(pid_t pid, pid_t parent, unshared_fn visit, void *context)
{
	_cleanup_close_ int own_pages = pagemap_open(pid);
	_cleanup_close_ int parent_pages = pagemap_open(parent);
	struct common common = {
		.own = own_pages, .parent = parent_pages, .visit = visit, .context = context};
	struct process_maps maps;
	int err = own_pages < 0      ? own_pages
		  : parent_pages < 0 ? parent_pages
				     : process_maps_read(pid, &maps);

	if (err)
		return err;
	common.own_entries = calloc(PAGEMAP_PIECE, sizeof(*common.own_entries));
	common.parent_entries = calloc(PAGEMAP_PIECE, sizeof(*common.parent_entries));
	if (!common.own_entries || !common.parent_entries)
		err = -ENOMEM;
	for (size_t i = 0; i < maps.count && !err; i++)
		err = map_compare(&common, &maps.entries[i]);
	free(common.own_entries);
	free(common.parent_entries);
	process_maps_free(&maps);
	return err;
}

static int pages_add(void *context, uint64_t address, size_t pages)
{
	(void)address;
	*(uint64_t *)context += pages * PAGEMAP_PAGE;
	return 0;
}

static int process_read(pid_t pid, struct service_process *out)
{
	struct smaps_files files;
	int err = process_info_read(pid, &out->info) ?: process_info_check(&out->info);

	if (err)
		return err;
	err = smaps_open(&files, pid) ?: smaps_totals_read(&files, &out->totals);
	smaps_close(&files);
	return err;
}

static bool is_in(const struct service *service, pid_t pid)
{
	for (size_t i = 0; i < service->count; i++)
		if (service->processes[i].info.pid == pid)
			return 1;
	return 0;
}

int service_read(struct service *out, const pid_t *pids, size_t count, service_failed_fn failed)
{
	uint64_t began = clock_ns(CLOCK_MONOTONIC);
	struct service service = {0};

	if (count > SERVICE_PROCESSES)
		return error_set(-E2BIG, "%zu processes, of which at most %u are read together",
				 count, SERVICE_PROCESSES);
	service.processes = calloc(count + 1, sizeof(*service.processes));
	if (!service.processes)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		error_clear();
		int err = process_read(pids[i], &service.processes[service.count]);

		service.count += !err;
		service.missing += err != 0;
		if (err && failed)
			failed(pids[i], err);
	}
	if (!service.count) {
		service_free(&service);
		return -ESRCH;
	}
	for (size_t i = 0; i < service.count; i++) {
		struct service_process *process = &service.processes[i];

		service.rss += process->totals.rss;
		service.pss += process->totals.pss;
		service.own += process->totals.own;
		service.swap += process->totals.swap;
		if (!process->info.forked || !is_in(&service, process->info.ppid))
			continue;
		process->parent = process->info.ppid;
		if (service_unshared_each(process->info.pid, process->parent, pages_add,
					  &process->unshared))
			process->parent = 0;
	}
	service.elapsed_ns = clock_ns(CLOCK_MONOTONIC) - began;
	*out = service;
	return 0;
}

void service_free(struct service *service)
{
	free(service->processes);
	*service = (struct service){0};
}

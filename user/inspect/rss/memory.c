/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/rss/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inspect/rss/reading.h"
#include "proc/freeze.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"

static int is_missing(int err)
{
	return err == -ENOTSUP || err == -ENOENT || err == -ENODATA || err == -ENOEXEC ||
	       err == -EAGAIN || err == -EFAULT || err == -ESTALE || err == -EINVAL;
}

/* A part that cannot be read is told, and the rest goes on without it: its memory is anonymous. */
static int part_end(int err, char reason[MEMORY_REASON])
{
	if (!is_missing(err))
		return err;
	if (err != -ENOENT)
		snprintf(reason, MEMORY_REASON, "%s", error_reason(err));
	return 0;
}

static int python_find(struct memory_reading *reading, int swap_in)
{
	struct process_info info;
	int err = python_process_find(reading->info.pid, NULL, swap_in, &info, &reading->runtime);

	reading->has_python = !err;
	if (!err)
		reading->space = space_share(reading->runtime.space);
	return part_end(err, reading->python_reason);
}

static int glibc_find(struct memory_reading *reading)
{
	struct process_maps maps;
	int err = process_maps_read(reading->info.pid, &maps);

	if (err)
		return err;
	err = glibc_open(&reading->glibc, reading->space, &maps);
	process_maps_free(&maps);
	return part_end(err, reading->malloc_reason);
}

int memory_open(struct memory_reading **out, pid_t pid, int swap_in)
{
	struct memory_reading *reading = calloc(1, sizeof(*reading));

	if (!reading)
		return -ENOMEM;
	reading->files.pagemap = reading->files.kpageflags = -1;
	error_clear();
	int err = process_info_read(pid, &reading->info)
		  ?: process_info_check(&reading->info)
		  ?: smaps_open(&reading->files, pid)
		  ?: python_find(reading, swap_in);
	if (!err && !reading->space)
		err = space_open(&reading->space, pid);
	if (!err)
		space_swap_in(reading->space, swap_in);
	if (!err)
		err = glibc_find(reading);
	if (err) {
		memory_close(reading);
		return err;
	}
	*out = reading;
	return 0;
}

void memory_close(struct memory_reading *reading)
{
	if (!reading)
		return;
	if (reading->has_python)
		python_runtime_close(&reading->runtime);
	glibc_close(reading->glibc);
	space_close(reading->space);
	smaps_close(&reading->files);
	memory_account_free(&reading->account);
	memory_large_free(&reading->large);
	free(reading->sparse);
	free(reading);
}

/* The first mapped library that is known to replace malloc. */
static void allocator_find(const struct memory_account *account, char name[MEMORY_ALLOCATOR])
{
	static const char *const known[] = {"libjemalloc", "libmimalloc", "libtcmalloc", "ld-musl"};

	for (size_t i = 0; i < account->map_count; i++) {
		const char *file = strrchr(account->maps[i].name, '/');

		for (size_t n = 0; file && n < ARRAY_SIZE(known); n++)
			if (!strncmp(file + 1, known[n], strlen(known[n]))) {
				snprintf(name, MEMORY_ALLOCATOR, "%s", file + 1);
				return;
			}
	}
}

static int parts_read(struct memory_reading *reading)
{
	struct memory_report *report = reading->report;
	struct process_maps maps;
	int malloc_missing = 1;
	int err = process_maps_read(reading->info.pid, &maps);

	if (err)
		return err;
	err = memory_bss_read(reading) ?: memory_stacks_read(reading);
	if (!err && reading->glibc) {
		err = memory_malloc_list(reading, &maps);
		malloc_missing = err != 0;
		err = part_end(err, report->malloc_reason);
	}
	if (!err && reading->has_python) {
		report->python_version = reading->runtime.version_hex;
		err = part_end(space_error(reading->space, memory_python_read(reading)
								   ?: memory_pins_read(reading)),
			       report->python_reason);
	}
	report->bytes_swapped = space_missed(reading->space).swapped;
	if (!err && !malloc_missing)
		err = memory_malloc_read(reading);
	process_maps_free(&maps);
	return err;
}

/* What an earlier report was made of. */
static void reading_clear(struct memory_reading *reading)
{
	memory_account_free(&reading->account);
	memory_large_free(&reading->large);
	reading->sparse_count = 0;
}

int memory_read_report(struct memory_reading *reading, int freeze, struct memory_report *out)
{
	struct memory_report report = {.info = reading->info};
	uint64_t began = clock_ns(CLOCK_MONOTONIC);
	struct freeze *frozen = NULL;
	int err = freeze ? freeze_begin(&frozen, reading->info.pid) : 0;

	if (err)
		return err;
	reading_clear(reading);
	reading->report = &report;
	memcpy(report.python_reason, reading->python_reason, MEMORY_REASON);
	memcpy(report.malloc_reason, reading->malloc_reason, MEMORY_REASON);
	error_clear();
	err = smaps_read(&reading->files, &reading->account, &report.totals) ?: parts_read(reading);
	report.frozen_ns = freeze_end(frozen);
	if (!err) {
		allocator_find(&reading->account, report.allocator);
		err = memory_tree_build(&report.root, &reading->account, report.totals.rss,
					report.trimmable, report.allocator);
	}
	report.elapsed_ns = clock_ns(CLOCK_MONOTONIC) - began;
	reading->report = NULL;
	if (err) {
		memory_report_free(&report);
		return err;
	}
	*out = report;
	return 0;
}

void memory_report_free(struct memory_report *report)
{
	memory_node_free(&report->root);
	free(report->arenas);
	heap_types_free(&report->pins.types);
	*report = (struct memory_report){0};
}

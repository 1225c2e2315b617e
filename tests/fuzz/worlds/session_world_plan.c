/* SPDX-License-Identifier: Apache-2.0 */
/* Replaced functions: features, plans, the runtime, allocators, the census and the worker. */
#include <errno.h>
#include <stdlib.h>

#include "attach/links/features.h"
#include "attach/links/hints.h"
#include "attach/selftest/trap_cost.h"
#include "object/symbols/worker.h"
#include "probe/process/plan_target.h"
#include "runtime/cpython/heap.h"
#include "runtime/heap/census.h"
#include "runtime/malloc/allocator.h"
#include "session/session.h"
#include "session_world_state.h"

int features_probe(struct features *out)
{
	*out = (struct features){.uprobe_multi = 1};
	return 0;
}

int features_check(const struct features *features, const char **remedy)
{
	(void)features;
	*remedy = NULL;
	return 0;
}

int hint_tell(enum hint_step action, int err)
{
	(void)action;
	return err;
}

/* Stands for an open file; its owner frees it once. */
static struct elf_file *file_new(void)
{
	return calloc(1, 16);
}

const char *elf_file_path(const struct elf_file *file)
{
	return *(const char *)file ? NULL : "file";
}

int elf_file_fd(const struct elf_file *file)
{
	return *(const char *)file - 1;
}

void python_runtime_close(struct python_runtime *runtime)
{
	free(runtime->file);
	space_close(runtime->space);
	*runtime = (struct python_runtime){0};
}

int python_runtime_inherit(const struct python_runtime *parent, pid_t pid,
			   struct python_runtime *out)
{
	*out = *parent;
	out->pid = pid;
	out->file = parent->file ? file_new() : NULL;
	if (space_open(&out->space, pid))
		out->space = NULL;
	return 0;
}

int heap_describe(const struct python_runtime *runtime, struct abi_heap *out)
{
	(void)runtime;
	(void)out;
	return 0;
}

int plan_caches_new(struct plan_caches *out, const struct plan_target_opts *opts)
{
	(void)opts;
	*out = (struct plan_caches){0};
	return 0;
}

void plan_caches_free(struct plan_caches *caches)
{
	(void)caches;
}

uint32_t plan_target_native_layers(const struct plan_target_opts *opts)
{
	return opts->layers & 1u << EVENT_LAYER_NATIVE;
}

static struct plan_site site = {.op = ABI_OP_FREE, .symbol = "free"};
static const struct plan native_plan = {.sites = &site, .count = 1};

int plan_native_process(pid_t pid, struct plan_native_cache *cache, struct plan_file **list,
			size_t *count)
{
	static char file[16];
	struct process *process = world_process(pid);
	int err;

	(void)cache;
	world_meanwhile();
	err = process->alive ? world_fails(process) : -ESRCH;
	if (err)
		return err;
	*list = calloc(1, sizeof(**list));
	(*list)[0] = (struct plan_file){.file = (struct elf_file *)file, .plan = &native_plan};
	*count = 1;
	return 0;
}

int plan_target(pid_t pid, const struct plan_target_opts *opts, struct plan_caches *caches,
		struct plan_target *out)
{
	struct process *process = world_process(pid);
	int err;

	world_meanwhile();
	*out = (struct plan_target){0};
	err = process->alive ? world_fails(process) : -ESRCH;
	if (err)
		return err;
	process_info_read(pid, &out->info);
	out->runtime = (struct python_runtime){.pid = pid, .target.runtime = process->program};
	if (!process->python) {
		out->layers = 1u << EVENT_LAYER_NATIVE;
		return process->loaded ? plan_native_process(pid, caches->native, &out->native,
							     &out->native_count)
				       : -ENOENT;
	}
	out->layers = 1u << EVENT_LAYER_PYTHON;
	out->runtime.version_hex = 0x030b0000;
	out->runtime.file = file_new();
	out->python = (struct plan){.sites = &site, .count = 1, .mode = opts->python.mode};
	return 0;
}

void plan_target_free(struct plan_target *target)
{
	free(target->runtime.file);
	free(target->native);
	*target = (struct plan_target){0};
}

int census_take(const struct python_runtime *runtime, const struct census_opts *opts)
{
	struct process *process = world_process(runtime->pid);
	struct event_census record = {.header = {.type = EVENT_CENSUS,
						 .size = sizeof(record),
						 .tgid = (uint32_t)runtime->pid,
						 .tid = (uint32_t)runtime->pid},
				      .id = world.now_ns & ~EVENT_CENSUS_INSIDE,
				      .baseline = (uint32_t)opts->baseline};
	int err = runtime->file ? world_fails(process) : -ENOTSUP;

	opts->refresh(opts->context);
	record.header.time_ns = world.now_ns;
	if (opts->record(opts->context, &record, sizeof(record)))
		return -ESRCH;
	for (int i = 0; i < 3; i++) {
		world_meanwhile();
		opts->refresh(opts->context);
	}
	/* The runtime has not moved meanwhile. */
	record.header.type = EVENT_CENSUS_DONE;
	record.failed = err ? EVENT_CENSUS_GIVEN_UP : 0;
	if (*(const char *)runtime->file || opts->record(opts->context, &record, sizeof(record)))
		return -ESRCH;
	return err;
}

/* No heap of an allocator can be read. */
int allocators_open_all(struct allocators *out, struct space *space,
			const struct process_maps *maps)
{
	(void)space;
	(void)maps;
	*out = (struct allocators){.reason = "of the world"};
	world_meanwhile();
	return 0;
}

int trap_trial_begin(struct trap_trial *out, struct attach *attach)
{
	(void)attach;
	out->child = 1;
	return 0;
}

int trap_trial_end(struct trap_trial *trial, struct attach *attach, double *cost)
{
	(void)attach;
	trial->child = 0;
	if (cost)
		*cost = 1000;
	return 0;
}

/*
 * A real worker would be one more process for each input. Its CPU time is the time of the world,
 * which passes during each query.
 */
struct worker {
	uint64_t spent_ns;
};

int worker_new(struct worker **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : -ENOMEM;
}

void worker_free(struct worker *worker)
{
	free(worker);
}

int worker_generation(struct worker *worker, uint64_t *generation)
{
	(void)worker;
	*generation = 1;
	return 0;
}

int worker_open(struct worker *worker, uint32_t file, int fd, int alternate_fd)
{
	(void)worker;
	(void)file;
	(void)fd;
	(void)alternate_fd;
	return 0;
}

int worker_frames(struct worker *worker, uint32_t file, uint64_t vaddr, const char *symbol,
		  uint64_t until_ns, struct worker_frame frames[WORKER_FRAMES_MAX])
{
	(void)file;
	(void)vaddr;
	worker->spent_ns += 1000;
	if (world_byte() % 4 == 1) {
		world.now_ns = until_ns > world.now_ns ? until_ns : world.now_ns;
		world_meanwhile();
		return -EAGAIN;
	}
	frames[0] = (struct worker_frame){.function = symbol, .filename = ""};
	return 1;
}

int worker_open_tables(struct worker *worker, uint32_t file, int fd, int debug_fd,
		       uint64_t tables_max)
{
	(void)tables_max;
	return worker_open(worker, file, fd, debug_fd);
}

int worker_symbol(struct worker *worker, uint32_t file, uint64_t vaddr, uint64_t until_ns,
		  const char **name)
{
	struct worker_frame frames[WORKER_FRAMES_MAX];
	int count = worker_frames(worker, file, vaddr, "symbol", until_ns, frames);

	*name = count > 0 ? "symbol" : "";
	return count < 0 ? count : 0;
}

uint64_t worker_spent_ns(const struct worker *worker)
{
	return worker->spent_ns;
}

pid_t worker_pid(const struct worker *worker)
{
	(void)worker;
	return 0;
}

void worker_stop(struct worker *worker)
{
	(void)worker;
}

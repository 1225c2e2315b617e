/* SPDX-License-Identifier: Apache-2.0 */
/* Replaced functions: the map watch and everything that attaches. */
#include <errno.h>
#include <string.h>

#include "attach/links/features.h"
#include "attach/selftest/trap_cost.h"
#include "session/session.h"
#include "session_world_state.h"

int map_watch_open(struct map_watch **out)
{
	*out = (struct map_watch *)world_maps;
	return 0;
}

void map_watch_close(struct map_watch *watch)
{
	(void)watch;
}

void map_watch_drain(struct map_watch *watch,
		     void (*reported)(void *context, const struct map_watch_record *record),
		     void *context)
{
	(void)watch;
	while (world_map_first < world_map_end)
		reported(context, &world_maps[world_map_first++]);
	world_map_first = world_map_end = 0;
}

uint64_t map_watch_lost(const struct map_watch *watch)
{
	(void)watch;
	return 0;
}

/* --- BPF and its links ------------------------------------------------------------------------ */

int attach_new(struct attach **out, const struct features *features, const struct attach_opts *opts)
{
	(void)features;
	world_attach = (struct attach){.opts = *opts, .execd = *opts->execd};
	world.watch = opts->watch;
	world.layers = opts->execd->layers;
	*out = &world_attach;
	return 0;
}

void attach_free(struct attach *attach)
{
	if (attach)
		attach_detach(attach);
}

int attach_target(struct attach *attach, uint32_t tgid, const struct abi_target *target)
{
	struct process *process = world_process((pid_t)tgid);

	(void)attach;
	if (process->target && process->space_id != target->space_id)
		return -ESRCH;
	if (process->alive)
		world_target_make(process, target->space_id, target->runtime);
	process->followed |= process->alive && world.watch == ABI_WATCH_CHILDREN;
	return 0;
}

bool attach_is_target(const struct attach *attach, uint32_t tgid, uint32_t space_id)
{
	const struct process *process = world_process((pid_t)tgid);

	(void)attach;
	return process->target && process->space_id == space_id;
}

void attach_forget(struct attach *attach, uint32_t tgid, uint32_t space_id)
{
	if (attach_is_target(attach, tgid, space_id))
		world_process((pid_t)tgid)->target = 0;
}

int attach_follow(struct attach *attach, uint32_t tgid)
{
	(void)attach;
	world_process((pid_t)tgid)->followed = 1;
	return 0;
}

int attach_groups(struct attach *attach, const struct plan *plan, const struct elf_file *file,
		  pid_t pid, unsigned int groups)
{
	struct process *process = world_process(pid);

	(void)attach;
	(void)plan;
	(void)groups;
	(void)elf_file_path(file);
	world_meanwhile();
	if (!process)
		return 0;
	if (!process->alive)
		return -ESRCH;
	process->placed = 1;
	return world_fails(process);
}

size_t attach_pages(const struct attach *attach, const struct plan *plan,
		    const struct elf_file *file, pid_t pid, unsigned int groups)
{
	(void)attach;
	(void)file;
	(void)pid;
	(void)groups;
	return plan->count;
}

void attach_drop(struct attach *attach, pid_t pid, unsigned int groups, int wait)
{
	struct process *process = world_process(pid);

	(void)attach;
	(void)wait;
	if (process && groups & ATTACH_OTHERS)
		process->placed = 0;
	world_meanwhile();
}

int attach_detach(struct attach *attach)
{
	for (size_t i = 0; i < PROCESSES; i++)
		attach_drop(attach, world_pid(&world.processes[i]), ATTACH_ALL, 0);
	return 1;
}

int attach_drain(struct attach *attach, size_t limit)
{
	size_t count = 0;

	while (count < limit && world_record_first < world_record_end) {
		union record record = world_records[world_record_first++];
		int err = attach->opts.record(attach->opts.context, &record, sizeof(record));

		if (err)
			return err;
		count++;
	}
	if (world_record_first == world_record_end)
		world_record_first = world_record_end = 0;
	return (int)count;
}

int attach_loss(struct attach *attach, __u64 counts[LOSS_COUNT])
{
	(void)attach;
	memset(counts, 0, LOSS_COUNT * sizeof(counts[0]));
	counts[LOSS_PROCESS] = world.lost;
	return 0;
}

int attach_barred_threads(struct attach *attach, uint32_t *tgid)
{
	(void)attach;
	(void)tgid;
	return 0;
}

bool attach_is_in_files(const struct attach *attach)
{
	(void)attach;
	return 0;
}

void attach_count(struct attach *attach, int on)
{
	(void)attach;
	(void)on;
}

int attach_hits(struct attach *attach, uint32_t tgid, uint64_t *hits)
{
	(void)attach;
	*hits = world.hits;
	return world_process((pid_t)tgid)->target ? 0 : -ENOENT;
}

int attach_run_time(struct attach *attach, uint64_t *run_ns, uint64_t *runs)
{
	(void)attach;
	*run_ns = *runs = world.hits;
	return 0;
}

int attach_stats(void)
{
	return -EPERM;
}

int attach_sampled(struct attach *attach, const struct sampled_key *keys, size_t count)
{
	(void)attach;
	(void)keys;
	(void)count;
	return 0;
}

bool attach_is_everywhere(const struct attach *attach, const struct elf_file *file)
{
	(void)attach;
	(void)file;
	return 0;
}

bool attach_is_by_events(const struct attach *attach)
{
	(void)attach;
	return 0;
}

int attach_detaches_slowly(const struct attach *attach)
{
	(void)attach;
	return 0;
}

size_t attach_probes_left(const struct attach *attach)
{
	(void)attach;
	return SIZE_MAX;
}

/* The world has no stacks. */
int attach_unwind_areas(struct attach *attach, struct unwind_areas *out)
{
	(void)attach;
	(void)out;
	return -EOPNOTSUPP;
}

void attach_unwind_begin(struct attach *attach)
{
	(void)attach;
}

void attach_unwind_publish(struct attach *attach, const struct abi_unwind_key *key, uint32_t number)
{
	(void)attach;
	(void)key;
	(void)number;
}

const char *attach_backend(const struct attach *attach)
{
	(void)attach;
	return "";
}

pid_t attach_holder(const struct attach *attach)
{
	(void)attach;
	return 0;
}

int attach_check(const struct attach *attach)
{
	(void)attach;
	return 0;
}

int attach_confine(struct attach *attach, int attaches)
{
	(void)attach;
	(void)attaches;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of the world: what they do at each step, and the records that BPF and perf emit. */
#include "session_world.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "attach/selftest/trap_cost.h"
#include "runtime/heap/census.h"
#include "session/session.h"
#include "session_world_state.h"

struct world world;
struct attach world_attach;
union record world_records[RECORDS];
size_t world_record_first, world_record_end;
struct map_watch_record world_maps[RECORDS];
size_t world_map_first, world_map_end;
struct process *world_memory_asked;

uint8_t world_byte(void)
{
	if (world.calm || !world.size)
		return 0;
	world.size--;
	return *world.data++;
}

int world_fails(struct process *process)
{
	static const int errors[] = {0, 0,       0,      0,        0,      0,
				     0, -EFAULT, -ESRCH, -ENOTSUP, -EPERM, -ENOMEM};
	int err = errors[world_byte() % (sizeof(errors) / sizeof(errors[0]))];

	if (err && process)
		process->unsure = 1;
	if (err)
		world_meanwhile();
	return err;
}

struct process *world_process(pid_t pid)
{
	return pid >= PID_FIRST && pid < PID_FIRST + (pid_t)PROCESSES
		       ? &world.processes[pid - PID_FIRST]
		       : NULL;
}

pid_t world_pid(const struct process *process)
{
	return PID_FIRST + (pid_t)(process - world.processes);
}

static void record_put(union record *record, uint32_t type, size_t size, const struct process *of)
{
	record->header.type = type;
	record->header.size = (uint32_t)size;
	record->header.time_ns = world.now_ns;
	record->header.tgid = record->header.tid = (uint32_t)world_pid(of);
	if (world_record_end < RECORDS)
		world_records[world_record_end++] = *record;
	else
		world.lost++;
}

/* 1: the record is lost, and counted. */
static int is_lost(uint8_t how)
{
	world.lost += how % 16 == 0;
	return how % 16 == 0;
}

void world_target_make(struct process *process, uint32_t space_id, uint64_t program)
{
	process->target = 1;
	process->space_id = space_id;
	process->traced = program;
}

static void process_begin(struct process *process)
{
	if (process->end_fd)
		close(process->end_fd);
	*process = (struct process){.alive = 1,
				    .end_fd = eventfd(0, EFD_CLOEXEC),
				    .loaded = 1,
				    .program = ++world.programs,
				    .mapped = world.now_ns,
				    .begun = process->begun + 1};
}

static void appear(struct process *process, const struct process *parent, uint32_t layers,
		   uint8_t how)
{
	union record record = {.appear = {.parent = (uint32_t)world_pid(parent), .layers = layers}};

	if (is_lost(how)) {
		process->unsure = 1;
		return;
	}
	if (layers)
		world_target_make(process, ABI_SPACE_GIVEN | world.spaces++, process->program);
	record.appear.space_id = layers ? process->space_id : 0;
	process->reported = 1;
	record_put(&record, EVENT_APPEAR, sizeof(record.appear), process);
}

static int is_watched(const struct process *process)
{
	return world.watch == ABI_WATCH_ALL ||
	       (world.watch == ABI_WATCH_CHILDREN && process->followed);
}

static void process_fork(struct process *parent, struct process *child, uint8_t how)
{
	union record record = {.process = {.other = (uint32_t)world_pid(child)}};

	process_begin(child);
	child->python = parent->python;
	child->loaded = parent->loaded;
	child->program = parent->program;
	/*
	 * What the session learns about the parent holds for the child, too. No event is emitted
	 * for an exec of a process that is not watched yet, between its plan and its attachment.
	 */
	child->unsure = parent->unsure || (parent->target && parent->traced != parent->program);
	if (!parent->target && !is_watched(parent))
		return;
	child->followed = world.watch == ABI_WATCH_CHILDREN;
	if (parent->target) {
		if (world.watch != ABI_WATCH_NONE)
			world_target_make(child, ABI_SPACE_GIVEN | world.spaces++, parent->traced);
		record.process.code = child->target ? EVENT_FORK_TRACED : 0;
		record.process.space_id = child->space_id;
		if (is_lost(how))
			child->unsure = 1;
		else
			record_put(&record, EVENT_FORK, sizeof(record.process), parent);
		child->reported = child->target;
	} else {
		appear(child, parent, 0, how);
	}
}

static void process_exec(struct process *process, uint8_t how)
{
	union record record = {.process = {.code = 0}};
	struct map_watch_record reported = {
		.tgid = (uint32_t)world_pid(process), .time_ns = world.now_ns, .exec = 1};
	int was = process->target || is_watched(process), lost = 0;

	if (process->target)
		lost = is_lost(how);
	if (process->target && !lost)
		record_put(&record, EVENT_EXEC, sizeof(record.process), process);
	process->target = process->reported = 0;
	process->begun++;
	process->program = ++world.programs;
	process->python = how & 1;
	process->loaded = (how & 6) != 6;
	/*
	 * Errors of the previous program do not concern this one, nor does a loss if this one is
	 * reported to the session; the probes of the previous one may still be in place.
	 */
	process->unsure = world.watch == ABI_WATCH_NONE ? lost || process->unsure
							: process->unsure && world.lost;
	process->mapped = world.now_ns;
	if (world_map_end < RECORDS)
		world_maps[world_map_end++] = reported;
	if (!was || world.watch == ABI_WATCH_NONE)
		return;
	process->followed = world.watch == ABI_WATCH_CHILDREN;
	appear(process, process, world.layers, (uint8_t)(how >> 1));
}

static void process_exit(struct process *process, uint8_t how)
{
	union record record = {.process = {.code = how}};
	const uint64_t one = 1;

	if ((process->target || is_watched(process)) && !is_lost(how))
		record_put(&record, EVENT_EXIT, sizeof(record.process), process);
	process->alive = process->target = process->followed = 0;
	process->ended = world.drains;
	if (write(process->end_fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

/* The process maps a library, which may be Python. */
static void process_map(struct process *process, uint8_t how)
{
	static char path[] = "/nowhere/library.so";
	struct map_watch_record reported = {.tgid = (uint32_t)world_pid(process),
					    .time_ns = world.now_ns};

	process->mapped = world.now_ns;
	process->python |= how % 4 == 0;
	process->loaded = 1;
	reported.map.start = 0x10000ull * how;
	reported.map.end = reported.map.start + 0x1000;
	reported.map.inode = 1u + how;
	reported.map.path = path;
	if (world_map_end < RECORDS)
		world_maps[world_map_end++] = reported;
}

/* A thread of the process allocates a block. */
static void process_work(struct process *process)
{
	union record record = {.alloc = {.address = 0x1000, .bytes = 8, .api = EVENT_API_OBJ}};

	if (process->target)
		record_put(&record, EVENT_ALLOC, sizeof(record.alloc), process);
	world.hits += 100;
}

static void world_step(void)
{
	uint8_t op = world_byte(), how;
	struct process *process = &world.processes[op % PROCESSES];
	struct process *other;

	if (world.calm)
		return;
	world.now_ns += 1000;
	how = world_byte();
	if (!process->alive) {
		if (op >= 0xe0 && process->ended < world.drains)
			process_begin(process);
		return;
	}
	switch (op / PROCESSES % 8) {
	case 0:
	case 1:
		other = &world.processes[how % PROCESSES];
		if (!other->alive && other->ended < world.drains)
			process_fork(process, other, (uint8_t)(how / PROCESSES + 1));
		break;
	case 2:
		process_exec(process, how);
		break;
	case 3: /* by itself, or by a signal */
		process_exit(process, how);
		break;
	case 4:
		process_map(process, how);
		break;
	case 5:
		process_work(process);
		break;
	default:
		world.now_ns += (uint64_t)how * how * 10000;
	}
}

void world_go_on(unsigned int steps)
{
	while (steps-- && !world.calm && world.size)
		world_step();
}

void world_meanwhile(void)
{
	world_go_on(world_byte() % 4);
}

void world_begin(const uint8_t *data, size_t size)
{
	world = (struct world){.data = data, .size = size, .now_ns = 1000000000000ull};
	world_record_first = world_record_end = world_map_first = world_map_end = 0;
	world_memory_asked = NULL;
	for (size_t i = 0; i < PROCESSES; i++)
		process_begin(&world.processes[i]);
}

void world_end(void)
{
	for (size_t i = 0; i < PROCESSES; i++)
		close(world.processes[i].end_fd);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "session_world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attach/attach.h"
#include "attach/features.h"
#include "attach/file_users.h"
#include "attach/map_watch.h"
#include "attach/obstacles.h"
#include "attach/trap_cost.h"
#include "base/error.h"
#include "container/memory_room.h"
#include "plan/plan_target.h"
#include "python/heap.h"
#include "python/late.h"
#include "session/census.h"
#include "session/session_state.h"
#include "symbols/worker.h"
#include "trace/blind.h"

#define RECORDS 4096u /* of either kind, as much as the ring buffers hold */

struct attach {
	struct attach_opts opts;
	struct abi_target newborn;
};

struct world world;

/* Any of BPF's records that tell of processes. */
union record {
	struct event_header header;
	struct event_process process;
	struct event_appear appear;
	struct event_alloc alloc;
};

static struct attach attach_one;
static union record records[RECORDS];
static size_t record_first, record_end;
static struct map_watch_record maps[RECORDS];
static size_t map_first, map_end;
static struct process *memory_asked; /* whose was asked for last */

uint8_t world_byte(void)
{
	if (world.calm || !world.size)
		return 0;
	world.size--;
	return *world.data++;
}

static void meanwhile(void);

/*
 * Does what is asked now fail? Then what becomes of the process is open. It goes on while the
 * answer is on its way.
 */
static int fails(struct process *process)
{
	static const int errors[] = {0, 0,       0,      0,        0,      0,
				     0, -EFAULT, -ESRCH, -ENOTSUP, -EPERM, -ENOMEM};
	int err = errors[world_byte() % (sizeof(errors) / sizeof(errors[0]))];

	if (err && process)
		process->unsure = 1;
	if (err)
		meanwhile();
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
	if (record_end < RECORDS)
		records[record_end++] = *record;
	else
		world.lost++;
}

/* 1: it is lost, and counted. */
static int is_lost(uint8_t how)
{
	world.lost += how % 16 == 0;
	return how % 16 == 0;
}

static void target_make(struct process *process, uint32_t space, uint64_t program)
{
	process->target = 1;
	process->space = space;
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
		target_make(process, ABI_SPACE_GIVEN | world.spaces++, process->program);
	record.appear.space = layers ? process->space : 0;
	process->told = 1;
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
	 * What the session will be told of its parent is true of it, too. Nobody tells that one who
	 * was not watched yet has called exec between its plan and its attachment.
	 */
	child->unsure = parent->unsure || (parent->target && parent->traced != parent->program);
	if (!parent->target && !is_watched(parent))
		return;
	child->followed = world.watch == ABI_WATCH_CHILDREN;
	if (parent->target) {
		if (world.watch != ABI_WATCH_NONE)
			target_make(child, ABI_SPACE_GIVEN | world.spaces++, parent->traced);
		record.process.code = child->target ? EVENT_FORK_TRACED : 0;
		record.process.space = child->space;
		if (is_lost(how))
			child->unsure = 1;
		else
			record_put(&record, EVENT_FORK, sizeof(record.process), parent);
		child->told = child->target;
	} else {
		appear(child, parent, 0, how);
	}
}

static void process_exec(struct process *process, uint8_t how)
{
	union record record = {.process = {.code = 0}};
	struct map_watch_record told = {
		.tgid = (uint32_t)world_pid(process), .time_ns = world.now_ns, .exec = 1};
	int was = process->target || is_watched(process), lost = 0;

	if (process->target)
		lost = is_lost(how);
	if (process->target && !lost)
		record_put(&record, EVENT_EXEC, sizeof(record.process), process);
	process->target = process->told = 0;
	process->begun++;
	process->program = ++world.programs;
	process->python = how & 1;
	process->loaded = (how & 6) != 6;
	/*
	 * What went wrong with the program before says nothing of this one, nor does a loss if the
	 * session is told of this one; its probes may be there yet.
	 */
	process->unsure = world.watch == ABI_WATCH_NONE ? lost || process->unsure
							: process->unsure && world.lost;
	process->mapped = world.now_ns;
	if (map_end < RECORDS)
		maps[map_end++] = told;
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

/* A library comes; it may be Python. */
static void process_map(struct process *process, uint8_t how)
{
	static char path[] = "/nowhere/library.so";
	struct map_watch_record told = {.tgid = (uint32_t)world_pid(process),
					.time_ns = world.now_ns};

	process->mapped = world.now_ns;
	process->python |= how % 4 == 0;
	process->loaded = 1;
	told.map.start = 0x10000ull * how;
	told.map.end = told.map.start + 0x1000;
	told.map.inode = 1u + how;
	told.map.path = path;
	if (map_end < RECORDS)
		maps[map_end++] = told;
}

/* Of a thread of it: a block. */
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

/* While the session waits for an answer. */
static void meanwhile(void)
{
	world_go_on(world_byte() % 4);
}

void world_begin(const uint8_t *data, size_t size)
{
	world = (struct world){.data = data, .size = size, .now_ns = 1000000000000ull};
	record_first = record_end = map_first = map_end = 0;
	memory_asked = NULL;
	for (size_t i = 0; i < PROCESSES; i++)
		process_begin(&world.processes[i]);
}

void world_end(void)
{
	for (size_t i = 0; i < PROCESSES; i++)
		close(world.processes[i].end_fd);
}

/* --- what the session asks: the clock, processes ---------------------------------------------- */

int clock_gettime(clockid_t clock, struct timespec *out)
{
	uint64_t now = clock == CLOCK_MONOTONIC ? world.now_ns += 100 : world.now_ns / 2;

	if (clock == CLOCK_REALTIME)
		return (int)syscall(SYS_clock_gettime, clock, out);
	out->tv_sec = (time_t)(now / 1000000000);
	out->tv_nsec = (long)(now % 1000000000);
	return 0;
}

int clock_getcpuclockid(pid_t pid, clockid_t *out)
{
	*out = CLOCK_PROCESS_CPUTIME_ID;
	return world_process(pid)->alive ? 0 : ESRCH;
}

/* Not all of its arguments are there. */
__attribute__((no_sanitize("address", "undefined"))) long syscall(long number, ...)
{
	register long r10 __asm__("r10"), r8 __asm__("r8"), r9 __asm__("r9");
	long a, b, c, result;
	va_list arguments;

	va_start(arguments, number);
	a = va_arg(arguments, long);
	b = va_arg(arguments, long);
	c = va_arg(arguments, long);
	r10 = va_arg(arguments, long);
	r8 = va_arg(arguments, long);
	r9 = va_arg(arguments, long);
	va_end(arguments);
	if (number == SYS_pidfd_open && world_process((pid_t)a)) {
		struct process *process = world_process((pid_t)a);

		errno = ESRCH;
		return process->alive ? dup(process->end_fd) : -1;
	}
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return result;
}

/*
 * Of the descriptor the world keeps which process it is, and how many programs that has run before.
 */
#define PROGRAM_BITS 24

int process_program_open(pid_t pid)
{
	const struct process *process = world_process(pid);

	if (!process || !process->alive)
		return -ESRCH;
	return eventfd((unsigned int)(process - world.processes) << PROGRAM_BITS | process->begun,
		       EFD_CLOEXEC);
}

int process_program_is_past(pid_t pid, int fd)
{
	const struct process *process;
	uint64_t value = 0;

	if (read(fd, &value, sizeof(value)) != sizeof(value) ||
	    write(fd, &value, sizeof(value)) != sizeof(value))
		abort();
	process = &world.processes[value >> PROGRAM_BITS];
	return process == world_process(pid) && process->alive &&
	       process->begun != (value & ((1u << PROGRAM_BITS) - 1));
}

int process_info_read(pid_t pid, struct process_info *out)
{
	struct process *process = world_process(pid);

	*out = (struct process_info){.pid = pid, .tgid = pid, .ns_pid = pid, .threads = 1};
	return process && process->alive ? 0 : -ESRCH;
}

int process_list(pid_t **out, size_t *count)
{
	*out = calloc(PROCESSES, sizeof(**out));
	*count = 0;
	for (size_t i = 0; i < PROCESSES; i++)
		if (world.processes[i].alive)
			(*out)[(*count)++] = world_pid(&world.processes[i]);
	return 0;
}

int file_users_read(struct file_users **out)
{
	(void)out;
	return -ENOMEM;
}

void session_container(struct session *session, pid_t pid, char *out, size_t room)
{
	(void)session;
	(void)pid;
	memset(out, 0, room);
}

int late_look(struct late *late, struct runtime_files *files)
{
	struct process *process = world_process(late->pid);
	int err;

	(void)files;
	meanwhile();
	if (!process->alive)
		return -ESRCH;
	err = fails(process);
	late->mapped = late->looked = process->mapped;
	return err ? err : process->python;
}

/* --- memory that is left ---------------------------------------------------------------------- */

int memory_room_new(struct memory_room **out)
{
	*out = calloc(1, 16);
	return 0;
}

void memory_room_free(struct memory_room *room)
{
	free(room);
}

int memory_room_take(struct memory_room *room, pid_t pid, int64_t bytes)
{
	struct process *process = world_process(pid);

	(void)room;
	if (!process || !process->alive)
		return -ESRCH;
	memory_asked = process;
	return bytes > 0 ? fails(process) : 0;
}

int memory_room_is_short(const struct memory_room *room, struct memory_short *out)
{
	(void)room;
	*out = (struct memory_short){.where = "the machine"};
	return memory_asked && fails(memory_asked) != 0;
}

/* --- features, plans, the runtime ------------------------------------------------------------- */

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

int obstacle_tell(enum obstacle_step action, int err)
{
	(void)action;
	return err;
}

/* In place of a file's: whoever has it frees it, once. */
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
	runtime->file = NULL;
}

int python_runtime_inherit(const struct python_runtime *parent, pid_t pid,
			   struct python_runtime *out)
{
	*out = *parent;
	out->pid = pid;
	out->file = parent->file ? file_new() : NULL;
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

static struct plan_site site = {.op = ABI_OP_FREE};
static const struct plan native_plan = {.sites = &site, .count = 1};

int plan_native_process(pid_t pid, struct plan_native_cache *cache, struct plan_file **list,
			size_t *count)
{
	static char file[16];
	struct process *process = world_process(pid);
	int err;

	(void)cache;
	meanwhile();
	err = process->alive ? fails(process) : -ESRCH;
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

	meanwhile();
	*out = (struct plan_target){0};
	err = process->alive ? fails(process) : -ESRCH;
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
	int err = runtime->file ? fails(process) : -ENOTSUP;

	opts->refresh(opts->context);
	record.header.time_ns = world.now_ns;
	if (opts->record(opts->context, &record, sizeof(record)))
		return -ESRCH;
	for (int i = 0; i < 3; i++) {
		meanwhile();
		opts->refresh(opts->context);
	}
	/* It has not moved meanwhile. */
	record.header.type = EVENT_CENSUS_DONE;
	record.failed = err ? EVENT_CENSUS_GIVEN_UP : 0;
	if (*(const char *)runtime->file || opts->record(opts->context, &record, sizeof(record)))
		return -ESRCH;
	return err;
}

int trap_cost_measure(struct attach *attach, double *out)
{
	(void)attach;
	*out = 1000;
	return 0;
}

/*
 * A process for names would be one more for each input. Its time is the world's: it passes while it
 * is waited for.
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
		meanwhile();
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

/* --- what is mapped --------------------------------------------------------------------------- */

int map_watch_open(struct map_watch **out)
{
	*out = (struct map_watch *)maps;
	return 0;
}

void map_watch_close(struct map_watch *watch)
{
	(void)watch;
}

void map_watch_drain(struct map_watch *watch,
		     void (*told)(void *context, const struct map_watch_record *record),
		     void *context)
{
	(void)watch;
	while (map_first < map_end)
		told(context, &maps[map_first++]);
	map_first = map_end = 0;
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
	attach_one = (struct attach){.opts = *opts, .newborn = *opts->newborn};
	world.watch = opts->watch;
	world.layers = opts->newborn->layers;
	*out = &attach_one;
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
	if (process->target && process->space != target->space)
		return -ESRCH;
	if (process->alive)
		target_make(process, target->space, target->runtime);
	process->followed |= process->alive && world.watch == ABI_WATCH_CHILDREN;
	return 0;
}

int attach_is_target(const struct attach *attach, uint32_t tgid, uint32_t space)
{
	const struct process *process = world_process((pid_t)tgid);

	(void)attach;
	return process->target && process->space == space;
}

void attach_forget(struct attach *attach, uint32_t tgid, uint32_t space)
{
	if (attach_is_target(attach, tgid, space))
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
	meanwhile();
	if (!process)
		return 0;
	if (!process->alive)
		return -ESRCH;
	process->placed = 1;
	return fails(process);
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
	meanwhile();
}

void attach_release(struct attach *attach, pid_t pid)
{
	attach_drop(attach, pid, ATTACH_ALL, 0);
}

void attach_detach(struct attach *attach)
{
	for (size_t i = 0; i < PROCESSES; i++)
		attach_release(attach, world_pid(&world.processes[i]));
}

int attach_drain(struct attach *attach, size_t limit)
{
	size_t count = 0;

	while (count < limit && record_first < record_end) {
		union record record = records[record_first++];
		int err = attach->opts.record(attach->opts.context, &record, sizeof(record));

		if (err)
			return err;
		count++;
	}
	if (record_first == record_end)
		record_first = record_end = 0;
	return (int)count;
}

int attach_loss(struct attach *attach, __u64 counts[LOSS_COUNT])
{
	(void)attach;
	memset(counts, 0, LOSS_COUNT * sizeof(counts[0]));
	counts[LOSS_PROCESS] = world.lost;
	return 0;
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

int attach_is_everywhere(const struct attach *attach, const struct elf_file *file)
{
	(void)attach;
	(void)file;
	return 0;
}

int attach_is_by_events(const struct attach *attach)
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

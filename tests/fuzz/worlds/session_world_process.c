/* SPDX-License-Identifier: Apache-2.0 */
/* Replaced functions: the clock, processes, and available memory. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "attach/file_users.h"
#include "probe/process/late.h"
#include "proc/container/container_names.h"
#include "proc/container/memory_headroom.h"
#include "runtime/heap/census.h"
#include "session/session.h"
#include "session_world_state.h"

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

/* Reads six arguments, of which the caller may have passed fewer. */
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

/* No file of the world's processes is mapped. */
int process_maps_read(pid_t pid, struct process_maps *out)
{
	struct process *process = world_process(pid);

	*out = (struct process_maps){0};
	return process && process->alive ? world_fails(process) : -ESRCH;
}

/* The descriptor's value: the index of the process, and the number of programs that it has run. */
#define PROGRAM_BITS 24

int process_program_open(pid_t pid)
{
	const struct process *process = world_process(pid);

	if (!process || !process->alive)
		return -ESRCH;
	return eventfd((unsigned int)(process - world.processes) << PROGRAM_BITS | process->begun,
		       EFD_CLOEXEC);
}

/* No memory of the world's processes can be read. */
int space_open(struct space **out, pid_t pid)
{
	const struct process *process = world_process(pid);

	*out = process && process->alive ? calloc(1, 1) : NULL;
	return *out ? 0 : -ESRCH;
}

void space_close(struct space *space)
{
	free(space);
}

void space_rest(struct space *space)
{
	(void)space;
}

int space_read(struct space *space, uint64_t address, void *out, size_t bytes)
{
	(void)space, (void)address, (void)out, (void)bytes;
	return -ESRCH;
}

struct space_missed space_missed(const struct space *space)
{
	(void)space;
	return (struct space_missed){0};
}

int space_pages(struct space *space, uint64_t address, size_t pages, uint8_t *what)
{
	(void)space, (void)address, (void)pages, (void)what;
	return -ESRCH;
}

bool process_program_is_past(pid_t pid, int fd)
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

int file_users_read(const struct file_users *known, struct file_users **out)
{
	(void)known;
	(void)out;
	return -ENOMEM;
}

void container_names_find(struct container_names *names, pid_t pid, char *out, size_t capacity)
{
	(void)names;
	(void)pid;
	memset(out, 0, capacity);
}

int late_look(struct late *late, struct runtime_files *files)
{
	struct process *process = world_process(late->pid);
	int err;

	(void)files;
	world_meanwhile();
	if (!process->alive)
		return -ESRCH;
	err = world_fails(process);
	late->mapped = late->looked = process->mapped;
	return err ? err : process->python;
}

/* --- available memory ------------------------------------------------------------------------- */

int memory_headroom_new(struct memory_headroom **out)
{
	*out = calloc(1, 16);
	return 0;
}

void memory_headroom_free(struct memory_headroom *capacity)
{
	free(capacity);
}

int memory_headroom_take(struct memory_headroom *capacity, pid_t pid, int64_t bytes)
{
	struct process *process = world_process(pid);

	(void)capacity;
	if (!process || !process->alive)
		return -ESRCH;
	world_memory_asked = process;
	return bytes > 0 ? world_fails(process) : 0;
}

bool memory_headroom_is_short(const struct memory_headroom *capacity, struct memory_short *out)
{
	(void)capacity;
	*out = (struct memory_short){.where = "the machine"};
	return world_memory_asked && world_fails(world_memory_asked) != 0;
}

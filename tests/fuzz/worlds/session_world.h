/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world that fuzz_session.c puts a session into, in place of the kernel and of processes: which
 * processes live, which ones are targets in BPF's table (as in bpf/process.h), the records of the
 * ring buffer and of perf, the clock. The functions in session_world_*.c replace those that query
 * the kernel. During each query processes run on as the input says, and the result may be an error.
 */
#ifndef FUZZ_SESSION_WORLD_H
#define FUZZ_SESSION_WORLD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/target.h"
#include "session/session.h"

#define PROCESSES 8u
#define PID_FIRST 5000000 /* above the PIDs that a kernel assigns */

struct process {
	int alive;
	int python; /* it has a runtime */
	int loaded; /* libc is mapped: native allocators can be traced without Python */
	int target; /* is in BPF's table of targets, with: */
	uint32_t space_id;
	uint64_t traced;  /* the program that BPF traces it as */
	uint64_t program; /* the program that it runs, numbered over all execs */
	int followed;     /* is in BPF's table of processes whose forks and execs are reported */
	/* this program was reported to the session, in a record or by session_add() */
	int reported;
	int unsure; /* after an error or a loss: its targetship is undetermined */
	int placed; /* probes are placed in it alone */
	uint64_t mapped;
	int end_fd;         /* an eventfd in place of its pidfd */
	unsigned int begun; /* programs that have run under this PID so far */
	/* world.drains at its end: the PID is reused after the next drain */
	unsigned int ended;
};

struct world {
	const uint8_t *data;
	size_t size;
	int calm; /* no process runs on, and no query fails */
	uint64_t now_ns;
	enum abi_watch watch;
	uint32_t layers; /* layers of targets that are made at exec (struct attach_opts.execd) */
	struct process processes[PROCESSES];
	uint64_t lost, hits, programs;
	uint32_t spaces;
	unsigned int drains; /* calls of session_drain() so far */
};

extern struct world world;

/* Resets the world. world_byte() reads this input from here on. */
void world_begin(const uint8_t *data, size_t size);
void world_end(void);
uint8_t world_byte(void); /* 0 after the end */
/* Processes do that number of steps; each takes one or two bytes of the input. */
void world_go_on(unsigned int steps);
struct process *world_process(pid_t pid); /* NULL: not a process of the world */
pid_t world_pid(const struct process *process);

#endif

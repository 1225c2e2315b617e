/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world that fuzz_session.c puts a session into, in place of the kernel and of processes: who
 * lives, whom BPF takes for a target (as bpf/process.h does), the ring buffer's and perf's records,
 * the clock. Functions that ask the world are replaced by the ones in session_world.c; whatever the
 * session asks, the world goes on meanwhile, as the input says, and the answer may be an error.
 */
#ifndef FUZZ_SESSION_WORLD_H
#define FUZZ_SESSION_WORLD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/target.h"
#include "session/session.h"

#define PROCESSES 8u
#define PID_FIRST 5000000 /* beyond what a kernel gives out */

struct process {
	int alive;
	int python; /* it has a runtime */
	int loaded; /* libc is mapped: without Python there is something to be traced */
	int target; /* in BPF's table: */
	uint32_t space;
	uint64_t traced;  /* which program it is taken for there */
	uint64_t program; /* which it runs, of all that were called */
	int followed;     /* in BPF's table of those whose children and programs are told of */
	/* the session was told of this program, in a record or by session_add() */
	int told;
	int unsure; /* an error or a loss came between: whether it is a member is open */
	int placed; /* probes are placed in it alone */
	uint64_t mapped;
	int end_fd;         /* an eventfd in place of its pidfd */
	unsigned int begun; /* how many programs had its number so far */
	/* world.drains at its end: its number is given out again after another */
	unsigned int ended;
};

struct world {
	const uint8_t *data;
	size_t size;
	int calm; /* nothing happens any more, and nothing fails */
	uint64_t now_ns;
	enum abi_watch watch;
	uint32_t layers; /* what programs become targets with (struct attach_opts.newborn) */
	struct process processes[PROCESSES];
	uint64_t lost, hits, programs;
	uint32_t spaces;
	unsigned int drains; /* calls of session_drain() so far */
};

extern struct world world;

/* Begins anew; the input is read by world_byte() from here on. */
void world_begin(const uint8_t *data, size_t size);
void world_end(void);
uint8_t world_byte(void); /* 0 behind the end */
/* So many steps of what processes do, one byte or two each. */
void world_go_on(unsigned int steps);
struct process *world_process(pid_t pid); /* NULL: it is none of ours */
pid_t world_pid(const struct process *process);

#endif

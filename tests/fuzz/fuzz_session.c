/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The targets of a session: processes fork, call exec, map libraries, end and are killed, and
 * records are lost, while the session attaches to them, walks their heaps and changes their modes.
 * Any of its queries may fail. The input determines the events. When all is calm the session must
 * agree with the world (session_world.h).
 */
#include <stdio.h>
#include <stdlib.h>

#include "session/session.h"
#include "session_world.h"
#include "util/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CALM_TURNS   40
#define CALM_STEP_NS 60000000ull

static const enum abi_watch watches[] = {ABI_WATCH_NONE, ABI_WATCH_CHILDREN, ABI_WATCH_ALL,
					 ABI_WATCH_CHILDREN};

static void check(int holds, const char *what, const struct process *process)
{
	if (holds)
		return;
	fprintf(stderr, "PID %d: %s (target %d, told %d, python %d, placed %d, unsure %d)\n",
		process ? (int)world_pid(process) : 0, what, process ? process->target : 0,
		process ? process->reported : 0, process ? process->python : 0,
		process ? process->placed : 0, process ? process->unsure : 0);
	abort();
}

static void process_add(struct session *session, uint8_t which)
{
	struct process *process = &world.processes[which % PROCESSES];
	int was_alive = process->alive;
	unsigned int begun = process->begun;

	if (session_add(session, world_pid(process), which & 0x80) || !was_alive ||
	    process->begun != begun)
		process->unsure = 1;
	else
		process->reported = 1;
}

static void session_step(struct session *session)
{
	uint8_t op = world_byte(), how = world_byte();
	size_t count = trace_process_count(session_trace(session));

	switch (op % 8) {
	case 0:
	case 1:
		process_add(session, how);
		break;
	case 2:
		session_refresh(session, count ? how % count : 0, how & 1);
		break;
	case 3:
		session_mark(session, count ? how % count : 0, EVENT_CLEAR);
		break;
	case 4:
		session_census(session);
		break;
	case 5:
		session_watch(session, world_pid(&world.processes[how % PROCESSES]));
		break;
	default:
		session_drain(session);
		world.drains++;
	}
}

/* Every running table belongs to a target, and every target has one. */
static void tables_check(struct session *session)
{
	struct trace *trace = session_trace(session);
	size_t running = 0;

	for (size_t i = 0; i < trace_process_count(trace); i++) {
		const struct trace_process *process = trace_process_at(trace, i);

		if (!process || process->end != TRACE_RUNNING)
			continue;
		running++;
		check(session_process_running(session, i), "a running table without a target",
		      world_process((pid_t)process->tgid));
	}
	check(running == session_running(session), "targets without a table", NULL);
}

static void session_targets_check(struct session *session)
{
	for (size_t i = 0; i < PROCESSES; i++) {
		const struct process *process = &world.processes[i];
		int is_target = session_has(session, world_pid(process));

		check(process->alive || !is_target, "a target that has ended", process);
		check(!process->alive || process->unsure || is_target == process->target,
		      "the session and BPF disagree", process);
		/* After a loss the session examines processes itself. */
		check(!process->alive || process->unsure || world.lost || process->reported ||
			      !is_target,
		      "a target of which nobody told", process);
		check(!process->alive || process->unsure || !process->reported ||
			      !process->python || is_target,
		      "not a target", process);
		check(is_target || !process->placed || process->unsure, "probes of nobody",
		      process);
		check(!process->target || process->unsure || process->traced == process->program,
		      "taken for another program", process);
	}
	tables_check(session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct session_opts opts = {.nframe = 1, .budget = 1 << 20};
	struct session *session;
	const char *remedy;
	uint8_t how;

	if (size < 2 || size > 4096)
		return 0;
	log_level = 0;
	world_begin(data, size);
	how = world_byte();
	opts.watch = watches[how % 4];
	opts.everywhere = opts.watch == ABI_WATCH_ALL && how & 4;
	opts.overhead = how & 8 ? 0.01 : 0;
	opts.plan.layers = how & 16 ? 1u << EVENT_LAYER_PYTHON | 1u << EVENT_LAYER_NATIVE : 0;
	opts.plan.python.mode = how & 32 ? EVENT_MODE_CENSUS : EVENT_MODE_EXACT;
	if (session_new(&session, &opts, &remedy))
		abort();
	while (world.size) {
		session_step(session);
		world_go_on(world_byte() % 8);
	}
	world.calm = 1;
	for (int i = 0; i < CALM_TURNS; i++) {
		world.now_ns += CALM_STEP_NS;
		session_drain(session);
	}
	session_targets_check(session);
	session_stop(session, 1);
	session_free(session);
	world_end();
	return 0;
}

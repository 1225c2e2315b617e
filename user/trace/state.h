/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct trace, shared by user/trace/ only. */
#pragma once

#include "snapshot/builder.h"
#include "trace/process/process_tables.h"
#include "trace/trace.h"

/* ended processes may keep 1/4 of the processes' share of the budget, whatever others request */
#define STATE_KEEP_SHARE 4u

struct trace {
	struct trace_hooks hooks;
	int in_hook;
	uint64_t seed;
	/* tables is the part of account that the processes share */
	struct account account, tables;
	struct strings *strings; /* not specific to a process */
	uint32_t unknown;        /* id of TRACE_UNKNOWN in strings */
	struct process_state **processes;
	size_t process_count, process_capacity;
	size_t ended_count; /* processes with table_kept */
	size_t ended_large; /* ended processes with ended_large */
	uint64_t ended_bytes;
	size_t free_count; /* NULL entries of processes */
	struct trace_dropped dropped;
	struct id_map tgids; /* -> index of the last process of that tgid */
	struct id_map dropped_tgids[2];
	struct process_state *last; /* cached: the process of the last record */
	struct event_loss loss;
	struct trace_observed observed;
	uint64_t orphans;
	uint32_t reported;               /* the number of answers to live views */
	int ages;                        /* trace_ages() */
	struct traceback_frames scratch; /* storage of trace_traceback_at() */
};

/* NULL: the index is unused. The second: nor has it ended. */
static inline struct process_state *state_at(const struct trace *trace, size_t index)
{
	return index < trace->process_count ? trace->processes[index] : NULL;
}

static inline struct process_state *state_running(const struct trace *trace, size_t index)
{
	struct process_state *process = state_at(trace, index);

	return process && !process->table_kept ? process : NULL;
}

/* Is the block one that was seen in a window, and stands for others of its kind? */
bool state_block_stands(const struct process_state *process, enum event_layer layer,
			const struct block *block);
/* The numbers of all its stacks, in order. The caller frees; NULL: no memory. */
uint32_t *state_stacks_all(const struct process_state *process);
/* EVENT_THREAD. 0. */
int state_thread_name(struct process_state *process, const struct event_thread *event);
/* EVENT_TASK. 0, -EBADMSG. */
int state_task(struct process_state *process, const struct event_task *event);
/*
 * Adds what is alive by thread and task, and the threads' names. tracebacks: by stack, the
 * snapshot's. 0; errors of the builder.
 */
int state_threads_add(const struct process_state *process, const uint32_t *tracebacks,
		      struct builder *builder);
/* Until when the table of the process is valid. */
uint64_t state_moment_ns(const struct trace *trace, const struct trace_process *info);
/* The meta data of a snapshot taken now. */
void state_meta(const struct trace *trace, const struct process_state *process,
		struct snapshot_meta *meta);
/* Takes a snapshot in the state info.end. 0, -ENOMEM. */
int state_snapshot(struct trace *trace, struct process_state *process, struct snapshot **out);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent's pages are made of, at one time: the processes that are shown, their cgroups, the
 * lines that hold most, what the agent itself takes. All texts are valid UTF-8 without control
 * characters (util/text.h) and at most FIGURE_TEXT bytes, whatever the processes are called.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cmd/agent/push.h"
#include "cmd/agent/session_view.h"
#include "cmd/agent/web.h"
#include "session/ctl/sums.h"

#define FIGURE_TEXT      128u
#define FIGURE_PROCESSES 1000u /* at most; those that are traced come first */

enum figure_kind { FIGURE_ANON, FIGURE_FILE, FIGURE_SHMEM, FIGURE_SWAP, FIGURE_KINDS };

struct figure_process {
	pid_t pid;
	char name[FIGURE_TEXT + 1];
	/* its command line, as `tracer list` shows it; "": none, or not read yet */
	char command[FIGURE_TEXT + 1];
	char container[FIGURE_TEXT + 1], service[FIGURE_TEXT + 1]; /* "": none */
	char namespace[FIGURE_TEXT + 1], pod[FIGURE_TEXT + 1];     /* of Kubernetes; "": none */
	uint64_t bytes[FIGURE_KINDS];
	bool is_traced;
	/* of a traced one: as in struct sums_process; allocated: since this server began */
	uint32_t layer, flags, mode, python_version;
	double live_size, live_count, allocated;
	struct trace_rate rate;
	struct collections collections;
};

struct figure_cgroup {
	char path[FIGURE_TEXT + 1], container[FIGURE_TEXT + 1];
	char namespace[FIGURE_TEXT + 1], pod[FIGURE_TEXT + 1];
	uint64_t used, file, limit; /* limit UINT64_MAX: none */
};

struct figure_line {
	char text[FIGURE_TEXT + 1];
	double size, count;
};

/* Processes of the agent. */
enum figure_own { OWN_AGENT, OWN_SESSION, OWN_WEB, OWN_PUSH, OWNS };

struct figures {
	struct figure_process *processes;
	size_t process_count, process_capacity;
	uint64_t left_out;             /* processes beyond FIGURE_PROCESSES */
	struct figure_cgroup *cgroups; /* each once */
	size_t cgroup_count, cgroup_capacity;
	struct figure_line *lines; /* the largest first */
	size_t line_count, line_capacity;
	double other_size, other_count; /* of all other lines, */
	size_t other_lines;             /* and their number */
	struct {
		double cpu_seconds;
		uint64_t resident; /* 0: there is no such process */
	} own[OWNS];
	bool traces, has_session; /* there is to be a session; it has answered */
	bool has_evidence;
	uint64_t evidence_count;
	double evidence_newest; /* seconds since 1970; 0: none */
	uint64_t lost_events;
	double machine_took, machine_limit, machine_part; /* as session_machine(), CPUs */
	const struct push_figures *push; /* of the sender; NULL: nothing is pushed */
	uint64_t errors[2]; /* rounds of the session; answers to requests with a status from 500 */
};

/* Zero-initialise figures. The last content is replaced. parent: the agent. 0, -ENOMEM. */
int figures_read(struct figures *figures, struct session_view *view, const struct web_opts *opts,
		 pid_t parent);
/* Command lines, which one page has. Those that cannot be read within 100 ms are left out. */
void figures_commands_read(struct figures *figures);
void figures_free(struct figures *figures);
const char *figure_kind_name(enum figure_kind kind);
static inline uint64_t figure_resident(const struct figure_process *process)
{
	return process->bytes[FIGURE_ANON] + process->bytes[FIGURE_FILE] +
	       process->bytes[FIGURE_SHMEM];
}
/*
 * Is it known what is alive? Estimates from windows are complete once the heap was read for the
 * first time, and too low before.
 */
static inline bool figure_has_live(const struct figure_process *process)
{
	return process->is_traced &&
	       (!(process->flags & SUMS_WINDOWS) || process->flags & SUMS_WALKED);
}
/* Is it known what was allocated, alive or not? */
static inline bool figure_has_allocated(const struct figure_process *process)
{
	return process->is_traced && process->flags & SUMS_ALLOCATED;
}
/* The text as it is in figures; the end of a longer one if tail is set, else its begin. */
void figure_text(const char *text, bool tail, char out[FIGURE_TEXT + 1]);
/* The systemd unit of a cgroup's path, "nginx.service"; out is untouched if it has none. */
void figure_service(const char *path, char out[FIGURE_TEXT + 1]);

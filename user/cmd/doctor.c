/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/leftover.h"
#include "attach/links/features.h"
#include "attach/links/features_missing.h"
#include "attach/links/hints.h"
#include "attach/links/link_keeper.h"
#include "attach/links/links.h"
#include "attach/map_watch.h"
#include "attach/selftest/seccomp.h"
#include "cmd/cli.h"
#include "cmd/options/options.h"
#include "proc/process.h"
#include "runtime/cpython/offsets.h"
#include "session/doctor/trial.h"
#include "util/error.h"
#include "util/terminal.h"

static void line_print(int ok, const char *what, const char *meaning)
{
	printf("  %-4s %-25s %s\n", ok ? "yes" : "NO", what, meaning);
}

static void setting_print(int value, const char *what, const char *meaning)
{
	if (value != HINT_UNKNOWN)
		printf("  %-4d %-25s %s\n", value, what, meaning);
}

/* The machine's settings that restrict BPF. */
static void settings_print(void)
{
	struct hint_facts facts;
	struct map_watch *watch;

	hint_facts_read(&facts);
	int works = !map_watch_open(&watch);
	if (works)
		map_watch_close(watch);
	printf("Settings\n");
	line_print(facts.lockdown != LOCKDOWN_CONFIDENTIALITY,
		   facts.lockdown == LOCKDOWN_INTEGRITY ? "lockdown: integrity" : "no lockdown",
		   "confidentiality would keep BPF from reading kernel memory");
	line_print(!facts.filtered, "no seccomp filter",
		   "a filter on the tracer itself must allow bpf(2) and perf_event_open(2)");
	line_print(works, "perf events",
		   "without them, later mappings of processes are found by polling");
	setting_print(facts.unprivileged_bpf_disabled, "unprivileged_bpf_disabled",
		      "does not matter with the privileges below");
	setting_print(facts.perf_event_paranoid, "perf_event_paranoid",
		      "does not matter with the privileges below");
}

#define LEFTOVER_LINES 8

/* Is a tracer running? Its probes are breakpoints, too. */
static bool is_traced(const pid_t *pids, size_t count)
{
	struct process_info info;
	int found = 0;

	for (size_t i = 0; i < count && !found; i++)
		found = !process_info_read(pids[i], &info) && !strcmp(info.name, LINK_KEEPER_NAME);
	return found;
}

/*
 * Counts breakpoints in the allocators of a process. Adds the bytes of code that were not compared
 * to *unlooked. 0: none, or the process cannot be inspected (*looked is unchanged).
 */
static size_t leftover_of(pid_t pid, struct plan_caches *caches, size_t *looked, uint64_t *unlooked)
{
	const struct plan_target_opts opts = {
		.layers = 1u << EVENT_LAYER_PYTHON | 1u << EVENT_LAYER_NATIVE,
		.python.mode = EVENT_MODE_EXACT,
	};
	struct leftover found = {0};

	if (leftover_process(pid, &opts, caches, &found))
		return 0;
	++*looked;
	*unlooked += found.bytes_unchecked;
	return found.at_sites + found.elsewhere;
}

/*
 * Prints where the code of processes differs from their files by breakpoints, as a tracer leaves
 * them if it is killed while it places a probe.
 */
static void leftovers_print(void)
{
	size_t count = 0, looked = 0, with = 0;
	uint64_t unlooked = 0;
	int level = log_level;
	struct plan_caches caches = {0};
	pid_t *pids = NULL;
	char text[64];

	if (plan_caches_new(&caches, &(struct plan_target_opts){0}) || process_list(&pids, &count))
		count = 0;
	const char *whose =
		is_traced(pids, count)
			? "of a running tracer (tracer-links) or a debugger, or left by a tracer "
			  "that was killed"
			: "of a debugger, or left by a tracer that was killed";
	printf("\nBreakpoints in the allocators of running processes\n");
	/* Errors of the planner do not matter here. */
	log_level = level > 1 ? level : 0;
	for (size_t i = 0; i < count; i++) {
		size_t found = leftover_of(pids[i], &caches, &looked, &unlooked);

		with += found > 0;
		snprintf(text, sizeof(text), "PID %d: %zu", (int)pids[i], found);
		if (found && with <= LEFTOVER_LINES)
			line_print(0, text, whose);
	}
	log_level = level;
	snprintf(text, sizeof(text), "%zu in %zu processes", with, looked);
	line_print(!with, text,
		   with ? "tracing a process removes those left in it (-m exact --layer all has "
			  "the most probes)"
			: "none was left by a tracer that was killed");
	if (unlooked) {
		snprintf(text, sizeof(text), "%llu MiB of their code",
			 (unsigned long long)(unlooked + (1 << 20) - 1) >> 20);
		line_print(0, text, "not compared: above the limit for one file in one process");
	}
	free(pids);
	plan_caches_free(&caches);
}

/* Load the programs, probe a child process, and wait for its events. */
static int session_try(const struct features *features)
{
	char without[FEATURES_MISSING_SIZE];
	struct trial trial;
	const char *remedy;
	char text[96];
	int err = trial_run(features, &trial, &remedy);

	printf("A trial, on a child process that allocates %u blocks\n", TRIAL_BLOCKS);
	snprintf(text, sizeof(text), "took %.2f s", (double)trial.load_ns / 1e9);
	line_print(trial.loaded, "programs load", trial.loaded ? text : "");
	snprintf(text, sizeof(text), "by %s, took %.1f ms", trial.links,
		 (double)trial.place_ns / 1e6);
	line_print(trial.placed, "a probe is placed", trial.placed ? text : "");
	snprintf(text, sizeof(text), "%u blocks, %u bytes, all of them", TRIAL_BLOCKS, TRIAL_BYTES);
	line_print(trial.seen, "its events arrive", trial.seen ? text : "");
	if (err) {
		printf("\nA session cannot run here: %s%s%s.\n", error_reason(err),
		       remedy ? "; " : "", remedy ? remedy : "");
		return EXIT_FAILED;
	}
	if (features_missing(features, without, sizeof(without)))
		printf("\nA session can run here, with less: %s.\n", without);
	else
		printf("\nA session can run here.\n");
	return EXIT_DONE;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	(void)state;
	if (key != 'v')
		return ARGP_ERR_UNKNOWN;
	log_level = 2;
	return 0;
}

/* What is known from the kernel's types. */
static void typed_print(const struct features *features)
{
	line_print(features->ring_buffer, "BPF ring buffer", "needed; kernel 5.8+");
	line_print(features->task_storage, "BPF task storage", "needed; kernel 5.11+");
	line_print(features->attach_cookie, "attach cookies", "needed; kernel 5.15+");
	line_print(features->bpf_loop, "BPF loops",
		   "without them census mode misses what a target leaves at its end");
	line_print(features->uprobe_multi, "uprobe_multi",
		   "one link for all probes of a file; kernel 6.6+");
	line_print(features->uprobe_session, "uprobe.session",
		   "no return probe for nested requests; kernel 6.13+");
	line_print(
		!features->returns_by_call || seccomp_kills_returns() != 1, "seccomp and returns",
		"needed for targets with a filter (containers); not in some kernels from 6.11 to "
		"6.13");
}

static void features_print(const struct features *features)
{
	printf("Kernel %s\n", features->kernel);
	line_print(features->btf, "BTF",
		   "needed; CONFIG_DEBUG_INFO_BTF (every distribution's kernel since 2021)");
	if (features->btf)
		typed_print(features);
	line_print(features->perf_uprobe, "perf-event uprobes",
		   "needed where there is no uprobe_multi");
	line_print(features->root_user_ns, "initial user namespace",
		   "needed: root of another user namespace has no rights here");
	line_print(features->root_pid_ns, "initial PID namespace",
		   "needed for probes; in a container: --pid=host");
}

int cli_doctor(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"verbose", 'v', NULL, 0, "print the kernel's own messages for what it refuses", 0},
		{0},
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "Shows what this kernel and these privileges allow, and how to get the "
		       "rest, and makes a trial.",
	};
	struct capability capabilities[8];
	struct features features;
	struct terminal terminal;
	size_t count;
	int status = cli_parse(&argp, argc, argv, 0, NULL);

	if (status)
		return status < 0 ? EXIT_DONE : status;
	links_silence_libbpf();
	int err = features_probe(&features) ?: features_capabilities(capabilities, &count);
	if (err) {
		error_print(err, NULL, "doctor");
		return EXIT_FAILED;
	}
	terminal_begin(&terminal, &stdout);
	features_print(&features);
	settings_print();
	printf("Privileges\n");
	for (size_t i = 0; i < count; i++)
		line_print(capabilities[i].held, capabilities[i].name, capabilities[i].why);
	printf("CPython versions known: %s\n", offsets_known(BUILD_RELEASE));
	status = session_try(&features);
	/* A user who cannot run a session could not remove them. */
	if (status == EXIT_DONE)
		leftovers_print();
	terminal_end(&terminal);
	return status;
}

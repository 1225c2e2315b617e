/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/options/trace_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/sample.h"
#include "util/array.h"
#include "util/error.h"

/* --- trace checks ----------------------------------------------------------------------------- */

/* Which of the options of `tracer trace` go together. */

#define WINDOW_MS_MAX 3600000ul
#define KEEP_DEFAULT  3

/* Takes the argument of --window: two numbers of milliseconds. */
static error_t trace_options_window(struct trace_options *out, const char *arg)
{
	char *end;
	unsigned long on = strtoul(arg, &end, 10);

	if (arg[0] < '0' || arg[0] > '9' || *end != '/' || end[1] < '0' || end[1] > '9')
		on = 0;
	unsigned long off = on ? strtoul(end + 1, &end, 10) : 0;
	if (*end || !on || !off || on > WINDOW_MS_MAX || off > WINDOW_MS_MAX)
		return cli_reject("--window", arg,
				  "milliseconds from 1 to 3600000, for example 40/1000");
	out->session.window_on_ns = on * 1000000ull;
	out->session.window_off_ns = off * 1000000ull;
	return 0;
}

static int reject(const char *option, const char *why, const char *remedy)
{
	error_print(error_set(-EINVAL, "%s", why), remedy, "%s", option);
	return EXIT_USAGE;
}

/* Each: 0, or EXIT_USAGE after a message: the targets; the mode and the layers; the files. */
static int trace_options_targets(const struct trace_options *options)
{
	const struct target_set *set = &options->targets;
	int narrower = set->pid_count || set->container_count || set->cgroup_count ||
		       set->name_count || target_set_has_pods(set);
	const char *why = NULL,
		   *remedy = "tracer -p PID, -c CONTAINER, -a, or tracer -- COMMAND ARG...";

	if (target_set_is_empty(set) == !options->command.count)
		why = options->command.count ? "either running processes or a command can be the "
					       "target, not both"
					     : "no target is named";
	else if (set->all && narrower)
		why = "-a is every process already", remedy = "drop it or the other targets";
	else if (set->pid_count &&
		 (set->cgroup_count || set->name_count || target_set_has_pods(set)))
		why = "-p names the processes themselves", remedy = "combine it only with -c";
	else if (set->wait && !set->pid_count && !set->container_count && !options->command.count)
		why = "--wait applies to named processes and containers",
		remedy = "use it with -p or -c";
	else if (options->session.after_cpu_ns && (set->pid_count || options->command.count))
		why = "--after-cpu is for many processes", remedy = "drop it: -p and commands are "
								    "traced at once";
	return why ? reject("trace", why, remedy) : 0;
}

static int trace_options_modes(const struct trace_options *out)
{
	const struct plan_target_opts *plan = &out->session.plan;
	int growth = plan->python.mode == EVENT_MODE_GROWTH;

	if (out->alloc_count && plan->layers && !(plan->layers & 1u << EVENT_LAYER_NATIVE))
		return reject("--alloc", "these functions belong to the native layer",
			      "drop --layer, or use --layer native or all");
	if (plan->layers & 1u << EVENT_LAYER_PAGES &&
	    (plan->mode_asked || out->session.window_on_ns || plan->python.large_blocks ||
	     plan->python.public_only || plan->python.no_reuse))
		return reject("--layer",
			      "pages has no probe of an allocator, and so no mode and no windows",
			      "drop --mode, --window, --large-blocks, --public and --no-reuse");
	if (!growth && plan->python.large_blocks)
		return reject("--large-blocks",
			      "large blocks are always traced, except in growth mode",
			      "drop it, or use --mode growth");
	if (growth && out->session.sample_bytes)
		return reject("--sample",
			      "growth mode does not trace blocks, so there is nothing to sample",
			      "drop it, or use --mode census or exact");
	if (out->session.window_on_ns && plan->python.mode != EVENT_MODE_CENSUS)
		return reject("--window", "windows are of census mode", "drop --mode");
	if (out->session.window_on_ns && out->session.overhead > 0)
		return reject("--window", "--overhead chooses the windows itself",
			      "use one of them");
	if (out->session.window_on_ns && out->session.sample_bytes)
		return reject("--window", "a sample of blocks cannot be taken in windows",
			      "drop it, or --sample");
	if (growth && plan->python.public_only)
		return reject("--public", "pools are created by a function that is not public",
			      "drop it, or use another mode");
	return 0;
}

/* Growth mode sees who takes pools, not who allocates what is in them. */
static int trace_options_owner(const struct trace_options *out)
{
	const struct session_opts *session = &out->session;

	if (session->hash_labels && !session->label.source)
		return reject("--labels-hash", "no value is told",
			      "use it with --by context, local or task");
	if (out->choice.opts.by < GROUP_THREAD || session->plan.python.mode != EVENT_MODE_GROWTH)
		return 0;
	return reject("--by", "threads, tasks and values are told of blocks, not in growth mode",
		      "-m census traces all blocks, --overhead 5 a part of the time");
}

static int trace_options_files(const struct trace_options *out)
{
	if (out->record_ns && !out->record)
		return reject("--every", "it is the interval of a recording",
			      "name its file with --record FILE");
	if (out->record && !strcmp(out->record, "-"))
		return reject("--record", "a recording is a file", "name one");
	if ((out->snapshot_ns || out->keep) && (!out->output || !strcmp(out->output, "-")))
		return reject(out->snapshot_ns ? "--snapshot-every" : "--keep",
			      "it needs a file to write to", "name it with -o FILE");
	if (out->keep && !out->snapshot_ns)
		return reject("--keep", "one snapshot is written, at the end",
			      "use it with --snapshot-every");
	return 0;
}

/* Of triggers. --on-memory has its file behind the options, as a command would be. */
static int trace_options_evidence(struct trace_options *out)
{
	struct evidence_opts *evidence = &out->evidence;
	const struct session_opts *session = &out->session;

	bool has_triggers = triggers_any(&evidence->triggers);

	if (!evidence->on_oom && !has_triggers)
		return 0;
	if (has_triggers && out->command.count == 1 && !evidence->path) {
		evidence->path = out->command.items[0];
		out->command.count = 0;
	}
	if (!evidence->path)
		return reject("--on-memory", "it needs a file for the evidence",
			      "tracer -p PID --on-memory 90% FILE");
	if (out->command.count)
		return reject("trace", "evidence is of running processes",
			      "tracer -p PID --on-oom FILE");
	if (out->output || out->record || out->capture || out->interval_ns || out->overhead_asked ||
	    session->plan.mode_asked || session->window_on_ns || session->sample_bytes)
		return reject(evidence->on_oom ? "--on-oom" : "--on-memory",
			      "it places no probe, so there is nothing to trace or record",
			      "run a second tracer for that: its lines come into the evidence");
	evidence->keep = out->keep ? out->keep : KEEP_DEFAULT;
	out->keep = 0;
	out->live = 0;
	return 0;
}

/* --- trace options ---------------------------------------------------------------------------- */

enum {
	KEY_DRY_RUN = 0x200,
	KEY_CAPTURE,
	KEY_BACKEND,
	KEY_PUBLIC,
	KEY_NO_REUSE,
	KEY_NO_FOLLOW,
	KEY_FREEZE,
	KEY_LARGE,
	KEY_EVERY,
	KEY_SAMPLE,
	KEY_BUDGET,
	KEY_OVERHEAD,
	KEY_AFTER_CPU,
	KEY_MACHINE_OVERHEAD,
	KEY_WINDOW,
	KEY_KEEP,
	KEY_LAYER,
	KEY_COMM,
	KEY_CGROUP,
	/* in the order of enum target_pod */
	KEY_POD_NAMESPACE,
	KEY_POD,
	KEY_LABEL,
	KEY_ANNOTATION,
	KEY_ALLOC,
	KEY_DEBUGINFOD,
	KEY_NO_LIVE,
	KEY_LABELS_HASH,
	KEY_RECORD,
	KEY_RECORD_EVERY,
	KEY_ON_OOM,
	KEY_ON_MEMORY
};

#define BUDGET_DEFAULT (1ull << 30)
#define RECORD_DEFAULT 10000000000ull
#define AUTO_MOST_NS   600000000000ull
#define KEEP_MAX       1000
/* of the CPU time: nobody notices it, and it is enough for useful figures */
#define OVERHEAD_DEFAULT 0.05

const struct argp_option trace_target_options[] = {
	{"pid", 'p', "PID[,PID...]", 0,
	 "trace running processes; with -c, by their ids in the container", 1},
	{"container", 'c', "CONTAINER", 0,
	 "the processes of a container, by its name or ID, in Kubernetes also POD/NAME, "
	 "NAMESPACE/POD/NAME or pod/POD (repeatable)",
	 1},
	{"cgroup", KEY_CGROUP, "PATH", 0,
	 "the processes of a cgroup and its descendants: a directory, or a path as in "
	 "/proc/PID/cgroup (repeatable)",
	 1},
	{"comm", KEY_COMM, "NAME", 0,
	 "the processes with this name, compared as pgrep -x does; it may contain *, ? and [...] "
	 "(repeatable; narrows -c and --cgroup)",
	 1},
	{"pod-namespace", KEY_POD_NAMESPACE, "NAMESPACE", 0,
	 "the processes of pods of Kubernetes in a namespace, with *, ? and [...] (repeatable; "
	 "narrows the others, as do --pod, --label and --annotation)",
	 1},
	{"pod", KEY_POD, "POD", 0, "the processes of pods with this name (as --pod-namespace)", 1},
	{"label", KEY_LABEL, "KEY[=VALUE]", 0,
	 "the processes of containers and pods with a label, as far as the runtime's state has it",
	 1},
	{"annotation", KEY_ANNOTATION, "KEY[=VALUE]", 0, "the same with an annotation", 1},
	{"all", 'a', NULL, 0, "all processes", 1},
	{"wait", 'w', NULL, 0,
	 "with -p and -c: if there is no Python yet, wait until the process loads one; with -c, "
	 "also wait for the container",
	 1},
	{"no-follow", KEY_NO_FOLLOW, NULL, 0,
	 "trace only these processes with their present programs: neither the children that they "
	 "fork nor the programs that they exec",
	 1},
	{"nframe", 'n', "N", 0,
	 "frames kept of a traceback, most recent first (1-128, default 16, without Python 64)", 2},
	{"mode", 'm', "MODE", 0,
	 "census: allocations are traced, and heap walks find which blocks are live; exact: "
	 "allocations and frees; growth: only where the heap grows, at little cost (default: of a "
	 "command census; of running processes what --overhead 5 allows of it)",
	 2},
	{"sample", KEY_SAMPLE, "BYTES", 0,
	 "trace a sample, one block for every BYTES allocated (such as 64K, 512K); figures are "
	 "then estimates, each with its standard error",
	 2},
	{"machine-overhead", KEY_MACHINE_OVERHEAD, "PERCENT", 0,
	 "keep the cost of tracing all processes together below this share of one CPU, with "
	 "--overhead: where their budgets come to more, each has the same part of its own, and its "
	 "windows are rarer (default 0: no limit)",
	 2},
	{"overhead", KEY_OVERHEAD, "PERCENT", 0,
	 "keep the cost of tracing below this share of the target's CPU time by narrowing the "
	 "mode: exact, census, windows (census in parts of the time; figures are then estimates), "
	 "growth, off (without Python: exact, windows, off); the report says "
	 "which mode ran when (default: 5 for running processes, if no mode is named; 0: no limit)",
	 2},
	{"after-cpu", KEY_AFTER_CPU, "SEC", 0,
	 "of many processes, trace each once it has used so much CPU time since it was found (such "
	 "as 100ms): those that sleep cost nothing",
	 2},
	{"window", KEY_WINDOW, "ON/OFF", 0,
	 "trace small blocks of Python, or without Python all blocks of malloc, only in "
	 "windows of ON milliseconds, OFF apart on average, at random moments; figures are then "
	 "estimates",
	 2},
	{0},
};

static const struct argp_option options[] = {
	CLI_OPTION_AGES("tell how old blocks are, in reports and snapshots, which become larger "
			"(the options of ages do so, too)",
			2),
	{"budget", KEY_BUDGET, "BYTES", 0,
	 "memory for everything kept about the targets, including snapshots being built (default "
	 "1G, 0: no limit); what does not fit is counted, and is missing from the report or has no "
	 "name there",
	 4},
	{"layer", KEY_LAYER, "LAYER", 0,
	 "python: Python's allocators; native: malloc and related functions; mmap: mapped memory; "
	 "all: the three of them; pages: the lines whose page faults RSS comes from (default: "
	 "python if there is a Python, else native; of several processes, those with a Python)",
	 2},
	{"duration", 'd', "SEC", 0,
	 "stop SEC seconds after the trace has begun; auto: when the largest lines are known to "
	 "±20 %, after 10 minutes at the latest",
	 2},
	{"interval", 'i', "SEC", 0, "print the report every SEC seconds while running", 2},
	{"output", 'o', "FILE", 0,
	 "write the snapshot there at the end (pprof; -: to stdout, and the report to stderr)", 3},
	CLI_OPTION_FORCE(3),
	{"snapshot-every", KEY_EVERY, "SEC", 0,
	 "with -o, also write it every SEC seconds; the previous one becomes FILE.1, that one "
	 "FILE.2 and so on",
	 3},
	{"keep", KEY_KEEP, "N", 0,
	 "with --snapshot-every, --on-oom and --on-memory, keep N files, including FILE (default "
	 "3)",
	 3},
	{"record", KEY_RECORD, "FILE", 0,
	 "keep a snapshot of every 10 s there, each as what has changed, for tracer timeline, "
	 "leaks, report and diff; what is in it survives the end of tracer at any moment",
	 3},
	{"every", KEY_RECORD_EVERY, "SEC", 0, "with --record, a snapshot every SEC seconds", 3},
	{"on-oom", KEY_ON_OOM, "FILE", 0,
	 "place no probe, but write a bundle of evidence when the kernel has killed a target for "
	 "memory: what grew, what held it, what RSS was (tracer report FILE)",
	 3},
	{"on-memory", KEY_ON_MEMORY, "WHEN", 0,
	 "the same of a process that lives: --on-memory WHEN FILE, where WHEN is 90% of the memory "
	 "limit, 2G of RSS, growth of RSS within a time (500M/10m), the time that tasks wait for "
	 "memory (pressure:20%), or several with commas",
	 3},
	{"capture", KEY_CAPTURE, "FILE", 0, "keep the event stream there, for tracer replay", 3},
	{"dry-run", KEY_DRY_RUN, NULL, 0, "print the probe plan and stop", 4},
	{"buffer", 'b', "BYTES", 0, "ring buffer, a power of two (default 64M)", 4},
	{"backend", KEY_BACKEND, "KIND", 0,
	 "session, multi or perf: how probes are attached (default: the best one available)", 4},
	{"public", KEY_PUBLIC, NULL, 0, "probe the public functions, not their implementations", 4},
	{"no-reuse", KEY_NO_REUSE, NULL, 0,
	 "do not trace objects that CPython takes from its free lists (one probe fewer per object; "
	 "their blocks stay charged to the line that first allocated them)",
	 4},
	{"large-blocks", KEY_LARGE, NULL, 0,
	 "growth mode: also trace each block of more than 512 bytes (about 1 us each)", 4},
	{"alloc", KEY_ALLOC, "FILE:SYMBOL:KIND[:ARGS]", 0,
	 "an allocation function that behaves like KIND (malloc, calloc, realloc, reallocarray, "
	 "posix_memalign, free, ...); ARGS, such as size=2,count=1 or addr=2, number its arguments "
	 "from 1; return-probe probes its return instead of its ret instructions: it must not "
	 "throw, nor return on another stack (repeatable)",
	 4},
	{"debuginfod", KEY_DEBUGINFOD, "URLS", OPTION_ARG_OPTIONAL,
	 "fetch debug files that this machine lacks from debuginfod servers (URLS, default "
	 "$DEBUGINFOD_URLS): they learn which programs run here",
	 4},
	{"freeze", KEY_FREEZE, NULL, 0,
	 "stop the target while its heap is read for a report, for exact figures (the report says "
	 "for how long); threads that sleep in a call that an interruption would make fail "
	 "(epoll_wait) sleep on",
	 4},
	{"labels-hash", KEY_LABELS_HASH, NULL, 0,
	 "of --by context, local and task: hashes in place of values and names, by a random key "
	 "that is kept nowhere, so that files tell which are equal and not what they are",
	 3},
	{"no-live", KEY_NO_LIVE, NULL, 0,
	 "on a terminal: no live view, but a line of progress, and the report at the end", 5},
	{"quiet", 'q', NULL, 0, "print no remarks on stderr; no live view", 5},
	{"verbose", 'v', NULL, 0, "print more remarks", 5},
	{0},
};

static error_t parse_mode(struct trace_options *out, const char *arg)
{
	static const struct cli_word words[] = {{"census", EVENT_MODE_CENSUS},
						{"exact", EVENT_MODE_EXACT},
						{"growth", EVENT_MODE_GROWTH}};
	int mode;
	error_t err = cli_parse_word("--mode", arg, words, ARRAY_SIZE(words), &mode);

	if (!err)
		out->session.plan.python.mode = mode;
	return err;
}

/* The pages that RSS consists of are traced alone. */
#define LAYERS_ALL (((1u << EVENT_LAYERS) - 1) & ~(1u << EVENT_LAYER_PAGES))

static error_t parse_layer(struct trace_options *out, const char *arg)
{
	int layer = event_layer_find(arg);

	if (!strcmp(arg, "all"))
		out->session.plan.layers = LAYERS_ALL;
	else if (layer >= 0)
		out->session.plan.layers = 1u << layer;
	else
		return cli_reject("--layer", arg, "python, native, mmap, all or pages");
	return 0;
}

static error_t parse_backend(struct trace_options *out, const char *arg)
{
	static const struct cli_word words[] = {{"session", SESSION_BACKEND_BEST},
						{"multi", SESSION_BACKEND_MULTI},
						{"perf", SESSION_BACKEND_PERF}};
	int backend;
	error_t err = cli_parse_word("--backend", arg, words, ARRAY_SIZE(words), &backend);

	if (!err)
		out->session.backend = backend;
	return err;
}

static error_t parse_overhead(struct trace_options *out, const char *arg)
{
	double percent;

	if (cli_parse_percent(arg, &percent) || !(percent >= 0.1 || percent == 0) || percent > 100)
		return cli_reject("--overhead", arg, "percent, from 0.1 to 100, or 0: no limit");
	out->session.overhead = percent / 100;
	out->overhead_asked = 1;
	return 0;
}

static error_t parse_machine_overhead(struct trace_options *out, const char *arg)
{
	double percent;

	if (cli_parse_percent(arg, &percent) || !(percent >= 0.1 || percent == 0))
		return cli_reject("--machine-overhead", arg,
				  "percent of one CPU, from 0.1, or 0: no limit");
	out->session.machine_overhead = percent / 100;
	return 0;
}

error_t trace_target_take(struct target_set *targets, int key, const char *arg)
{
	int err;

	if (arg && !arg[0])
		return cli_reject("trace", arg, "a target needs a name");
	switch (key) {
	case 'p':
		if (cli_parse_pids(arg, &targets->pids, &targets->pid_count)) {
			error_print(-EINVAL, "tracer list shows what can be traced", "--pid");
			return CLI_REPORTED;
		}
		return 0;
	case 'c':
		return -target_set_container(targets, arg);
	case KEY_CGROUP:
		return -target_set_cgroup(targets, arg);
	case KEY_COMM:
		return -target_set_name(targets, arg);
	case KEY_POD_NAMESPACE:
	case KEY_POD:
	case KEY_LABEL:
	case KEY_ANNOTATION:
		err = target_set_pod(targets, (enum target_pod)(key - KEY_POD_NAMESPACE), arg);
		return err == -EINVAL ? cli_reject(key == KEY_LABEL ? "--label" : "--annotation",
						   arg, "KEY or KEY=VALUE")
				      : -err;
	case 'a':
		targets->all = 1;
		return 0;
	case 'w':
		targets->wait = 1;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_alloc(struct trace_options *out, const char *arg)
{
	int err = ARRAY_GROW(out->allocs, out->alloc_capacity, out->alloc_count)
			  ?: plan_alloc_parse(arg, &out->allocs[out->alloc_count]);

	if (err) {
		error_print(err, "for example libpool.so:pool_alloc:malloc:size=2", "--alloc");
		return CLI_REPORTED;
	}
	out->alloc_count++;
	return 0;
}

static error_t parse_debuginfod(struct trace_options *out, const char *arg)
{
	const char *urls = arg ? arg : getenv("DEBUGINFOD_URLS");

	if (!urls || !urls[strspn(urls, " ")]) {
		error_print(error_set(-EINVAL, "no server is named"),
			    "give one, --debuginfod=URL, or set DEBUGINFOD_URLS", "--debuginfod");
		return CLI_REPORTED;
	}
	out->session.debuginfod = urls;
	return 0;
}

static error_t parse_memory(struct trace_options *out, const char *arg)
{
	int err = triggers_parse(arg, &out->evidence.triggers);

	if (err)
		error_print(err, TRIGGER_FORMS, "--on-memory");
	return err ? CLI_REPORTED : 0;
}

/* Options without an argument. 1; 0: key is none of them. */
static int parse_flag(struct trace_options *out, int key)
{
	switch (key) {
	case CLI_KEY_AGES:
		out->ages = 1;
		return 1;
	case CLI_KEY_FORCE:
		out->replace = OUTFILE_ANY;
		return 1;
	case KEY_DRY_RUN:
		out->dry_run = 1;
		return 1;
	case KEY_PUBLIC:
		out->session.plan.python.public_only = 1;
		return 1;
	case KEY_LARGE:
		out->session.plan.python.large_blocks = 1;
		return 1;
	case KEY_FREEZE:
		out->session.freeze = 1;
		return 1;
	case KEY_NO_FOLLOW:
		out->session.watch = ABI_WATCH_NONE;
		return 1;
	case KEY_NO_REUSE:
		out->session.plan.python.no_reuse = 1;
		return 1;
	case KEY_NO_LIVE:
		out->live = 0;
		return 1;
	case KEY_LABELS_HASH:
		out->session.hash_labels = 1;
		return 1;
	case 'q':
		log_level = 0;
		return 1;
	case 'v':
		log_level = 2;
		report_choice_verbose(&out->choice);
		return 1;
	}
	return 0;
}

static error_t parse_amount(struct trace_options *out, int key, const char *arg)
{
	uint64_t number;

	switch (key) {
	case 'n':
		if (cli_parse_number(arg, 1, EVENT_MAX_FRAMES, &number))
			return cli_reject("--nframe", arg, "a number from 1 to 128");
		out->session.nframe = number;
		return 0;
	case KEY_BUDGET:
		if (cli_parse_bytes(arg, &out->session.budget))
			return cli_reject("--budget", arg, "a number of bytes, for example 256M");
		return 0;
	case KEY_SAMPLE:
		if (cli_parse_bytes(arg, &number) || !number || number > SAMPLE_MEAN_MAX)
			return cli_reject("--sample", arg, "bytes from 1 to 1G, for example 512K");
		out->session.sample_bytes = number;
		return 0;
	default:
		if (cli_parse_number(arg, 1, KEEP_MAX, &number))
			return cli_reject("--keep", arg, "a number from 1 to 1000");
		out->keep = number;
		return 0;
	}
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct trace_options *out = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &out->choice;
		state->child_inputs[1] = out;
		state->child_inputs[2] = &out->choice.ages;
		return 0;
	case 'p':
	case 'c':
	case 'a':
	case 'w':
	case KEY_COMM:
	case KEY_CGROUP:
	case KEY_POD_NAMESPACE:
	case KEY_POD:
	case KEY_LABEL:
	case KEY_ANNOTATION:
		return trace_target_take(&out->targets, key, arg);
	case 'n':
	case KEY_BUDGET:
	case KEY_SAMPLE:
	case KEY_KEEP:
		return parse_amount(out, key, arg);
	case 'm':
		out->session.plan.mode_asked = 1;
		return parse_mode(out, arg);
	case 'd':
		out->duration_auto = !strcmp(arg, "auto");
		if (!out->duration_auto)
			return cli_take_seconds("--duration", arg, &out->duration_ns);
		out->duration_ns = AUTO_MOST_NS;
		return 0;
	case 'i':
		return cli_take_seconds("--interval", arg, &out->interval_ns);
	case 'o':
		out->output = arg;
		return 0;
	case KEY_EVERY:
		return cli_take_seconds("--snapshot-every", arg, &out->snapshot_ns);
	case KEY_RECORD:
		out->record = arg;
		return 0;
	case KEY_ON_OOM:
		out->evidence.on_oom = 1;
		out->evidence.path = arg;
		return 0;
	case KEY_ON_MEMORY:
		return parse_memory(out, arg);
	case KEY_RECORD_EVERY:
		return cli_take_seconds("--every", arg, &out->record_ns);
	case KEY_OVERHEAD:
		return parse_overhead(out, arg);
	case KEY_AFTER_CPU:
		return cli_parse_pause(arg, &out->session.after_cpu_ns)
			       ? cli_reject("--after-cpu", arg, "a time, such as 100ms, or 0")
			       : 0;
	case KEY_MACHINE_OVERHEAD:
		return parse_machine_overhead(out, arg);
	case KEY_WINDOW:
		return trace_options_window(out, arg);
	case KEY_CAPTURE:
		out->capture = arg;
		return 0;
	case 'b':
		return cli_parse_buffer(arg, &out->session.ring_bytes);
	case KEY_LAYER:
		return parse_layer(out, arg);
	case KEY_BACKEND:
		return parse_backend(out, arg);
	case KEY_ALLOC:
		return parse_alloc(out, arg);
	case KEY_DEBUGINFOD:
		return parse_debuginfod(out, arg);
	}
	return parse_flag(out, key) ? 0 : cli_parse_arguments(key, state, &out->command);
}

/* trace_target_options: an option only, of the parser above. */
static error_t parse_shared(int key, char *arg, struct argp_state *state)
{
	for (const struct argp_option *option = trace_target_options; option->name; option++)
		if (option->key == key)
			return parse(key, arg, state);
	return ARGP_ERR_UNKNOWN;
}

/*
 * Has the user said what the trace may cost? A mode has its price, and so has an option that says
 * which blocks or functions have probes: windows could not hold a budget with these. A command is
 * slow from its start, as under other tracers.
 */
static bool is_paid_for(const struct trace_options *out)
{
	const struct session_opts *session = &out->session;

	return out->command.count || out->overhead_asked || session->plan.mode_asked ||
	       session->window_on_ns || session->sample_bytes || out->alloc_count ||
	       session->plan.python.public_only ||
	       session->plan.layers & (1u << EVENT_LAYER_MMAP | 1u << EVENT_LAYER_PAGES);
}

/* The file of --on-memory may stand among the options, which those of a command follow. */
static unsigned int order_of(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (!strncmp(argv[i], "--on-memory", strlen("--on-memory")))
			return 0;
	return ARGP_IN_ORDER;
}

int trace_options_parse(int argc, char **argv, struct trace_options *out)
{
	static const struct argp targets = {.options = trace_target_options,
					    .parser = parse_shared};
	static const struct argp_child children[] = {{&cli_report_argp, 0, "At the end, print", 9},
						     {&targets, 0, NULL, 0},
						     {&cli_ages_argp, 0, NULL, 0},
						     {0}};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "-p PID\n-c CONTAINER\n-a\n-- COMMAND ARG...",
		.doc = "Traces the allocations of a process, from outside: Python's, or malloc's.",
		.children = children,
	};

	memset(out, 0, sizeof(*out));
	out->session.watch = ABI_WATCH_CHILDREN;
	out->session.budget = BUDGET_DEFAULT;
	out->live = 1;
	out->session.plan.python.mode = EVENT_MODE_CENSUS;
	report_choice_default(&out->choice);
	int status = cli_parse(&argp, argc, argv, order_of(argc, argv), out);
	if (status)
		return status;
	/* The terminal belongs to the command, or to reports. */
	if (out->command.count || out->interval_ns || !log_level || out->choice.format_asked ||
	    (out->output && !strcmp(out->output, "-")))
		out->live = 0;
	report_choice_extra(&out->choice, out->output);
	out->choice.live = 1;
	out->ages |= ages_any(&out->choice.ages.ages);
	out->session.label = out->choice.label;
	if (out->choice.opts.by == GROUP_TASK)
		out->session.label.source = ABI_LABEL_TASK;
	out->session.by_thread = out->choice.opts.by == GROUP_THREAD;
	out->session.plan.native.allocs = out->allocs;
	out->session.plan.native.alloc_count = out->alloc_count;
	status = trace_options_evidence(out) ?: trace_options_modes(out);
	if (status)
		return status;
	if (!is_paid_for(out))
		out->session.overhead = OVERHEAD_DEFAULT;
	status = trace_options_owner(out);
	if (status)
		return status;
	/*
	 * A program that will load Python, or exec a program that has it, is waited for. Of many
	 * processes, only those with Python are meant.
	 */
	if (!out->session.plan.layers && (out->command.count || out->targets.wait ||
					  (!out->targets.pid_count && !out->targets.all)))
		out->session.plan.layers = 1u << EVENT_LAYER_PYTHON;
	status = trace_options_targets(out);
	if (status)
		return status;
	/* Processes that are not named by their ids may start during the trace. */
	if (out->session.watch && !out->command.count && !target_set_is_pids(&out->targets))
		out->session.watch = ABI_WATCH_ALL;
	out->session.everywhere = out->session.watch && target_set_is_all(&out->targets);
	status = trace_options_files(out);
	if (status)
		return status;
	if (out->snapshot_ns && !out->keep)
		out->keep = KEEP_DEFAULT;
	if (!out->record_ns)
		out->record_ns = RECORD_DEFAULT;
	return 0;
}

void trace_options_free(struct trace_options *options)
{
	target_set_free(&options->targets);
	for (size_t i = 0; i < options->alloc_count; i++)
		plan_alloc_free(&options->allocs[i]);
	free(options->allocs);
	report_choice_free(&options->choice);
}

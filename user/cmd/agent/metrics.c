/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/agent/metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "snapshot/snapshot.h"
#include "util/array.h"

struct metrics {
	FILE *out;
	bool openmetrics;
	const char *name; /* of the family that is being written */
	bool counter;
};

/* Begins a family. A counter's name is without "_total", which its samples have. */
static void family(struct metrics *metrics, const char *name, bool counter, const char *help)
{
	const char *suffix = counter && !metrics->openmetrics ? "_total" : "";

	metrics->name = name;
	metrics->counter = counter;
	fprintf(metrics->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, help, name, suffix,
		counter ? "counter" : "gauge");
}

/* A text as the value of a label, of a sample that is begun. */
static void label(struct metrics *metrics, int *labels, const char *key, const char *text)
{
	if (!text[0])
		return;
	fprintf(metrics->out, "%c%s=\"", (*labels)++ ? ',' : '{', key);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putc('\\', metrics->out);
		putc(*text, metrics->out);
	}
	putc('"', metrics->out);
}

static void sample_begin(const struct metrics *metrics)
{
	fprintf(metrics->out, "%s%s", metrics->name, metrics->counter ? "_total" : "");
}

/* Bytes, blocks and numbers are whole, also those that are estimates. */
static void sample_end(struct metrics *metrics, int labels, double value)
{
	bool whole = !strstr(metrics->name, "_seconds") && !strstr(metrics->name, "_ratio");
	const char *format = whole ? "%s %.0f\n" : "%s %.15g\n";

	fprintf(metrics->out, format, labels ? "}" : "", value);
}

static void plain(struct metrics *metrics, double value)
{
	sample_begin(metrics);
	sample_end(metrics, 0, value);
}

/* One label, whose text may be a constant. */
static void labelled(struct metrics *metrics, const char *key, const char *text, double value)
{
	int labels = 0;

	sample_begin(metrics);
	label(metrics, &labels, key, text);
	sample_end(metrics, labels, value);
}

/* more: a further label. */
static void of_process(struct metrics *metrics, const struct figure_process *process,
		       const char *key, const char *more, double value)
{
	char pid[16];
	int labels = 0;

	snprintf(pid, sizeof(pid), "%d", (int)process->pid);
	sample_begin(metrics);
	label(metrics, &labels, "pid", pid);
	label(metrics, &labels, "name", process->name);
	label(metrics, &labels, "container", process->container);
	label(metrics, &labels, "service", process->service);
	label(metrics, &labels, "namespace", process->namespace);
	label(metrics, &labels, "pod", process->pod);
	label(metrics, &labels, key, more);
	sample_end(metrics, labels, value);
}

static void of_cgroup(struct metrics *metrics, const struct figure_cgroup *cgroup, double value)
{
	int labels = 0;

	sample_begin(metrics);
	label(metrics, &labels, "cgroup", cgroup->path);
	label(metrics, &labels, "container", cgroup->container);
	label(metrics, &labels, "namespace", cgroup->namespace);
	label(metrics, &labels, "pod", cgroup->pod);
	sample_end(metrics, labels, value);
}

/* A figure of each process whose rate of allocation is known; 0 where it may be unknown. */
static void rates_write(struct metrics *metrics, const struct figures *figures, size_t at)
{
	const struct figure_process *end = ARRAY_END(figures->processes, figures->process_count),
				    *each;

	for (each = figures->processes; each < end; each++) {
		double value;

		memcpy(&value, (const char *)&each->rate + at, sizeof(value));
		if (each->rate.span_ns &&
		    (value > 0 || at != offsetof(struct trace_rate, bytes.high)))
			of_process(metrics, each, "layer", event_layer_name(each->layer), value);
	}
}

static void allocation_write(struct metrics *metrics, const struct figures *figures)
{
	family(metrics, "tracer_process_allocation_bytes_per_second", false,
	       "Bytes allocated a second, alive or not: an estimate from windows of probes, with "
	       "a 95 % interval (low, high). Without a high one windows slow the process, and it "
	       "is a lower bound.");
	rates_write(metrics, figures, offsetof(struct trace_rate, bytes.estimate));
	family(metrics, "tracer_process_allocation_low_bytes_per_second", false,
	       "The lower end of the estimate's 95 % interval.");
	rates_write(metrics, figures, offsetof(struct trace_rate, bytes.low));
	family(metrics, "tracer_process_allocation_high_bytes_per_second", false,
	       "The upper end of the estimate's 95 % interval; missing where it is not known.");
	rates_write(metrics, figures, offsetof(struct trace_rate, bytes.high));
	family(metrics, "tracer_process_allocation_blocks_per_second", false,
	       "Blocks allocated a second, alive or not: an estimate like that of bytes.");
	rates_write(metrics, figures, offsetof(struct trace_rate, blocks.estimate));
	family(metrics, "tracer_process_allocation_window_ratio", false,
	       "The part of the time that the estimate is from: that in which probes were in "
	       "place.");
	for (size_t i = 0; i < figures->process_count; i++)
		if (figures->processes[i].rate.span_ns)
			of_process(metrics, &figures->processes[i], "layer",
				   event_layer_name(figures->processes[i].layer),
				   figures->processes[i].rate.time_share);
}

static void processes_write(struct metrics *metrics, const struct figures *figures)
{
	const struct figure_process *end = ARRAY_END(figures->processes, figures->process_count),
				    *each;

	family(metrics, "tracer_process_memory_bytes", false,
	       "Memory of a process by kind: anon, file and shmem are resident, swap is not.");
	for (each = figures->processes; each < end; each++)
		for (int kind = 0; kind < FIGURE_KINDS; kind++)
			of_process(metrics, each, "kind", figure_kind_name(kind),
				   (double)each->bytes[kind]);
	family(metrics, "tracer_process_live_bytes", false,
	       "Bytes of live blocks that were allocated since the trace began; missing until "
	       "they are known.");
	for (each = figures->processes; each < end; each++)
		if (figure_has_live(each))
			of_process(metrics, each, "layer", event_layer_name(each->layer),
				   each->live_size);
	family(metrics, "tracer_process_live_blocks", false,
	       "Live blocks that were allocated since the trace began; missing until they are "
	       "known.");
	for (each = figures->processes; each < end; each++)
		if (figure_has_live(each))
			of_process(metrics, each, "layer", event_layer_name(each->layer),
				   each->live_count);
	family(metrics, "tracer_process_allocated_bytes", true,
	       "Bytes allocated, alive or not, since the server saw the process first.");
	for (each = figures->processes; each < end; each++)
		if (figure_has_allocated(each))
			of_process(metrics, each, "layer", event_layer_name(each->layer),
				   each->allocated);
	allocation_write(metrics, figures);
	family(metrics, "tracer_processes_left_out", false,
	       "Processes that are not shown, because there are too many.");
	plain(metrics, (double)figures->left_out);
}

/* A figure of each generation of the processes whose collectors are known. */
static void generations_write(struct metrics *metrics, const struct figures *figures,
			      enum collections_kind kind)
{
	static const char *const generations[] = {"0", "1", "2"};
	const struct figure_process *end = ARRAY_END(figures->processes, figures->process_count),
				    *each;

	for (each = figures->processes; each < end; each++) {
		const struct collections *of = &each->collections;
		bool known =
			of->time_ns && (kind != COLLECTIONS_NS || of->flags & COLLECTIONS_TIMED);

		for (unsigned int i = 0; known && i < COLLECTOR_GENERATIONS; i++)
			of_process(metrics, each, "generation", generations[i],
				   (double)of->sums[kind][i] / (kind == COLLECTIONS_NS ? 1e9 : 1));
	}
}

static void collectors_write(struct metrics *metrics, const struct figures *figures)
{
	const struct figure_process *end = ARRAY_END(figures->processes, figures->process_count),
				    *each;

	family(metrics, "tracer_process_gc_collections", true,
	       "Collections of the cyclic garbage collector since the process began.");
	generations_write(metrics, figures, COLLECTIONS_DONE);
	family(metrics, "tracer_process_gc_freed_objects", true, "Objects that it has freed.");
	generations_write(metrics, figures, COLLECTIONS_FREED);
	family(metrics, "tracer_process_gc_uncollectable_objects", true,
	       "Objects that it has found and could not free.");
	generations_write(metrics, figures, COLLECTIONS_UNCOLLECTABLE);
	family(metrics, "tracer_process_gc_seconds", true,
	       "The time that its collections have taken; of CPython 3.15 and later.");
	generations_write(metrics, figures, COLLECTIONS_NS);
	family(metrics, "tracer_process_gc_enabled", false,
	       "1: it runs by itself; 0: it runs when the program asks, in some interpreter.");
	for (each = figures->processes; each < end; each++)
		if (each->collections.time_ns)
			of_process(metrics, each, "", "", !each->collections.off);
}

static void cgroups_write(struct metrics *metrics, const struct figures *figures)
{
	const struct figure_cgroup *end = ARRAY_END(figures->cgroups, figures->cgroup_count), *each;

	family(metrics, "tracer_cgroup_memory_used_bytes", false,
	       "Memory that the cgroup of a shown process has in use, with its page cache.");
	for (each = figures->cgroups; each < end; each++)
		of_cgroup(metrics, each, (double)each->used);
	family(metrics, "tracer_cgroup_memory_file_bytes", false,
	       "Page cache in the memory that a cgroup has in use.");
	for (each = figures->cgroups; each < end; each++)
		of_cgroup(metrics, each, (double)each->file);
	family(metrics, "tracer_cgroup_memory_limit_bytes", false,
	       "The lowest memory limit of a cgroup and those above it.");
	for (each = figures->cgroups; each < end; each++)
		if (each->limit != UINT64_MAX)
			of_cgroup(metrics, each, (double)each->limit);
}

static void lines_write(struct metrics *metrics, const struct figures *figures)
{
	const struct figure_line *end = ARRAY_END(figures->lines, figures->line_count), *each;

	family(metrics, "tracer_line_live_bytes", false,
	       "Bytes of live blocks by the line that allocated them: the largest, and others.");
	for (each = figures->lines; each < end; each++)
		labelled(metrics, "line", each->text, each->size);
	labelled(metrics, "line", "other", figures->other_size);
	family(metrics, "tracer_line_live_blocks", false,
	       "Live blocks by the line that allocated them: the same lines.");
	for (each = figures->lines; each < end; each++)
		labelled(metrics, "line", each->text, each->count);
	labelled(metrics, "line", "other", figures->other_count);
	family(metrics, "tracer_other_lines", false, "The number of lines that are \"other\".");
	plain(metrics, (double)figures->other_lines);
}

static void agent_write(struct metrics *metrics, const struct figures *figures)
{
	static const char *const own[] = {"agent", "session", "web", "push"};
	static const char *const errors[] = {"session", "request"};

	family(metrics, "tracer_build_info", false, "The version of tracer.");
	labelled(metrics, "version", TRACER_VERSION, 1);
	if (figures->traces) {
		family(metrics, "tracer_session_up", false, "1: the session has answered.");
		plain(metrics, figures->has_session);
	}
	family(metrics, "tracer_lost_events", true, "Records of allocations that were lost.");
	plain(metrics, (double)figures->lost_events);
	if (figures->has_session && figures->machine_took >= 0) {
		family(metrics, "tracer_probes_cpu_ratio", false,
		       "What probes take of the processes' CPU time, all together, in CPUs.");
		plain(metrics, figures->machine_took);
	}
	if (figures->has_session && figures->machine_limit > 0) {
		family(metrics, "tracer_probes_cpu_limit_ratio", false,
		       "What they may take, all together, in CPUs.");
		plain(metrics, figures->machine_limit);
		family(metrics, "tracer_probes_budget_ratio", false,
		       "The part of each process's budget that this leaves.");
		plain(metrics, figures->machine_part);
	}
	family(metrics, "tracer_agent_cpu_seconds", true, "CPU time of the agent's processes.");
	for (int i = 0; i < OWNS; i++)
		if (figures->own[i].resident)
			labelled(metrics, "process", own[i], figures->own[i].cpu_seconds);
	family(metrics, "tracer_agent_resident_bytes", false,
	       "Resident memory of the agent's processes.");
	for (int i = 0; i < OWNS; i++)
		if (figures->own[i].resident)
			labelled(metrics, "process", own[i], (double)figures->own[i].resident);
	family(metrics, "tracer_agent_errors", true,
	       "Times that the session did not answer, and requests that failed.");
	for (int i = 0; i < 2; i++)
		labelled(metrics, "kind", errors[i], (double)figures->errors[i]);
	if (!figures->has_evidence)
		return;
	family(metrics, "tracer_evidence_bundles", false, "Bundles of evidence that are kept.");
	plain(metrics, (double)figures->evidence_count);
	family(metrics, "tracer_evidence_newest_timestamp_seconds", false,
	       "When the newest bundle was written; 0: there is none.");
	plain(metrics, figures->evidence_newest);
}

/* Of each receiver that is configured, one sample: its figure at an offset of push_figures.of[]. */
static void receivers_write(struct metrics *metrics, const struct push_figures *push, size_t at)
{
	for (int i = 0; i < PUSH_RECEIVERS; i++)
		if (push->is_on[i])
			labelled(metrics, "receiver", push_receiver_names[i],
				 (double)*(const _Atomic uint64_t *)((const char *)&push->of[i] +
								     at));
}

#define OF(member) offsetof(__typeof__(*(struct push_figures){0}.of), member)

static void push_write(struct metrics *metrics, const struct push_figures *push)
{
	static const char *const reasons[] = {"spool", "refused", "disk"};
	int labels;

	family(metrics, "tracer_push_profiles", true, "Profiles that were made to be pushed.");
	receivers_write(metrics, push, OF(made));
	family(metrics, "tracer_push_sent", true, "Profiles that a receiver has acknowledged.");
	receivers_write(metrics, push, OF(sent));
	family(metrics, "tracer_push_dropped", true,
	       "Profiles that were not sent: the spool was full, they were refused, or the disk.");
	for (int i = 0; i < PUSH_RECEIVERS; i++)
		for (int j = 0; push->is_on[i] && j < PUSH_DROPS; j++) {
			labels = 0;
			sample_begin(metrics);
			label(metrics, &labels, "receiver", push_receiver_names[i]);
			label(metrics, &labels, "reason", reasons[j]);
			sample_end(metrics, labels, (double)push->of[i].dropped[j]);
		}
	family(metrics, "tracer_push_failed_attempts", true, "Attempts that are repeated.");
	receivers_write(metrics, push, OF(failed));
	family(metrics, "tracer_push_spool_bytes", false, "Bytes that wait to be sent.");
	receivers_write(metrics, push, OF(bytes));
	family(metrics, "tracer_push_spool_profiles", false, "Profiles that wait to be sent.");
	receivers_write(metrics, push, OF(files));
	family(metrics, "tracer_push_last_success_timestamp_seconds", false,
	       "When a profile was acknowledged last; 0: never since the agent began.");
	receivers_write(metrics, push, OF(success));
}

void metrics_write(FILE *out, const struct figures *figures, bool openmetrics)
{
	struct metrics metrics = {.out = out, .openmetrics = openmetrics};

	processes_write(&metrics, figures);
	collectors_write(&metrics, figures);
	cgroups_write(&metrics, figures);
	lines_write(&metrics, figures);
	agent_write(&metrics, figures);
	if (figures->push)
		push_write(&metrics, figures->push);
	if (openmetrics)
		fputs("# EOF\n", out);
}

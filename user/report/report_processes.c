/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report_processes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "util/json.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/text.h"

#define NAME_MAX_SHOWN (4 * sizeof(((struct snapshot_meta *)0)->name))

/* By size, count, all descending, then by PID. */
static int sums_compare(const void *a, const void *b)
{
	const struct process_sums *x = a, *y = b;

	return CMP(y->size, x->size)
	       ?: CMP(y->count, x->count)
	       ?: CMP(x->process->pid, y->process->pid)
	       ?: CMP(x->process, y->process);
}

static void sums_add(struct process_sums *sums, const struct snapshot *snapshot,
		     const struct snapshot_trace *trace)
{
	int inherited = (trace->flags & SNAPSHOT_INHERITED) != 0;

	if (snapshot_is_estimated(sums->process)) {
		estimate_add_trace(&sums->estimate, snapshot, trace);
		if (inherited)
			estimate_add_trace(&sums->inherited_estimate, snapshot, trace);
		return;
	}
	/* The builder has checked that no sum overflows. */
	sums->size += trace->bytes * trace->count;
	sums->count += trace->count;
	if (!inherited)
		return;
	sums->inherited.size += trace->bytes * trace->count;
	sums->inherited.count += trace->count;
}

/* Either all blocks of a process are of a sample or windows, or none is. */
static int sums_round(struct process_sums *sums)
{
	if (!snapshot_is_estimated(sums->process))
		return 0;
	sums->error.size = estimate_size_error(&sums->estimate);
	sums->error.count = estimate_count_error(&sums->estimate);
	sums->inherited.error.size = estimate_size_error(&sums->inherited_estimate);
	sums->inherited.error.count = estimate_count_error(&sums->inherited_estimate);

	return estimate_round(sums->estimate.size, &sums->size)
	       ?: estimate_round(sums->estimate.count, &sums->count)
	       ?: estimate_round(sums->inherited_estimate.size, &sums->inherited.size)
	       ?: estimate_round(sums->inherited_estimate.count, &sums->inherited.count);
}

int process_sums(const struct snapshot *snapshot, const struct filters *filters,
		 struct process_sums **out)
{
	size_t count = snapshot_process_count(snapshot);
	struct process_sums *sums = calloc(count, sizeof(*sums));
	const struct snapshot_trace *trace;
	struct snapshot_cursor cursor = {0};
	struct filter_run run;
	int err = sums ? filter_run_begin(&run, filters, snapshot) : -ENOMEM;

	if (err) {
		free(sums);
		return err;
	}
	for (size_t i = 0; i < count; i++)
		sums[i].process = snapshot_process(snapshot, i);
	while (!err && (trace = snapshot_own_next(snapshot, &cursor))) {
		int passes = filter_run_passes(&run, trace);

		err = passes < 0 ? passes : 0;
		if (passes <= 0)
			continue;
		sums_add(&sums[trace->process], snapshot, trace);
	}
	filter_run_end(&run);
	for (size_t i = 0; !err && i < count; i++)
		err = sums_round(&sums[i]);
	if (err) {
		free(sums);
		return err;
	}
	qsort(sums, count, sizeof(*sums), sums_compare);
	*out = sums;
	return 0;
}

const char *process_state(char out[PROCESS_STATE_MAX], const struct snapshot_meta *process)
{
	int status = (int)process->wait_status;

	if (process->has_exited && WIFSIGNALED(status))
		snprintf(out, PROCESS_STATE_MAX, "killed by signal %d%s", WTERMSIG(status),
			 process->oom_killed ? " (OOM)" : "");
	else if (process->has_exited && WEXITSTATUS(status))
		snprintf(out, PROCESS_STATE_MAX, "exited with status %d", WEXITSTATUS(status));
	else if (process->has_exited)
		snprintf(out, PROCESS_STATE_MAX, "exited");
	else if (!strcmp(process->moment, "finalizing"))
		snprintf(out, PROCESS_STATE_MAX, "ending");
	else if (!strcmp(process->moment, "execed"))
		snprintf(out, PROCESS_STATE_MAX, "executed another program");
	else
		text_escape(out, PROCESS_STATE_MAX, process->moment);
	return out;
}

bool processes_are_alike(const struct snapshot *snapshot)
{
	const struct snapshot_meta *first = snapshot->processes;

	for (size_t i = 0; i < snapshot->process_count; i++) {
		const struct snapshot_meta *process = &snapshot->processes[i];

		if (strcmp(process->name, first->name) || strcmp(process->mode, first->mode) ||
		    process->python_version != first->python_version || process->has_exited ||
		    strcmp(process->moment, "running"))
			return 0;
	}
	return 1;
}

/* A row of a terminal's table. */
static void row_cells(FILE *out, const struct process_sums *sums)
{
	const struct snapshot_meta *process = sums->process;
	char state[PROCESS_STATE_MAX], count[32];

	fprintf(out, "%u\t%s\t%s\t", process->pid, SIZE_TEXT(sums->size),
		text_count(count, sums->count));
	text_print(out, process->mode);
	putc('\t', out);
	text_print(out, process->container);
	fprintf(out, "\t%s\t", process_state(state, process));
	text_print(out, process->name);
	if (sums->inherited.count)
		fprintf(out, ", %s inherited from PID %u", SIZE_TEXT(sums->inherited.size),
			process->parent);
	putc('\n', out);
}

static void row_print(FILE *out, const struct process_sums *sums, int containers)
{
	const struct snapshot_meta *process = sums->process;
	char name[NAME_MAX_SHOWN], state[PROCESS_STATE_MAX], mode[4 * sizeof(process->mode)];
	char size[32], figures[2][40];

	text_escape(name, sizeof(name), process->name);
	fprintf(out, "  %7u  %-16s", process->pid, name);
	if (containers) {
		text_escape(name, sizeof(name), process->container);
		fprintf(out, "  %-20s", name[0] ? name : "-");
	}
	text_escape(mode, sizeof(mode), process->mode);
	snprintf(figures[0], sizeof(figures[0]), "%s%s", sums->error.size ? "~" : "",
		 size_text(size, sums->size));
	snprintf(figures[1], sizeof(figures[1]), "%s%" PRIu64, sums->error.count ? "~" : "",
		 sums->count);
	fprintf(out, "  %11s  %10s  %-7s  %s", figures[0], figures[1], mode,
		process_state(state, process));
	if (sums->inherited.count)
		fprintf(out, ", %s%s inherited from PID %u", sums->inherited.error.size ? "~" : "",
			size_text(size, sums->inherited.size), process->parent);
	putc('\n', out);
}

static void titles_print(FILE *out, int containers)
{
	fprintf(out, "  %7s  %-16s", "PID", "COMMAND");
	if (containers)
		fprintf(out, "  %-20s", "CONTAINER");
	fprintf(out, "  %11s  %10s  %-7s  %s\n", "SIZE", "COUNT", "MODE", "STATE");
}

static void rest_print(FILE *out, const struct process_sums *sums, size_t count, int tables)
{
	uint64_t size = 0, blocks = 0;
	char text[SIZE_TEXT_MAX];

	for (size_t i = 0; i < count; i++) {
		size += sums[i].size;
		blocks += sums[i].count;
	}
	size_text(text, size);
	if (tables)
		fprintf(out, "\t%s\t%s\t\t\t\t%zu other%s\n", text, COUNT_TEXT(blocks), count,
			count > 1 ? "s" : "");
	else
		fprintf(out, "  %zu other: size=%s, count=%" PRIu64 "\n", count, text, blocks);
}

static void table_print(FILE *out, const struct process_sums *sums, size_t count, size_t shown,
			const struct report_opts *opts)
{
	int containers = 0;

	for (size_t i = 0; i < shown; i++)
		containers |= sums[i].process->container[0] != 0;
	fputs(opts->color ? "\033[1m" : "", out);
	if (shown < count)
		fprintf(out, "Top %zu processes of %zu by size", shown, count);
	else if (count == 1)
		fputs("The only process", out);
	else
		fprintf(out, "All %zu processes by size", count);
	fputs(opts->color ? "\033[0m\n" : "\n", out);
	if (opts->tables)
		fputs("PID\tSIZE\tCOUNT\t?<MODE\t?<CONTAINER\t?<STATE\tCOMMAND\n", out);
	else
		titles_print(out, containers);
	for (size_t i = 0; i < shown; i++)
		if (opts->tables)
			row_cells(out, &sums[i]);
		else
			row_print(out, &sums[i], containers);
	if (shown < count)
		rest_print(out, sums + shown, count - shown, opts->tables);
}

int processes_print(FILE *out, const struct snapshot *snapshot, const struct report_opts *opts)
{
	size_t count = snapshot_process_count(snapshot);
	struct process_sums *sums;
	int err = process_sums(snapshot, opts->filters, &sums);

	if (err)
		return err;
	table_print(out, sums, count, report_rows(opts, count), opts);
	free(sums);
	return 0;
}

void owner_print(FILE *out, const struct snapshot_meta *process, enum group_by by)
{
	if (by == GROUP_CONTAINER) {
		text_print(out, process->container[0] ? process->container : "(in no container)");
		return;
	}
	if (by == GROUP_PROCESS)
		fprintf(out, "PID %u (", process->pid);
	text_print(out, process->name[0] ? process->name : "?");
	if (by != GROUP_PROCESS)
		return;
	putc(')', out);
	if (process->container[0]) {
		fputs(" in ", out);
		text_print(out, process->container);
	}
}

void holders_print(FILE *out, const struct statistic *entry, enum group_by by)
{
	int several = entry->snapshot->process_count != 0;

	/* A process that called exec counts as two. */
	if (by == GROUP_PROCESS ? entry->processes > 1 : several || group_is_owner(by))
		fprintf(out, ", processes=%u", entry->processes);
}

const char *owner_word(enum group_by by)
{
	return by == GROUP_PROCESS ? "process" : by == GROUP_COMM ? "comm" : "container";
}

void owner_json(struct json *json, const struct snapshot_meta *process, enum group_by by)
{
	if (by == GROUP_PROCESS)
		json_unsigned(json, "pid", process->pid);
	if (by != GROUP_CONTAINER)
		json_text(json, "comm", process->name);
	if (by != GROUP_COMM)
		json_text(json, "container", process->container[0] ? process->container : NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The lines before the entries of a text report. */
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>

#include "layouts/version.h"
#include "remarks/modes.h"
#include "report/report_parts.h"
#include "report/report_processes.h"
#include "text/size.h"
#include "text/text.h"

/* Which moment the figures show, and how it is known. */
static void peak_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	if (snapshot->process_count)
		fputs(", each process at its own peak", out);
	else if (meta->layer < EVENT_LAYER_TABLES) /* a file may say anything */
		fprintf(out, ", at the peak after %.1f s",
			(double)meta->peak_after_ns[meta->layer] / 1e9);
	if (!strcmp(meta->mode, "census"))
		fputs(", of the moments of heap walks", out);
	if (meta->at_peak > 1)
		fputs(", estimates", out);
	fputs("; the sizes of a traceback's blocks are their mean", out);
}

static void origin_print(FILE *out, const struct snapshot *snapshot, int brief)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	static const struct {
		const char *moment, *text;
	} moments[] = {
		{"finalizing", ", as its interpreter began to shut down"},
		{"exited", ", as it exited"},
		{"execed", ", as it executed another program"},
	};
	char version[VERSION_TEXT], state[PROCESS_STATE_MAX];

	if (snapshot->process_count && brief && processes_are_alike(snapshot)) {
		fprintf(out, "%zu processes of ", snapshot->process_count);
		text_print(out, snapshot->processes[0].name);
		fputs(", ", out);
	} else if (snapshot->process_count) {
		fprintf(out, "%zu processes, ", snapshot->process_count);
	} else {
		text_print(out, meta->name);
		fprintf(out, " (PID %u), ", meta->pid);
	}
	if (meta->python_version)
		fprintf(out, "CPython %s, ", version_text(version, meta->python_version));
	if (meta->layer != EVENT_LAYER_PYTHON)
		fputs(meta->layer == EVENT_LAYER_MMAP ? "mapped memory, " : "native blocks, ", out);
	if (meta->mode[0])
		fprintf(out, "%s mode, ", meta->mode);
	if (meta->sample_bytes)
		fputs("sampled, ", out);
	if (meta->windows.count && strcmp(meta->mode, "windows") != 0)
		fputs("in windows, ", out);
	if (meta->self_sampled && snapshot_has_layer(snapshot, EVENT_LAYER_NATIVE))
		fprintf(out, "sampled by %s, ",
			snapshot->process_count ? "some processes themselves"
						: "the process itself");
	fprintf(out, "%.1f s", (double)meta->duration_ns / 1e9);
	if (meta->at_peak) {
		peak_print(out, snapshot);
		return;
	}
	/* The table of processes says how each of several ended. */
	if (!snapshot->process_count && meta->has_exited && WIFSIGNALED((int)meta->wait_status)) {
		fprintf(out, ", %s", process_state(state, meta));
		return;
	}
	for (size_t i = 0; !snapshot->process_count && i < sizeof(moments) / sizeof(moments[0]);
	     i++)
		if (!strcmp(meta->moment, moments[i].moment))
			fputs(moments[i].text, out);
}

/* Says what the figures mean: growth mode counts pools, not blocks. */
static void growth_print(FILE *out, const struct snapshot_meta *meta, int brief)
{
	char text[32];

	if (brief) {
		fputs("Lines that took new pools, maybe for what they drop again: no list of "
		      "leaks\n",
		      out);
		return;
	}

	fprintf(out,
		"Where the heap grew: sizes are of whole pools (%s each), charged to the line that "
		"first used them%s\n"
		"These lines took pools, maybe for what they drop again: it is no list of leaks; "
		"tracer heap --by path, and heap diff of two dumps, show what stays and what holds "
		"it\n",
		meta->pool_bytes ? size_text(text, meta->pool_bytes) : "of unknown size",
		meta->large_skipped ? ", not of objects"
				    : ", and of blocks of more than 512 bytes");
}

static void title_print(FILE *out, const char *prefix, const char *name,
			const struct snapshot *snapshot, int brief)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	int growth = snapshot_is_growth(snapshot);

	fputs(prefix, out);
	if (name) {
		text_print(out, name);
		fputs(": ", out);
	}
	if (!strcmp(meta->mode, SNAPSHOT_TRACEMALLOC))
		fprintf(out, "taken by Python's tracemalloc, at most %u frame%s a traceback",
			meta->traceback_limit, meta->traceback_limit == 1 ? "" : "s");
	else
		origin_print(out, snapshot, brief);
	putc('\n', out);
	modes_print(out, meta);
	if (growth)
		growth_print(out, meta, brief);
	if (meta->of_app)
		fputs("Tracebacks begin at their most recent frame of the application, if they "
		      "have one (export --app)\n",
		      out);
}

void report_title_print(FILE *out, const struct snapshot *snapshot)
{
	title_print(out, "tracer: ", NULL, snapshot, 0);
}

void report_titles_print(FILE *out, const struct snapshot *snapshot, const struct report_opts *opts)
{
	title_print(out, "tracer: ", opts->name, snapshot, opts->brief != 0);
	if (!opts->old)
		return;
	title_print(out, "compared to: ", opts->old_name, opts->old, opts->brief != 0);
	if (snapshot->meta.traceback_limit != opts->old->meta.traceback_limit)
		fprintf(out,
			"The traceback limits differ, %u frames and %u: only groups by the most "
			"recent frame are comparable\n",
			snapshot->meta.traceback_limit, opts->old->meta.traceback_limit);
}

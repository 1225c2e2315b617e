/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "cmd/agent/metrics.h"
#include "runtime/cpython/version.h"
#include "snapshot/snapshot.h"
#include "util/html.h"
#include "util/json.h"
#include "util/size.h"
#include "util/text.h"

void targets_write(FILE *out, const struct figures *figures)
{
	struct json json = {.out = out};
	char version[VERSION_TEXT];

	json_open(&json, NULL, '{');
	json_bool(&json, "session", figures->has_session);
	json_open(&json, "processes", '[');
	for (size_t i = 0; i < figures->process_count; i++) {
		const struct figure_process *process = &figures->processes[i];

		json_open(&json, NULL, '{');
		json_signed(&json, "pid", process->pid);
		json_text(&json, "name", process->name);
		if (process->container[0])
			json_text(&json, "container", process->container);
		if (process->service[0])
			json_text(&json, "service", process->service);
		if (process->pod[0]) {
			json_text(&json, "namespace", process->namespace);
			json_text(&json, "pod", process->pod);
		}
		json_bool(&json, "traced", process->is_traced);
		if (process->is_traced) {
			json_text(&json, "layer", event_layer_name(process->layer));
			json_text(&json, "mode", snapshot_mode_name(process->mode));
		}
		if (figure_has_live(process))
			json_fixed(&json, "live", process->live_size, 0);
		if (process->is_traced && process->python_version)
			json_text(&json, "python", version_text(version, process->python_version));
		json_unsigned(&json, "rss", figure_resident(process));
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_unsigned(&json, "left_out", figures->left_out);
	json_end(&json);
}

static void process_row(FILE *out, const struct figure_process *process)
{
	fprintf(out, "<tr><td>%d<td>", (int)process->pid);
	html_text(out, process->name);
	fputs("<td>", out);
	html_text(out, process->container[0] ? process->container : process->service);
	fprintf(out, "<td>%s<td>", SIZE_TEXT(figure_resident(process)));
	if (process->is_traced)
		fprintf(out,
			"%s<td><a href=\"report?pid=%d\">report</a> "
			"<a href=\"debug/pprof/heap?pid=%d\">heap</a>",
			figure_has_live(process) ? SIZE_TEXT((uint64_t)process->live_size) : "",
			(int)process->pid, (int)process->pid);
	else
		fputs("<td>", out);
	if (figure_has_allocated(process))
		fprintf(out, " <a href=\"debug/pprof/allocs?pid=%d\">allocs</a>",
			(int)process->pid);
	fputs("<td>", out);
	html_text(out, process->command);
	fputs("</tr>\n", out);
}

static void line_row(FILE *out, const char *text, double size, double count)
{
	fprintf(out, "<tr><td>%s<td>%s<td>", SIZE_TEXT((uint64_t)size),
		COUNT_TEXT((uint64_t)count));
	html_text(out, text);
	fputs("</tr>\n", out);
}

void index_write(FILE *out, const struct figures *figures)
{
	bool any_traced = false, any_allocated = false;
	char other[64];

	for (size_t i = 0; i < figures->process_count; i++) {
		any_traced |= figures->processes[i].is_traced;
		any_allocated |= figure_has_allocated(&figures->processes[i]);
	}
	fputs("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>tracer</title>\n"
	      "<h1>tracer " TRACER_VERSION "</h1>\n"
	      "<p><a href=\"metrics\">metrics</a> <a href=\"targets\">targets</a>",
	      out);
	/* What there is not is not linked. */
	if (any_traced)
		fputs(" <a href=\"debug/pprof/heap\">heap of all</a>", out);
	if (any_allocated)
		fputs(" <a href=\"debug/pprof/allocs\">allocs of all</a>", out);
	fputs("</p>\n<h2>Processes</h2>\n"
	      "<table><tr><th>PID<th>Name<th>Container or service<th>RSS<th>Live"
	      "<th>Profiles<th>Command</tr>\n",
	      out);
	for (size_t i = 0; i < figures->process_count; i++)
		process_row(out, &figures->processes[i]);
	fputs("</table>\n", out);
	if (figures->left_out)
		fprintf(out, "<p>%" PRIu64 " more are not shown.</p>\n", figures->left_out);
	fputs("<h2>Lines that hold most</h2>\n<table><tr><th>Size<th>Count<th>Line</tr>\n", out);
	for (size_t i = 0; i < figures->line_count; i++)
		line_row(out, figures->lines[i].text, figures->lines[i].size,
			 figures->lines[i].count);
	snprintf(other, sizeof(other), "%zu other lines", figures->other_lines);
	line_row(out, other, figures->other_size, figures->other_count);
	fputs("</table>\n</html>\n", out);
}

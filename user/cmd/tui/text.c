/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of a live view that are not rows: its header, and an opened row. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tui/view.h"
#include "report/recording/recording_load.h"
#include "report/source.h"
#include "snapshot/snapshot.h"
#include "util/buffer.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/text.h"

#define AROUND     3u  /* lines before and after an opened row's line */
#define TRACEBACKS 20u /* of an opened row, the largest */

static void processes_print(const struct watch_view *view, const struct watch_model *model,
			    FILE *out)
{
	const struct sums_process *first = model->process_count ? &model->processes[0].info : NULL;
	char seconds[32];

	if (!first)
		fputs("no process runs under trace", out);
	else if (model->process_count > 1)
		fprintf(out, "%zu processes", model->process_count);
	else
		text_print(out, first->name), fprintf(out, " (PID %u)", first->pid);
	if (model->now.ended)
		fprintf(out, ", %" PRIu64 " ended", model->now.ended);
	if (first)
		fprintf(out, ", %s, %s mode", event_layer_name(first->layer),
			snapshot_mode_name(first->mode));
	if (view->paused)
		fputs(", PAUSED", out);
	if (view->interval_ns > 1500000000ull) {
		snprintf(seconds, sizeof(seconds), "%.0f", (double)view->interval_ns / 1e9);
		fprintf(out, ", refreshed every %s s", seconds);
	}
}

static void memory_print(const struct watch_model *model, const struct watch_total *total,
			 FILE *out)
{
	char size[32];

	fprintf(out, "RSS %s, traced %s in %s blocks", SIZE_TEXT(total->rss_bytes),
		size_text(size, (uint64_t)total->size), COUNT_TEXT((uint64_t)total->count));
	if (model->process_count == 1 && total->peak_bytes >= total->size)
		fprintf(out, ", peak %s", SIZE_TEXT(total->peak_bytes));
	if (total->flags & SUMS_ALLOCATED)
		fprintf(out, ", %s/s allocated", SIZE_TEXT((uint64_t)total->allocated));
	if (total->flags & SUMS_SAMPLED)
		fputs(", estimates from a sample", out);
	if (total->flags & SUMS_WINDOWS)
		fputs(", estimates from windows (reports have their errors)", out);
}

static void trust_print(const struct watch_model *model, const struct watch_total *total,
			uint64_t now_ns, FILE *out)
{
	double seconds = (double)(model->now.time_ns - model->before.time_ns) / 1e9;

	if (model->now.cost >= 0)
		fprintf(out, "cost %.1f %%, ", 100 * model->now.cost);
	if (model->answers > 1 && seconds > 0)
		fprintf(out, "%s events/s, ",
			COUNT_TEXT((uint64_t)((double)(model->now.records - model->before.records) /
					      seconds)));
	fprintf(out, "%s lost", COUNT_TEXT(model->now.lost_events));
	if (total->new_blocks) /* rounded down: 100.0 means all */
		fprintf(out, ", coverage %.1f %%",
			(double)(uint64_t)((double)total->seen_blocks * 1000 /
					   (double)total->new_blocks) /
				10);
	if (total->flags & SUMS_WALKED)
		fprintf(out, ", heap read %.1f s ago",
			(double)(total->walk_ns + now_ns - model->now.time_ns) / 1e9);
}

static void clock_print(uint64_t realtime_ns, FILE *out)
{
	char text[RECORDING_DURATION_BYTES];

	fputs(recording_clock_text(text, realtime_ns), out);
}

/* Which blocks the rows are of, if not of all. */
static void ages_print(const struct ages *ages, FILE *out)
{
	if (ages->least_ns)
		fprintf(out, ", older than %.4g s", (double)ages->least_ns / 1e9);
	if (ages->most_ns != UINT64_MAX)
		fprintf(out, ", younger than %.4g s", (double)ages->most_ns / 1e9);
	if (ages->from_realtime_ns) {
		fputs(", born from ", out);
		clock_print(ages->from_realtime_ns, out);
	}
	if (ages->until_realtime_ns != UINT64_MAX) {
		fputs(ages->from_realtime_ns ? " to " : ", born until ", out);
		clock_print(ages->until_realtime_ns, out);
	}
}

static void thresholds_print(const struct collections *of, FILE *out)
{
	fputs(", counts", out);
	for (unsigned int i = 0; i < COLLECTOR_GENERATIONS; i++)
		fprintf(out, " %d/%d", of->count[i], of->threshold[i]);
}

/* A line about the cyclic garbage collector, if a process runs Python. */
static void collectors_print(const struct watch_model *model, const struct watch_total *total,
			     FILE *out)
{
	const struct watch_collectors of = watch_model_collectors(model);

	if (!total->pythons)
		return;
	if (!of.processes) {
		fputs("gc: its state was not found\n", out);
		return;
	}
	if (of.one)
		fprintf(out, "gc %s", of.off ? "off" : "on");
	else
		fprintf(out, "gc of %zu processes, off in %zu", of.processes, of.off);
	if (of.running)
		fputs(", runs now", out);
	if (of.done_s >= 0)
		fprintf(out, ": %.0f collections/min, %s objects freed/min", 60 * of.done_s,
			COUNT_TEXT((uint64_t)(60 * of.freed_s + 0.5)));
	if (of.share >= 0)
		fprintf(out, ", %.2g %% of the time", 100 * of.share);
	fprintf(out, "; %s and %s so far", COUNT_TEXT(of.done), COUNT_TEXT(of.freed));
	if (of.one)
		thresholds_print(of.one, out);
	if (of.more)
		fputs(", not of all interpreters", out);
	putc('\n', out);
}

void watch_header(const struct watch_view *view, const struct watch_model *model, uint64_t now_ns,
		  FILE *out)
{
	const struct watch_total total = watch_model_total(model);
	size_t unnamed = watch_model_unnamed(model);
	char size[32];

	processes_print(view, model, out);
	putc('\n', out);
	memory_print(model, &total, out);
	putc('\n', out);
	trust_print(model, &total, now_ns, out);
	putc('\n', out);
	collectors_print(model, &total, out);
	fprintf(out, "by %s, sorted by %s", watch_by_name(model, view->groups.by),
		watch_sort_name(view->groups.sort));
	fprintf(out, ", %zu row%s of %s", view->groups.rows, view->groups.rows == 1 ? "" : "s",
		size_text(size, (uint64_t)view->groups.rows_size));
	if (view->groups.filter[0])
		fputs(", filter: ", out), text_print(out, view->groups.filter);
	ages_print(&view->ages, out);
	if (model->mark_ns)
		fprintf(out, ", marked %.0f s ago, since then %s",
			(double)(now_ns - model->mark_ns) / 1e9,
			size_format(size, total.size - total.mark_size, 1));
	if (unnamed)
		fprintf(out, ", %zu tracebacks still to be read", unnamed);
	putc('\n', out);
}

static void around_print(const char *filename, uint32_t line, struct source *source, FILE *out)
{
	uint32_t first = line > AROUND ? line - AROUND : 1;
	struct buffer text = {0};

	for (uint32_t at = first; at <= line + AROUND && at >= first; at++) {
		if (source_read(source, filename, at, &text) <= 0)
			continue;
		fprintf(out, "%c%6u  ", at == line ? '>' : ' ', at);
		for (char *tab; (tab = strchr((char *)text.data, '\t'));)
			*tab = ' ';
		text_print(out, (char *)text.data);
		putc('\n', out);
	}
	buffer_free(&text);
}

struct text_held {
	const struct watch_stack *stack;
	double size, count;
};

static void stack_print(const struct watch_model *model, const struct text_held *held,
			struct source *source, FILE *out)
{
	const struct watch_stack *stack = held->stack;
	char count[32];

	fprintf(out, "\n%s in %s block%s\n", SIZE_TEXT((uint64_t)held->size),
		text_count(count, (uint64_t)held->count), (uint64_t)held->count == 1 ? "" : "s");
	for (uint32_t i = 0; i < stack->nframe; i++) {
		const struct stacks_frame *frame = &model->frames[stack->first + i];

		fputs("  ", out);
		watch_frame_label(model, frame, out);
		putc('\n', out);
		if (source && frame->line)
			source_print(source, out, "      ",
				     strings_get(model->strings, frame->filename), frame->line);
	}
}

static int held_compare(const void *a, const void *b)
{
	const struct text_held *x = a, *y = b;

	return CMP(y->size, x->size);
}

static int held_stack_compare(const void *a, const void *b)
{
	const struct text_held *x = a, *y = b;

	return CMP((uintptr_t)x->stack, (uintptr_t)y->stack);
}

/* Adds up what is of one stack: by age it has many sums. Returns how many there are then. */
static size_t held_merge(struct text_held *held, size_t count)
{
	size_t kept = 0;

	qsort(held, count, sizeof(*held), held_stack_compare);
	for (size_t i = 0; i < count; i++) {
		if (kept && held[kept - 1].stack == held[i].stack) {
			held[kept - 1].size += held[i].size;
			held[kept - 1].count += held[i].count;
		} else {
			held[kept++] = held[i];
		}
	}
	return kept;
}

/* The stacks of a group that hold something. Caller frees; NULL: none, or no memory. */
static struct text_held *held_by(const struct watch_model *model, uint32_t group, size_t *count)
{
	struct text_held *held = NULL;

	for (int fill = 0; fill < 2; fill++) {
		size_t found = 0;

		for (size_t i = 0; i < model->process_count; i++)
			for (size_t j = 0; j < model->processes[i].sum_count; j++) {
				const struct watch_sum *sum = &model->processes[i].sums[j];
				const struct watch_stack *stack =
					&model->processes[i].stacks[sum->stack];

				if (sum->group != group || !sum->count || !stack->nframe)
					continue;
				if (fill)
					held[found] =
						(struct text_held){stack, sum->size, sum->count};
				found++;
			}
		if (!fill) {
			*count = found;
			held = calloc(found + 1, sizeof(*held));
		}
		if (!held)
			return NULL;
	}
	return held;
}

void watch_detail(const struct watch_view *view, const struct watch_model *model,
		  struct source *source, FILE *out)
{
	uint32_t group = id_map_find(&view->groups.keys, view->open_key);
	size_t count = 0;

	if (group == ID_MAP_NONE) {
		fputs("this row holds nothing any more\n", out);
		return;
	}
	watch_group_label(&view->groups, model, &view->groups.items[group], out);
	putc('\n', out);
	struct text_held *held = held_by(model, group, &count);
	if (held && count) {
		count = held_merge(held, count);
		qsort(held, count, sizeof(*held), held_compare);
		const struct stacks_frame *frame = &model->frames[held[0].stack->first];

		if (view->groups.by == WATCH_LINE && source && frame->line)
			around_print(strings_get(model->strings, frame->filename), frame->line,
				     source, out);
		fprintf(out, "\n%zu traceback%s", count, count == 1 ? "" : "s");
		if (count > TRACEBACKS)
			fprintf(out, ", the largest %u", TRACEBACKS);
		fputs(":\n", out);
	}
	for (size_t i = 0; held && i < count && i < TRACEBACKS; i++)
		stack_print(model, &held[i], source, out);
	free(held);
}

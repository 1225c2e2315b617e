/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of the rows of a live view. */
#include "cmd/tui/groups.h"
#include "util/text.h"

const char *watch_by_name(const struct watch_model *model, enum watch_by by)
{
	static const char *const names[] = {
		[WATCH_LINE] = "line",       [WATCH_FUNCTION] = "function",
		[WATCH_FILE] = "file",       [WATCH_TRACEBACK] = "traceback",
		[WATCH_PROCESS] = "process", [WATCH_CONTAINER] = "container",
		[WATCH_THREAD] = "thread",   [WATCH_TASK] = "task",
	};

	return by == WATCH_TASK && watch_model_tells(model, SUMS_VALUES) ? "value" : names[by];
}

const char *watch_sort_name(enum watch_sort sort)
{
	static const char *const names[] = {
		[WATCH_SIZE] = "size",       [WATCH_COUNT] = "count",
		[WATCH_GROWTH] = "growth",   [WATCH_ALLOCATED] = "allocation",
		[WATCH_DIFF] = "difference",
	};

	return names[sort];
}

static void text_put(FILE *out, const struct watch_model *model, uint32_t string)
{
	text_print(out, strings_get(model->strings, string));
}

void watch_frame_label(const struct watch_model *model, const struct stacks_frame *frame, FILE *out)
{
	text_put(out, model, frame->filename);
	if (frame->line)
		fprintf(out, ":%u", frame->line);
	fputs(" in ", out);
	text_put(out, model, frame->function);
}

static void owner_label(const struct watch_groups *groups, const struct sums_process *info,
			FILE *out)
{
	if (groups->by == WATCH_CONTAINER) {
		text_print(out, info->container[0] ? info->container : "no container");
		return;
	}
	text_print(out, info->name);
	fprintf(out, " (PID %u", info->pid);
	if (info->container[0]) {
		fputs(", container ", out);
		text_print(out, info->container);
	}
	putc(')', out);
}

static void thread_label(const struct watch_model *model, const struct watch_process *process,
			 uint32_t tid, FILE *out)
{
	const char *name = watch_model_thread(process, tid);

	if (tid) {
		text_print(out, name ? name : "(name not known)");
		fprintf(out, " (TID %u", tid);
	} else {
		fputs("(thread not known", out);
	}
	if (model->process_count > 1) {
		fputs(", ", out);
		text_print(out, process->info.name);
		fprintf(out, ", PID %u", process->info.pid);
	}
	putc(')', out);
}

static void task_label(const struct watch_model *model, const struct watch_process *process,
		       uint32_t task, FILE *out)
{
	char numbered[32];
	const char *name = watch_model_task(model, process, task, numbered);

	if (!(process->info.flags & SUMS_TASKS))
		fputs("(tasks not told)", out);
	else if (!task)
		fputs(process->info.flags & SUMS_VALUES ? "(none)" : "(no task)", out);
	else
		text_print(out, name ? name : "(a name that is being read)");
	if (model->process_count > 1) {
		fputs(" (", out);
		text_print(out, process->info.name);
		fprintf(out, ", PID %u)", process->info.pid);
	}
}

void watch_group_label(const struct watch_groups *groups, const struct watch_model *model,
		       const struct watch_group *group, FILE *out)
{
	const struct watch_process *process = &model->processes[group->process];
	const struct watch_sum *sum = &process->sums[group->sum];
	const struct watch_stack *stack = &process->stacks[sum->stack];
	const struct stacks_frame *frame = &model->frames[stack->first];

	if (groups->by == WATCH_THREAD) {
		thread_label(model, process, sum->owner, out);
		return;
	}
	if (groups->by == WATCH_TASK) {
		task_label(model, process, sum->owner, out);
		return;
	}
	if (groups->by == WATCH_PROCESS || groups->by == WATCH_CONTAINER) {
		owner_label(groups, &process->info, out);
		return;
	}
	if (group->key == WATCH_NAMELESS || !stack->nframe) {
		fputs("(names that are being read)", out);
		return;
	}
	if (groups->by == WATCH_TRACEBACK || groups->by == WATCH_FUNCTION ||
	    (groups->by == WATCH_LINE && !frame->line)) {
		struct stacks_frame shown = *frame;

		shown.line = groups->by == WATCH_TRACEBACK ? frame->line : 0;
		watch_frame_label(model, &shown, out);
		if (groups->by == WATCH_TRACEBACK && stack->nframe > 1)
			fprintf(out, " and %u caller%s", stack->nframe - 1,
				stack->nframe == 2 ? "" : "s");
		return;
	}
	text_put(out, model, frame->filename);
	if (groups->by == WATCH_LINE)
		fprintf(out, ":%u", frame->line);
}

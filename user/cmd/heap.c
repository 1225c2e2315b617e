/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cli.h"
#include "cmd/heap/heap_choice.h"
#include "cmd/options/options.h"
#include "cmd/options/targets.h"
#include "proc/process.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "proc/targets/target_set.h"
#include "runtime/cpython/version.h"
#include "runtime/heap/heap_types.h"
#include "util/error.h"
#include "util/json.h"
#include "util/one_line.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/stream.h"
#include "util/terminal.h"
#include "util/text.h"

/* A process whose heap is read. */
struct heap_process {
	struct process_info info;
	struct python_runtime runtime;
};

/* A row of the output; rows are sorted by bytes, the largest first. */
struct heap_row {
	const struct heap_type *type; /* NULL: a size class */
	uint64_t key;                 /* a type's address, a class's size */
	struct heap_sum sum;
};

struct heap_view {
	const struct heap_choice *choice;
	const struct heap_types *types;
	const struct process_info *info;
	uint32_t version;
	uint64_t bytes_swapped;
	struct heap_row *rows;
	size_t count, shown;
};

/* what: "size"; "own size": the objects' own blocks alone */
static void sum_print(const char *what, const struct heap_sum *sum)
{
	printf("%s=%s, count=%" PRIu64, what, SIZE_TEXT(sum->bytes), sum->blocks);
	if (sum->blocks)
		printf(", average=%s", SIZE_TEXT((sum->bytes + sum->blocks / 2) / sum->blocks));
	putchar('\n');
}

/* The cells of a table's row before the name; total: of all rows. */
static void sum_cells(const struct heap_sum *sum, const struct heap_sum *total)
{
	char size[SIZE_TEXT_MAX], average[SIZE_TEXT_MAX] = "", count[32];

	if (sum->blocks)
		size_text(average, (sum->bytes + sum->blocks / 2) / sum->blocks);
	printf("%s\t%.1f %%\t%s\t%s\t", size_text(size, sum->bytes),
	       total->bytes ? 100.0 * (double)sum->bytes / (double)total->bytes : 0,
	       text_count(count, sum->blocks), average);
}

static void row_text(const struct heap_view *view, const struct heap_row *row,
		     const struct heap_sum *total)
{
	int tables = view->choice->output.opts.tables;

	if (tables)
		sum_cells(&row->sum, total);
	else
		fputs("  ", stdout);
	if (view->choice->by == BY_CLASS)
		printf("%" PRIu64 " B", row->key);
	else if (heap_type_name(row->type)[0])
		text_print(stdout, heap_type_name(row->type));
	else
		printf("<type at 0x%" PRIx64 ">", row->key);
	if (tables) {
		putchar('\n');
		return;
	}
	fputs(": ", stdout);
	sum_print(row->type ? "own size" : "size", &row->sum);
}

/* A row that is no type or class; before: what stands before its name in a list. */
static void other_text(const struct heap_view *view, const char *before, const char *name,
		       const char *what, const struct heap_sum *sum, const struct heap_sum *total)
{
	if (view->choice->output.opts.tables) {
		sum_cells(sum, total);
		puts(name);
		return;
	}
	printf("%s%s: ", before, name);
	sum_print(what, sum);
}

/* The type to ask for next: the largest one shown that a module has defined. NULL: none. */
static const char *next_type(const struct heap_view *view)
{
	for (size_t i = 0; i < view->shown && view->choice->by == BY_TYPE; i++) {
		const char *name = heap_type_name(view->rows[i].type);

		if (strchr(name, '.') && text_is_plain(name))
			return name;
	}
	return NULL;
}

static void foot_brief(const struct heap_view *view)
{
	const struct heap_walk *walk = &view->types->walk;
	const struct report_opts *opts = &view->choice->output.opts;
	struct one_line line = {0};

	if (walk->pools_unreadable)
		one_line_add(&line, "%" PRIu64 " of %" PRIu64 " pools could not be read",
			     walk->pools_unreadable, walk->pools + walk->pools_unreadable);
	if (view->bytes_swapped)
		one_line_add(&line, "%s on swap not read", SIZE_TEXT(view->bytes_swapped));
	if (!line.count)
		one_line_add(&line, "complete");
	if (walk->is_mimalloc)
		one_line_add(&line, "blocks of malloc not in it");
	else
		one_line_add(&line, "%s blocks of malloc not in it", COUNT_TEXT(walk->raw_blocks));
	one_line_print(stdout, "Figures", &line, opts->brief, opts->color);
	if (next_type(view))
		printf("next: tracer heap why %s -p %d\n", next_type(view), view->info->pid);
	else
		printf("next: tracer heap -p %d --retained\n", view->info->pid);
}

static void view_text(const struct heap_view *view)
{
	int by_type = view->choice->by == BY_TYPE;
	const char *const names = by_type ? "types" : "size classes";
	const struct heap_types *types = view->types;
	const struct heap_walk *walk = &types->walk;
	struct heap_sum total = {walk->blocks, walk->bytes}, rest = {0};
	char version[VERSION_TEXT], others[32];

	fputs("tracer: ", stdout);
	text_print(stdout, view->info->name);
	printf(" (PID %d), CPython %s, heap read in %.1f ms\n", view->info->pid,
	       version_text(version, view->version), (double)walk->elapsed_ns / 1e6);
	if (view->shown < view->count)
		printf("Top %zu %s of %zu", view->shown, names, view->count);
	else
		printf("All %zu %s", view->count, names);
	printf(" by %ssize, in bytes of %s's size classes%s\n", by_type ? "own " : "",
	       walk->is_mimalloc ? "mimalloc" : "pymalloc",
	       by_type ? "; --retained has also what they own" : "");
	if (view->choice->output.opts.tables)
		printf("SIZE\tSHARE\t?COUNT\t?AVERAGE\t%s\n", by_type ? "TYPE" : "SIZE CLASS");
	for (size_t i = 0; i < view->shown; i++)
		row_text(view, &view->rows[i], &total);
	for (size_t i = view->shown; i < view->count; i++) {
		rest.blocks += view->rows[i].sum.blocks;
		rest.bytes += view->rows[i].sum.bytes;
	}
	snprintf(others, sizeof(others), "%zu other", view->count - view->shown);
	if (rest.blocks)
		other_text(view, "  ", others, by_type ? "own size" : "size", &rest, &total);
	if (by_type) {
		other_text(view, "  ", "no object (keys of dicts, items of lists, buffers)", "size",
			   &types->others, &total);
		other_text(view, "  ", "dead objects, kept on free lists", "size", &types->dead,
			   &total);
	}
	other_text(view, "", "Total", "size", &total, &total);
	if (view->choice->output.opts.brief) {
		foot_brief(view);
		return;
	}
	puts("Not seen:");
	if (walk->is_mimalloc)
		puts("  blocks of malloc, which extensions use; nobody counts them");
	else
		printf("  blocks that are not on this heap, most of them of more than 512 bytes: "
		       "%" PRIu64 "\n",
		       walk->raw_blocks);
	printf("  pools that could not be read: %" PRIu64 " of %" PRIu64 "\n",
	       walk->pools_unreadable, walk->pools + walk->pools_unreadable);
	if (types->modules_unknown)
		printf("  modules of %" PRIu64 " classes\n", types->modules_unknown);
	if (view->bytes_swapped)
		printf("  on swap, which were not read: %s\n", SIZE_TEXT(view->bytes_swapped));
}

static void sum_json(struct json *json, const char *key, const struct heap_sum *sum)
{
	json_open(json, key, '{');
	json_numbers(json, {"size", sum->bytes}, {"count", sum->blocks});
	json_close(json, '}');
}

static void row_json(struct json *json, const struct heap_row *row)
{
	json_open(json, NULL, '{');
	if (row->type) {
		json_text(json, "type", row->type->name);
		json_text(json, "type_name", heap_type_name(row->type));
		json_numbers(json, {"type_address", row->key}, {"own_size", row->sum.bytes});
	} else {
		json_unsigned(json, "class", row->key);
	}
	json_numbers(json, {"size", row->sum.bytes}, {"count", row->sum.blocks});
	json_close(json, '}');
}

/* One object on one line for each process; keys are only ever added. */
static void view_json(const struct heap_view *view)
{
	const struct heap_types *types = view->types;
	const struct heap_walk *walk = &types->walk;
	struct heap_sum total = {walk->blocks, walk->bytes};
	struct json json = {.out = stdout};
	char version[VERSION_TEXT];

	json_open(&json, NULL, '{');
	json_signed(&json, "pid", view->info->pid);
	json_text(&json, "name", view->info->name);
	json_text(&json, "python_version", version_text(version, view->version));
	json_text(&json, "by", view->choice->by == BY_TYPE ? "type" : "class");
	sum_json(&json, "total", &total);
	sum_json(&json, "objects", &types->objects);
	sum_json(&json, "dead", &types->dead);
	sum_json(&json, "no_object", &types->others);
	if (walk->is_mimalloc)
		json_none(&json, "raw_blocks");
	else
		json_unsigned(&json, "raw_blocks", walk->raw_blocks);
	json_numbers(&json, {"arenas", walk->arenas}, {"pools", walk->pools},
		     {"pools_unreadable", walk->pools_unreadable},
		     {"bytes_swapped", view->bytes_swapped}, {"elapsed_ns", walk->elapsed_ns});
	json_open(&json, "statistics", '[');
	for (size_t i = 0; i < view->shown; i++)
		row_json(&json, &view->rows[i]);
	json_close(&json, ']');
	json_end(&json);
}

static int row_compare(const void *a, const void *b)
{
	const struct heap_row *x = a, *y = b;

	return CMP(y->sum.bytes, x->sum.bytes) ?: CMP(x->key, y->key);
}

static int view_print(struct heap_view *view)
{
	const struct heap_types *types = view->types;
	size_t capacity = types->count + types->class_count + 1,
	       top = view->choice->output.opts.top;
	struct terminal terminal;

	view->rows = calloc(capacity, sizeof(*view->rows));
	if (!view->rows)
		return -ENOMEM;
	for (size_t i = 0; view->choice->by == BY_TYPE && i < types->count; i++)
		view->rows[view->count++] = (struct heap_row){
			&types->types[i], types->types[i].address, types->types[i].sum};
	for (size_t i = 0; view->choice->by == BY_CLASS && i < types->class_count; i++)
		view->rows[view->count++] = (struct heap_row){NULL, types->classes[i].block_bytes,
							      types->classes[i].sum};
	qsort(view->rows, view->count, sizeof(*view->rows), row_compare);
	view->shown = top && top < view->count ? top : view->count;
	if (view->choice->output.format == FORMAT_JSON) {
		view_json(view);
	} else {
		terminal_begin(&terminal, &stdout);
		view_text(view);
		terminal_end(&terminal);
	}
	free(view->rows);
	return stream_flush(stdout);
}

static int heap_print(const struct heap_process *process, const struct heap_choice *choice)
{
	struct heap_types types;
	struct heap_view view = {.choice = choice,
				 .types = &types,
				 .info = &process->info,
				 .version = process->runtime.version_hex};
	int err = heap_types_read(&process->runtime, &types);

	if (err)
		return space_error(process->runtime.space, err);
	view.bytes_swapped = space_missed(process->runtime.space).swapped;
	err = view_print(&view);
	heap_types_free(&types);
	return err;
}

/*
 * Finds the Pythons among the processes. Returns 0, or -errno after a message for each that was
 * named and cannot be read; *found is how many were found in either case.
 */
static int processes_find(const struct heap_choice *choice, const pid_t *pids, size_t count,
			  struct heap_process *processes, size_t *found)
{
	const struct target_set *set = &choice->targets;
	int status = 0, err;

	*found = 0;
	for (size_t i = 0; i < count; i++) {
		struct heap_process *process = &processes[*found];

		err = python_process_find(pids[i], NULL, choice->swap_in, &process->info,
					  &process->runtime);
		*found += !err;
		if (!err)
			continue;
		target_error_print(set, pids[i], err);
		/* Of a container, only the Pythons are meant. */
		if (target_set_is_pids(set) || (err != -ENOENT && err != -ESRCH))
			status = err;
	}
	if (!*found && !status)
		status = error_print(
			error_set(-ENOENT, "none of its %zu processes runs Python", count),
			"tracer list shows what can be read", "heap");
	return status;
}

static int processes_print(struct heap_process *processes, size_t count,
			   const struct heap_choice *choice)
{
	int status = 0, err;

	for (size_t i = 0; i < count; i++) {
		if (i && choice->output.format == FORMAT_TEXT)
			putchar('\n');
		err = heap_print(&processes[i], choice);
		if (!err)
			continue;
		pid_error_print(processes[i].info.pid, err);
		status = err;
	}
	return status;
}

static int heaps_print(struct heap_choice *choice)
{
	struct heap_process *processes = NULL;
	size_t count, found = 0;
	pid_t *pids;
	int err = targets_list(&choice->targets, "tracer list shows what can be read", &pids,
			       &count),
	    status = 0;

	if (err)
		return err;
	processes = calloc(count + 1, sizeof(*processes));
	if (!processes)
		status = error_print(-ENOMEM, NULL, "heap");
	else
		status = processes_find(choice, pids, count, processes, &found);
	/*
	 * Finding the runtimes opens the files that the processes have mapped; reading the heaps
	 * needs fewer rights.
	 */
	if (found && target_set_is_pids(&choice->targets))
		targets_workers_print(pids, count, NULL, "read", 1);
	err = found ? privileges_drop(0, 0) ?: calls_limit(0) : 0;
	err = err ? error_print(err, NULL, "heap") : processes_print(processes, found, choice);
	for (size_t i = 0; i < found; i++)
		python_runtime_close(&processes[i].runtime);
	free(processes);
	free(pids);
	return err ?: status;
}

int cli_heap(int argc, char **argv)
{
	struct heap_choice choice = {0};

	report_choice_default(&choice.output);
	int status = cli_parse(&heap_argp, argc, argv, 0, &choice);

	choice.by_age = !status && ages_any(&choice.ages.ages);
	if (status) {
		status = status < 0 ? EXIT_DONE : status;
	} else if (heap_is_question(&choice)) {
		status = heap_answer(&choice);
	} else if (target_set_is_empty(&choice.targets)) {
		error_print(error_set(-EINVAL, "no target is named"),
			    "tracer heap -p PID, or tracer heap -c CONTAINER", "heap");
		status = EXIT_USAGE;
	} else {
		status = heaps_print(&choice) ? EXIT_FAILED : EXIT_DONE;
	}
	target_set_free(&choice.targets);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cli.h"
#include "cmd/options/options.h"
#include "probe/process/translator.h"
#include "proc/container/container.h"
#include "proc/process.h"
#include "proc/targets/target_set.h"
#include "runtime/cpython/runtime_files.h"
#include "runtime/cpython/version.h"
#include "session/session.h"
#include "util/array.h"
#include "util/error.h"
#include "util/json.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/terminal.h"
#include "util/text.h"

#define USER_BYTES   33u
#define REASON_BYTES 256u
#define NAMED_MAX    4u /* processes that a caveat names */

/* A process that is listed. */
struct list_row {
	struct process_info info;
	uint64_t rss, age_ns;
	char user[USER_BYTES];                     /* or its number */
	char container[CONTAINER_LABEL_SIZE + 16]; /* "": none */
	char version[VERSION_TEXT];                /* "": no Python, or one that is not supported */
	const char *coverage;                      /* NULL: not asked for, or not known */
	char refused[REASON_BYTES];                /* why its Python is not supported; "": it is */
	int is_python;
};

struct list_run {
	struct list_row *rows;
	size_t count, capacity;
	size_t others;               /* processes without Python */
	struct process_info *hidden; /* that could not be inspected */
	size_t hidden_count, hidden_capacity;
	int all, coverage, json;
	struct container_list containers;
	struct runtime_files *files;
};

/*
 * The share of the allocations that a session would see. A shared libpython calls its allocator
 * through symbols, so probes see all of it. In an executable the allocator may be inlined, and only
 * a session can measure the share.
 */
static const char *coverage_expected(const struct python_runtime *runtime)
{
	struct plan_opts opts = {0};
	struct plan plan;
	const char *expected = "none";

	if (!plan_python(runtime->file, &opts, &plan)) {
		expected = runtime->static_exe ? "measured when traced" : "full";
		plan_free(&plan);
	}
	return expected;
}

/*
 * The name in this machine's /etc/passwd, read without NSS: a service that names users may hang. A
 * user of a container is not in it.
 */
static void user_name(uint32_t uid, char out[USER_BYTES])
{
	FILE *file = fopen("/etc/passwd", "re");
	struct passwd *entry;

	snprintf(out, USER_BYTES, "%u", uid);
	while (file && (entry = fgetpwent(file)))
		if (entry->pw_uid == uid) {
			snprintf(out, USER_BYTES, "%s", entry->pw_name);
			break;
		}
	if (file)
		fclose(file);
}

/* "web-1 (docker)"; "" outside of containers. */
static void container_text(const struct container_list *containers, struct list_row *row)
{
	const struct container *container = container_of(containers, row->info.pid);
	char label[CONTAINER_LABEL_SIZE];

	if (container)
		snprintf(row->container, sizeof(row->container),
			 container->runtime ? "%s (%s)" : "%s", container_label(container, label),
			 container_runtime_name(container->runtime));
}

static int hidden_add(struct list_run *list, const struct process_info *info)
{
	int err = ARRAY_GROW(list->hidden, list->hidden_capacity, list->hidden_count);

	if (!err)
		list->hidden[list->hidden_count++] = *info;
	return err;
}

/* Adds the process if it is to be listed. 0, -ENOMEM. */
static int process_add(struct list_run *list, pid_t pid)
{
	struct python_runtime runtime = {0};
	struct list_row row = {0};
	int err = process_info_read(pid, &row.info);

	if (err || row.info.kernel_thread || row.info.zombie)
		return 0;
	err = python_runtime_find(pid, list->files, &runtime);
	if (!err && (err = translator_check(pid)))
		python_runtime_close(&runtime);
	if (err == -EPERM)
		return hidden_add(list, &row.info);
	row.is_python = !err || err == -ENOTSUP;
	list->others += !row.is_python;
	if (err == -ENOTSUP)
		snprintf(row.refused, sizeof(row.refused), "%s", error_reason(err));
	if (!err) {
		version_text(row.version, runtime.version_hex);
		row.coverage = list->coverage ? coverage_expected(&runtime) : NULL;
		python_runtime_close(&runtime);
	}
	if (!row.is_python && !list->all)
		return 0;
	process_rss_read(pid, &row.rss, NULL);
	row.age_ns = process_age_ns(pid);
	user_name(row.info.uid, row.user);
	container_text(&list->containers, &row);
	err = ARRAY_GROW(list->rows, list->capacity, list->count);
	if (!err)
		list->rows[list->count++] = row;
	return err;
}

/* The largest first. */
static int row_compare(const void *a, const void *b)
{
	const struct list_row *x = a, *y = b;

	return CMP(y->rss, x->rss) ?: CMP(x->info.pid, y->info.pid);
}

static const char *python_text(const struct list_row *row)
{
	return row->refused[0] ? "not supported" : row->version[0] ? row->version : "-";
}

static const char *age_text(char out[16], uint64_t ns)
{
	uint64_t seconds = ns / 1000000000u;

	if (seconds < 60)
		snprintf(out, 16, "%us", (unsigned int)seconds);
	else if (seconds < 3600)
		snprintf(out, 16, "%um", (unsigned int)(seconds / 60));
	else if (seconds < 48 * 3600)
		snprintf(out, 16, "%uh", (unsigned int)(seconds / 3600));
	else
		snprintf(out, 16, "%ud", (unsigned int)(seconds / 86400));
	return out;
}

/* A column as wide as its widest text. A name is not cut: the user may have to type it. */
struct column {
	const char *title;
	int is_left, width; /* width 0: it is left out */
};
enum {
	COLUMN_PID,
	COLUMN_PARENT,
	COLUMN_USER,
	COLUMN_RSS,
	COLUMN_AGE,
	COLUMN_PYTHON,
	COLUMN_CONTAINER,
	COLUMN_COVERAGE,
	COLUMNS
};
#define CELL_BYTES (4 * (CONTAINER_LABEL_SIZE + 16))

static void cell_text(const struct list_row *row, int column, char out[CELL_BYTES])
{
	char text[SIZE_TEXT_MAX];

	switch (column) {
	case COLUMN_PID:
		snprintf(out, CELL_BYTES, "%d", (int)row->info.pid);
		break;
	case COLUMN_PARENT:
		snprintf(out, CELL_BYTES, "%d", (int)row->info.ppid);
		break;
	case COLUMN_USER:
		text_escape(out, CELL_BYTES, row->user);
		break;
	case COLUMN_RSS:
		snprintf(out, CELL_BYTES, "%s", size_text(text, row->rss));
		break;
	case COLUMN_AGE:
		snprintf(out, CELL_BYTES, "%s", age_text(text, row->age_ns));
		break;
	case COLUMN_PYTHON:
		snprintf(out, CELL_BYTES, "%s", python_text(row));
		break;
	case COLUMN_CONTAINER:
		text_escape(out, CELL_BYTES, row->container[0] ? row->container : "-");
		break;
	default:
		snprintf(out, CELL_BYTES, "%s", row->coverage ? row->coverage : "-");
		break;
	}
}

static void cells_print(const struct list_row *row, struct column titles[COLUMNS])
{
	char cell[CELL_BYTES];

	for (int i = 0; i < COLUMNS; i++) {
		if (!titles[i].width)
			continue;
		if (row)
			cell_text(row, i, cell);
		printf("%*s ", titles[i].is_left ? -titles[i].width : titles[i].width,
		       row ? cell : titles[i].title);
	}
}

/* On a terminal (util/terminal.h). */
static void page_print(const struct list_run *list)
{
	static const char *const titles[COLUMNS] = {"PID", "?PARENT",  "?<USER",     "RSS",
						    "AGE", "?<PYTHON", "<CONTAINER", "<COVERAGE"};
	struct terminal terminal;
	char cell[CELL_BYTES];

	terminal_begin(&terminal, &stdout);
	for (int i = 0; i < COLUMNS; i++)
		printf("%s\t", titles[i]);
	puts("COMMAND");
	for (size_t i = 0; i < list->count; i++) {
		const struct list_row *row = &list->rows[i];

		for (int c = 0; c < COLUMNS; c++) {
			cell_text(row, c, cell);
			/* A column in which there is nothing is left out. */
			printf("%s\t", strcmp(cell, "-") != 0 ? cell : "");
		}
		text_print(stdout, row->info.command[0] ? row->info.command : row->info.name);
		putchar('\n');
	}
	if (list->count)
		printf("next: tracer leaks -p %d\n", (int)list->rows[0].info.pid);
	terminal_end(&terminal);
}

static void table_print(const struct list_run *list)
{
	struct column titles[COLUMNS] = {{"PID", 0, 7},       {"PARENT", 0, 7},  {"USER", 1, 4},
					 {"RSS", 0, 8},       {"AGE", 0, 3},     {"PYTHON", 1, 6},
					 {"CONTAINER", 1, 9}, {"COVERAGE", 1, 8}};
	char cell[CELL_BYTES], command[4 * sizeof(list->rows->info.command)];
	size_t contained = 0;

	for (size_t i = 0; i < list->count; i++) {
		contained += list->rows[i].container[0] != 0;
		for (int c = 0; c < COLUMNS; c++) {
			cell_text(&list->rows[i], c, cell);
			if ((int)strlen(cell) > titles[c].width)
				titles[c].width = (int)strlen(cell);
		}
	}
	if (!contained)
		titles[COLUMN_CONTAINER].width = 0;
	if (!list->coverage)
		titles[COLUMN_COVERAGE].width = 0;
	cells_print(NULL, titles);
	puts("COMMAND");
	for (size_t i = 0; i < list->count; i++) {
		const struct process_info *info = &list->rows[i].info;

		cells_print(&list->rows[i], titles);
		text_escape(command, sizeof(command),
			    info->command[0] ? info->command : info->name);
		puts(command);
	}
}

static void json_print(const struct list_run *list)
{
	struct json json = {.out = stdout};

	json_open(&json, NULL, '{');
	json_open(&json, "processes", '[');
	for (size_t i = 0; i < list->count; i++) {
		const struct list_row *row = &list->rows[i];

		json_open(&json, NULL, '{');
		json_signed(&json, "pid", row->info.pid);
		json_signed(&json, "parent", row->info.ppid);
		json_unsigned(&json, "uid", row->info.uid);
		json_text(&json, "user", row->user);
		json_unsigned(&json, "rss", row->rss);
		json_fixed(&json, "age", (double)row->age_ns / 1e9, 3);
		if (row->version[0])
			json_text(&json, "python", row->version);
		if (row->refused[0])
			json_text(&json, "refused", row->refused);
		if (row->container[0])
			json_text(&json, "container", row->container);
		if (row->coverage)
			json_text(&json, "coverage", row->coverage);
		json_text(&json, "name", row->info.name);
		json_text(&json, "command", row->info.command);
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_numbers(&json, {"others", list->all ? 0 : list->others},
		     {"hidden", list->hidden_count});
	json_end(&json);
}

/* What the list lacks. An empty list is an error if some processes could not be inspected. */
static int caveats_print(const struct list_run *list)
{
	char names[NAMED_MAX * 96] = "", name[4 * sizeof(list->hidden->name)];
	char more[48] = "", why[160];
	size_t used = 0, refused = 0;

	for (size_t i = 0; i < list->count; i++)
		if (list->rows[i].refused[0] && refused++ < NAMED_MAX)
			log_info("PID %d: %s", (int)list->rows[i].info.pid, list->rows[i].refused);
	if (refused > NAMED_MAX)
		log_info("%zu more are not supported", refused - NAMED_MAX);
	if (list->containers.caveat[0])
		log_info("containers: %s", list->containers.caveat);
	if (target_hidden_explain(why, sizeof(why)))
		log_info("%s: other users' processes are not in this list", why);
	if (list->others && !list->all)
		log_info("%zu processes without Python are not listed: they are traced at malloc; "
			 "--all lists them",
			 list->others);
	if (list->coverage && list->count)
		log_info(
			"COVERAGE is the share of a process's allocations that a trace sees: full, "
			"none, or measured during a trace, because the allocator is inlined");
	if (!list->hidden_count)
		return EXIT_DONE;
	for (size_t i = 0; i < list->hidden_count && i < NAMED_MAX; i++) {
		text_escape(name, sizeof(name), list->hidden[i].name);
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%sPID %d (%.64s)",
					 i ? ", " : "", (int)list->hidden[i].pid, name);
	}
	if (list->hidden_count > NAMED_MAX)
		snprintf(more, sizeof(more), " and %zu more", list->hidden_count - NAMED_MAX);
	if (list->count) {
		log_info("could not be inspected: %s%s; %s", names, more, cli_remedy(-EPERM));
		return EXIT_DONE;
	}
	error_print(error_set(-EPERM, "nothing is listed, and %s%s could not be inspected", names,
			      more),
		    cli_remedy(-EPERM), "list");
	return EXIT_FAILED;
}

static int list_read(struct list_run *list)
{
	size_t count = 0;
	pid_t *pids = NULL;
	int err = runtime_files_new(&list->files) ?: process_list(&pids, &count), containers;

	if (!err && (containers = container_list_read(&list->containers)))
		error_print(containers, NULL, "containers");
	for (size_t i = 0; i < count && !err; i++)
		if (pids[i] != getpid())
			err = process_add(list, pids[i]);
	free(pids);
	if (list->count)
		qsort(list->rows, list->count, sizeof(*list->rows), row_compare);
	return err;
}

enum { KEY_FORMAT = 0x300 };

static const struct argp_option options[] = {
	{"all", 'a', NULL, 0, "also processes without Python, which can be traced at malloc", 0},
	{"format", KEY_FORMAT, "FORMAT", 0, "text (default) or json", 0},
	{"verbose", 'v', NULL, 0, "also the share of its allocations that a trace sees", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	static const struct cli_word formats[] = {{"text", 0}, {"json", 1}};
	struct list_run *list = state->input;

	switch (key) {
	case 'a':
		list->all = 1;
		return 0;
	case KEY_FORMAT:
		return CLI_WORD("--format", arg, formats, list->json);
	case 'v':
		list->coverage = 1;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int cli_list(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "Processes that can be traced, the largest first.",
	};
	struct list_run list = {0};
	int status = cli_parse(&argp, argc, argv, 0, &list);

	if (status)
		return status < 0 ? EXIT_DONE : status;
	int err = list_read(&list);
	if (err) {
		error_print(err, NULL, "list");
		status = EXIT_FAILED;
	} else {
		if (list.json)
			json_print(&list);
		else if (terminal_width(stdout))
			page_print(&list);
		else
			table_print(&list);
		status = caveats_print(&list);
	}
	container_list_free(&list.containers);
	runtime_files_free(list.files);
	free(list.rows);
	free(list.hidden);
	return status;
}

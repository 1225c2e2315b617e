/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/agent/figures.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/agent/board.h"
#include "proc/container/cgroup.h"
#include "proc/container/memory_usage.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/strings.h"
#include "util/text.h"

#define STATUS_BYTES  16384u
#define COMMANDS_NS   100000000ull /* for the command lines of all processes */
#define COMMAND_BYTES 256u         /* of a command line, as tracer list reads it */
#define EVIDENCE_MAX  10000u       /* entries of the folder that are read */
#define ELLIPSIS      "\xe2\x80\xa6"
#define ELLIPSIS_SIZE (sizeof(ELLIPSIS) - 1)

const char *figure_kind_name(enum figure_kind kind)
{
	static const char *const names[] = {"anon", "file", "shmem", "swap"};

	return names[kind];
}

static bool begins_character(char byte)
{
	return ((unsigned char)byte & 0xc0) != 0x80;
}

/* Cuts an escaped text. */
static void text_cut(const char *text, bool tail, char out[FIGURE_TEXT + 1])
{
	size_t bytes = strlen(text), kept = FIGURE_TEXT - ELLIPSIS_SIZE;

	if (bytes <= FIGURE_TEXT) {
		memcpy(out, text, bytes + 1);
	} else if (tail) {
		const char *at = text + bytes - kept;

		while (!begins_character(*at))
			at++;
		snprintf(out, FIGURE_TEXT + 1, ELLIPSIS "%s", at);
	} else {
		while (!begins_character(text[kept]))
			kept--;
		snprintf(out, FIGURE_TEXT + 1, "%.*s" ELLIPSIS, (int)kept, text);
	}
}

void figure_text(const char *text, bool tail, char out[FIGURE_TEXT + 1])
{
	size_t bytes = 4 * strlen(text) + 1;
	_cleanup_free_ char *escaped = malloc(bytes);

	out[0] = '\0';
	if (!escaped)
		return;
	text_escape(escaped, bytes, text);
	text_cut(escaped, tail, out);
}

/* --- processes -------------------------------------------------------------------------------- */

/* The number of kB behind "NAME:" in a status file, in bytes. */
static uint64_t status_bytes(const char *text, const char *name)
{
	size_t size = strlen(name);

	for (const char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
		if (!strncmp(at, name, size) && at[size] == ':')
			return strtoull(at + size + 1, NULL, 10) * 1024;
	return 0;
}

/* 0; 1: it has ended, or has no memory. */
static int status_read(struct figure_process *out)
{
	static const char *const names[] = {"RssAnon", "RssFile", "RssShmem", "VmSwap"};
	_cleanup_(buffer_free) struct buffer text = {0};
	char *status;

	if (process_file_read(out->pid, "status", STATUS_BYTES, &text))
		return 1;
	status = (char *)text.data;
	if (!strstr(status, "\nRssAnon:"))
		return 1;
	for (size_t i = 0; i < FIGURE_KINDS; i++)
		out->bytes[i] = status_bytes(status, names[i]);
	return 0;
}

/* Its name as it is: what status has is escaped by the kernel's own rules. */
static void name_read(struct figure_process *out)
{
	_cleanup_(buffer_free) struct buffer name = {0};

	if (process_file_read(out->pid, "comm", COMMAND_BYTES, &name) || !name.size)
		return;
	name.data[name.size - 1] = '\0'; /* a line's end */
	figure_text((const char *)name.data, false, out->name);
}

static void command_read(struct figure_process *out)
{
	_cleanup_(buffer_free) struct buffer command = {0};

	if (process_file_read(out->pid, "cmdline", COMMAND_BYTES, &command))
		return;
	while (command.size && !command.data[command.size - 1])
		command.size--;
	for (size_t i = 0; i < command.size; i++)
		command.data[i] = command.data[i] ?: ' ';
	if (command.size)
		figure_text((const char *)command.data, false, out->command);
}

void figures_commands_read(struct figures *figures)
{
	uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + COMMANDS_NS;

	/* The kernel reads them from the processes' memory, which may take long. */
	for (size_t i = 0; i < figures->process_count && clock_ns(CLOCK_MONOTONIC) < until_ns; i++)
		if (!figures->processes[i].command[0])
			command_read(&figures->processes[i]);
}

/* What processes have in common: a cgroup's figures take longer to read than a process's. */
struct figure_shared {
	char container[FIGURE_TEXT + 1], service[FIGURE_TEXT + 1];
	char namespace[FIGURE_TEXT + 1], pod[FIGURE_TEXT + 1];
};

/* Of several processes in one cgroup, it is there once. 0, -ENOMEM. */
static int cgroup_add(struct figures *figures, const struct memory_usage *usage,
		      const struct figure_shared *shared)
{
	struct figure_cgroup cgroup = {
		.used = usage->used, .file = usage->file, .limit = usage->limit};

	figure_text(usage->path, true, cgroup.path);
	memcpy(cgroup.container, shared->container, sizeof(cgroup.container));
	memcpy(cgroup.namespace, shared->namespace, sizeof(cgroup.namespace));
	memcpy(cgroup.pod, shared->pod, sizeof(cgroup.pod));
	for (size_t i = 0; i < figures->cgroup_count; i++)
		if (!strcmp(figures->cgroups[i].path, cgroup.path) &&
		    !strcmp(figures->cgroups[i].container, cgroup.container))
			return 0;
	int err = ARRAY_GROW(figures->cgroups, figures->cgroup_capacity, figures->cgroup_count);
	if (!err)
		figures->cgroups[figures->cgroup_count++] = cgroup;
	return err;
}

void figure_service(const char *path, char out[FIGURE_TEXT + 1])
{
	const char *name = strrchr(path, '/');
	size_t bytes = name ? strlen(name) : 0;

	if (bytes > 8 && !strcmp(name + bytes - 8, ".service"))
		figure_text(name + 1, false, out);
}

static void traced_take(struct figure_process *process, const struct watch_process *traced)
{
	process->is_traced = true;
	process->layer = traced->info.layer;
	process->flags = traced->info.flags;
	process->mode = traced->info.mode;
	process->python_version = traced->info.python_version;
	process->live_size = traced->size;
	process->live_count = traced->count;
	process->allocated = traced->fresh;
	process->rate = traced->info.rate;
	process->collections = traced->info.collections;
}

struct figure_reading {
	struct figures *figures;
	const struct board *board;
	struct strings *texts; /* of /proc/PID/cgroup */
	struct figure_shared *shared;
	size_t shared_count, shared_capacity;
};

static int shared_add(struct figure_reading *reading, pid_t pid)
{
	struct figure_shared shared = {0};
	struct board_container container;
	struct memory_usage usage;
	int err = ARRAY_GROW(reading->shared, reading->shared_capacity, reading->shared_count);

	if (err)
		return err;
	board_find(reading->board, pid, &container);
	memcpy(shared.container, container.label, sizeof(shared.container));
	memcpy(shared.namespace, container.namespace, sizeof(shared.namespace));
	memcpy(shared.pod, container.pod, sizeof(shared.pod));
	if (!memory_usage_read(pid, &usage)) {
		figure_service(usage.path, shared.service);
		err = cgroup_add(reading->figures, &usage, &shared);
	}
	reading->shared[reading->shared_count++] = shared;
	return err;
}

/* 0, -ENOMEM; 1: the process has ended. */
static int shared_find(struct figure_reading *reading, pid_t pid, const struct figure_shared **out)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	uint32_t index;
	int err;

	if (process_file_read(pid, "cgroup", CGROUP_TEXT_MAX, &text))
		return 1;
	err = strings_intern(reading->texts, (char *)text.data, strlen((char *)text.data), &index);
	/* Texts are numbered as they come. */
	if (!err && index == reading->shared_count)
		err = shared_add(reading, pid);
	if (!err)
		*out = &reading->shared[index];
	return err;
}

static int figure_process_add(struct figure_reading *reading, pid_t pid,
			      const struct watch_process *traced)
{
	struct figure_process process = {.pid = pid};
	struct figures *figures = reading->figures;
	const struct figure_shared *shared;

	if (status_read(&process))
		return 0;
	name_read(&process);
	if (figures->process_count == FIGURE_PROCESSES) {
		figures->left_out++;
		return 0;
	}
	int err = shared_find(reading, pid, &shared);
	if (err)
		return err < 0 ? err : 0;
	memcpy(process.container, shared->container, sizeof(process.container));
	memcpy(process.service, shared->service, sizeof(process.service));
	memcpy(process.namespace, shared->namespace, sizeof(process.namespace));
	memcpy(process.pod, shared->pod, sizeof(process.pod));
	if (traced)
		traced_take(&process, traced);
	err = ARRAY_GROW(figures->processes, figures->process_capacity, figures->process_count);
	if (!err)
		figures->processes[figures->process_count++] = process;
	return err;
}

/*
 * Those that are traced, then what else is a target. If every process is, those that are not traced
 * have no Python.
 */
static int processes_add(struct figure_reading *reading, const struct session_view *view,
			 struct target_set *targets)
{
	_cleanup_free_ pid_t *pids = NULL;
	size_t count = 0;
	int err = 0;

	for (size_t i = 0; !err && i < view->model.process_count; i++)
		err = figure_process_add(reading, (pid_t)view->model.processes[i].info.pid,
					 &view->model.processes[i]);
	if (err || !targets || (view->session && target_set_is_all(targets)))
		return err;
	/* A container that is gone has no processes. */
	if (target_set_list(targets, &pids, &count))
		return 0;
	for (size_t i = 0; !err && i < count; i++)
		if (id_map_find(&view->model.pids, (uint32_t)pids[i]) == ID_MAP_NONE)
			err = figure_process_add(reading, pids[i], NULL);
	return err;
}

static int processes_read(struct figures *figures, const struct session_view *view,
			  struct target_set *targets, const struct board *board)
{
	struct figure_reading reading = {.figures = figures, .board = board};
	int err = ARRAY_GROW(reading.shared, reading.shared_capacity, 0)
			  ?: strings_new(&reading.texts);

	if (err) {
		free(reading.shared);
		return err;
	}
	reading.shared[reading.shared_count++] = (struct figure_shared){0}; /* of the empty text */
	err = processes_add(&reading, view, targets);
	strings_free(reading.texts);
	free(reading.shared);
	return err;
}

/* --- lines ------------------------------------------------------------------------------------ */

static int line_add(struct figures *figures, struct session_view *view,
		    const struct watch_group *group)
{
	_cleanup_free_ char *text = NULL;
	struct figure_line line = {.size = group->size, .count = group->count};
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return -ENOMEM;
	watch_group_label(&view->groups, &view->model, group, out);
	if (fclose(out))
		return -ENOMEM;
	text_cut(text, true, line.text);
	/* Two names may look the same once they are escaped and cut. */
	for (size_t i = 0; i < figures->line_count; i++)
		if (!strcmp(figures->lines[i].text, line.text)) {
			figures->lines[i].size += line.size;
			figures->lines[i].count += line.count;
			return 0;
		}
	int err = ARRAY_GROW(figures->lines, figures->line_capacity, figures->line_count);
	if (!err)
		figures->lines[figures->line_count++] = line;
	return err;
}

static int lines_read(struct figures *figures, struct session_view *view, unsigned int top)
{
	_cleanup_free_ uint32_t *rows = calloc(top + 1ul, sizeof(*rows));
	double size = 0, count = 0;
	int err = 0,
	    found = rows ? watch_groups_rows(&view->groups, &view->model, top, rows) : -ENOMEM;

	for (int i = 0; !err && i < found; i++) {
		const struct watch_group *group = &view->groups.items[rows[i]];

		size += group->size;
		count += group->count;
		err = line_add(figures, view, group);
	}
	if (found < 0)
		return found;
	/* A difference of large sums may come to less than nothing. */
	figures->other_size = view->model.all.size > size ? view->model.all.size - size : 0;
	figures->other_count = view->model.all.count > count ? view->model.all.count - count : 0;
	figures->other_lines =
		view->groups.rows > (size_t)found ? view->groups.rows - (size_t)found : 0;
	return err;
}

/* --- the agent -------------------------------------------------------------------------------- */

/*
 * Behind the name in /proc/PID/stat, so many spaces come before utime, stime and those of children
 * that have ended.
 */
#define STAT_TIMES 12u

static void own_read(struct figures *figures, enum figure_own which, pid_t pid)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	unsigned long long ticks = 0;
	char *at;

	if (!pid || process_file_read(pid, "stat", STATUS_BYTES, &text))
		return;
	at = strrchr((char *)text.data, ')');
	for (size_t i = 0; at && i < STAT_TIMES; i++)
		at = strchr(at + 1, ' ');
	for (size_t i = 0; at && i < 4; i++)
		ticks += strtoull(at, &at, 10);
	figures->own[which].cpu_seconds = (double)ticks / (double)sysconf(_SC_CLK_TCK);
	process_rss_read(pid, &figures->own[which].resident, NULL);
}

static void evidence_read(struct figures *figures, const char *path)
{
	_cleanup_(closedirp) DIR *folder = path ? opendir(path) : NULL;
	const struct dirent *entry;
	struct stat st;

	figures->has_evidence = path != NULL;
	for (size_t i = 0; folder && i < EVIDENCE_MAX && (entry = readdir(folder)); i++) {
		const char *dot = strrchr(entry->d_name, '.');

		if (!dot || strcmp(dot, ".evidence") != 0 || entry->d_name[0] == '.' ||
		    fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
		    !S_ISREG(st.st_mode))
			continue;
		figures->evidence_count++;
		if ((double)st.st_mtime > figures->evidence_newest)
			figures->evidence_newest = (double)st.st_mtime;
	}
}

int figures_read(struct figures *figures, struct session_view *view, const struct web_opts *opts,
		 pid_t parent)
{
	uint64_t errors[2] = {view->errors, figures->errors[1]};

	figures_free(figures);
	memcpy(figures->errors, errors, sizeof(errors));
	figures->traces = opts->session != 0;
	figures->has_session = view->session && view->answers;
	figures->lost_events = view->model.now.lost_events;
	figures->machine_took = view->model.now.machine_took;
	figures->machine_limit = view->model.now.machine_limit;
	figures->machine_part = view->model.now.machine_part;
	evidence_read(figures, opts->evidence);
	own_read(figures, OWN_AGENT, parent);
	own_read(figures, OWN_SESSION, opts->session);
	own_read(figures, OWN_WEB, getpid());
	if (opts->push)
		own_read(figures, OWN_PUSH, (pid_t)opts->push->pid);
	figures->push = opts->push;
	return processes_read(figures, view, opts->targets, opts->board)
		       ?: lines_read(figures, view, opts->top);
}

void figures_free(struct figures *figures)
{
	free(figures->processes);
	free(figures->cgroups);
	free(figures->lines);
	*figures = (struct figures){0};
}

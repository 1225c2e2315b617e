/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/serve_compare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/export/exporter.h"
#include "report/report_processes.h"
#include "snapshot/group/thread_shares.h"
#include "snapshot/merge.h"
#include "util/cleanup.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/json.h"

#define PARTS_MAX 1000u /* that are listed of a kind: those that hold most */

int serve_word_find(const char *argument, const struct cli_word *words, size_t count,
		    const char *text, int *value)
{
	char names[CLI_WORD_NAMES];

	return !text || cli_word_find(words, count, text, value, names)
		       ? 0
		       : error_set(-EINVAL, "%s is to be %s", argument, names);
}

/* --- parts ------------------------------------------------------------------------------------ */

/* The kinds of parts, as parts are named. */
static const struct {
	const char *name;
	enum group_by by;
} kinds[] = {{"process", GROUP_PROCESS},
	     {"thread", GROUP_THREAD},
	     {"task", GROUP_TASK},
	     {"value", GROUP_LABEL}};

static struct thread_question question_of(const struct snapshot *snapshot, enum group_by by)
{
	return (struct thread_question){.by = by, .label = snapshot->meta.label};
}

/* name: for people; the page shows what is not known in its own words. */
static void part_json(struct json *json, size_t source, const char *kind, uint64_t number,
		      const char *name, uint32_t pid, uint64_t size, uint64_t count)
{
	char part[64];

	snprintf(part, sizeof(part), "%zu/%s/%llu", source, kind, (unsigned long long)number);
	json_open(json, NULL, '{');
	json_text(json, "part", part);
	json_text(json, "kind", kind);
	json_text(json, "name", name);
	json_numbers(json, {"pid", pid}, {"size", size}, {"count", count});
	json_close(json, '}');
}

static int processes_json(struct json *json, const struct snapshot *snapshot, size_t source)
{
	struct process_sums *sums = NULL;
	int err = snapshot->process_count ? process_sums(snapshot, NULL, &sums) : 0;

	for (size_t i = 0; !err && i < snapshot->process_count && i < PARTS_MAX; i++)
		part_json(json, source, "process", sums[i].process->pid, sums[i].process->name,
			  sums[i].process->pid, sums[i].size, sums[i].count);
	free(sums);
	return err;
}

/* Threads, tasks or values, if there are several. */
static int rows_json(struct json *json, const struct snapshot *snapshot, size_t source,
		     const char *kind, enum group_by by)
{
	const struct thread_question question = question_of(snapshot, by);
	struct thread_rows rows;
	int err = thread_shares_rows(snapshot, &question, &rows);

	if (err) /* it does not tell them */
		return err == -EINVAL ? 0 : err;
	for (size_t i = 0; rows.count > 1 && i < rows.count && i < PARTS_MAX; i++)
		part_json(json, source, kind, by == GROUP_THREAD ? rows.items[i].tid : i,
			  rows.items[i].name, rows.items[i].pid, rows.items[i].sums.size,
			  rows.items[i].sums.count);
	thread_rows_free(&rows);
	return 0;
}

static bool is_told(const struct snapshot *snapshot, enum group_by by)
{
	return by == GROUP_THREAD || !snapshot->meta.label[0] == (by == GROUP_TASK);
}

int serve_parts_json(const struct serve_source *source, size_t number, struct json *json)
{
	const struct snapshot *snapshot = source->snapshot;
	char part[32];
	int err = 0;

	json_open(json, "parts", '[');
	if (snapshot) {
		snprintf(part, sizeof(part), "%zu", number);
		json_open(json, NULL, '{');
		json_text(json, "part", part);
		json_text(json, "kind", "snapshot");
		json_text(json, "name", source->name);
		json_close(json, '}');
		err = processes_json(json, snapshot, number);
		for (size_t i = 1; !err && i < ARRAY_SIZE(kinds); i++)
			if (is_told(snapshot, kinds[i].by))
				err = rows_json(json, snapshot, number, kinds[i].name, kinds[i].by);
	}
	json_close(json, ']');
	return err;
}

/* --- sides ------------------------------------------------------------------------------------ */

/* One of the two that are compared. Zero-initialise; side_close() releases. */
struct compared {
	struct snapshot snapshot; /* borrows from the source, or from: */
	struct snapshot *picked;
	struct snapshot_trace *traces;
	char *name; /* for people */
};

static void side_close(struct compared *side)
{
	snapshot_free(side->picked);
	free(side->traces);
	free(side->name);
}

static int name_set(struct compared *side, const struct serve_source *source, const char *kind,
		    const char *name, uint64_t number)
{
	if (asprintf(&side->name, kind ? "%s, %s %s (%llu)" : "%s", source->name, kind, name,
		     (unsigned long long)number) < 0) {
		side->name = NULL;
		return -ENOMEM;
	}
	return 0;
}

static int process_open(struct compared *side, const struct serve_source *source, uint64_t pid)
{
	const uint32_t pids[] = {(uint32_t)pid};
	int err = snapshot_pick(source->snapshot, pids, 1, &side->picked);

	if (err)
		return err == -ESRCH ? -ENOENT : err;
	side->snapshot = *side->picked;
	return name_set(side, source, "process", side->snapshot.meta.name, pid);
}

/* The row that a part means: the thread's, or by number. NULL: there is none. */
static const struct thread_row *row_find(const struct thread_rows *rows, uint64_t number)
{
	if (rows->by_task)
		return number < rows->count ? &rows->items[number] : NULL;
	for (size_t i = 0; i < rows->count; i++)
		if (rows->items[i].tid == number)
			return &rows->items[i];
	return NULL;
}

static int row_open(struct compared *side, const struct serve_source *source, size_t kind,
		    uint64_t number)
{
	const struct thread_question question = question_of(source->snapshot, kinds[kind].by);
	struct thread_rows rows;
	int err = thread_shares_rows(source->snapshot, &question, &rows);

	if (err)
		return err;
	const struct thread_row *row = row_find(&rows, number);
	err = !row ? error_set(-ENOENT, "the snapshot has no such %s", kinds[kind].name)
		   : thread_row_snapshot(&rows, row, &side->snapshot)
			     ?: name_set(side, source, kinds[kind].name,
					 row->name[0] ? row->name : "(no name)", number);
	side->traces = row && !err ? side->snapshot.traces : NULL;
	thread_rows_free(&rows);
	return err;
}

static int part_open(struct compared *side, const struct serve_source *source, const char *part)
{
	const char *slash = strchr(part, '/');
	uint64_t number;

	for (size_t i = 0; slash && i < ARRAY_SIZE(kinds); i++)
		if (strlen(kinds[i].name) == (size_t)(slash - part) &&
		    !strncmp(kinds[i].name, part, (size_t)(slash - part)) &&
		    !cli_parse_number(slash + 1, 0, UINT32_MAX, &number))
			return kinds[i].by == GROUP_PROCESS ? process_open(side, source, number)
							    : row_open(side, source, i, number);
	return error_set(-EINVAL, "/api/parts lists the parts of a snapshot");
}

/*
 * The source whose number the text begins with; *part: what follows a slash; NULL: nothing does.
 * 0; -EINVAL, -ENOENT (error_set).
 */
static int source_find(const struct serve_comparison *comparison, const char *text,
		       const struct serve_source **out, const char **part)
{
	char *end;

	if (!text || text[0] < '0' || text[0] > '9')
		return error_set(-EINVAL, "a and b are to be what is compared");
	unsigned long number = strtoul(text, &end, 10);
	if (*end && *end != '/')
		return error_set(-EINVAL, "a and b are to be what is compared");
	if (number >= comparison->count)
		return error_set(-ENOENT, "/api/sources lists the sources");
	*out = &comparison->sources[number];
	*part = *end ? end + 1 : NULL;
	return 0;
}

/* 0; -EINVAL, -ENOENT (error_set), -ENOMEM. side_close() releases it in any case. */
static int side_open(struct compared *side, const struct serve_comparison *comparison,
		     const char *text)
{
	const struct serve_source *source;
	const char *part;
	int err = source_find(comparison, text, &source, &part);

	if (err)
		return err;
	if (!source->snapshot)
		return error_set(-ENOENT, "this source is no snapshot");
	if (part)
		return part_open(side, source, part);
	side->snapshot = *source->snapshot;
	return name_set(side, source, NULL, NULL, 0);
}

/* --- snapshots -------------------------------------------------------------------------------- */

/* Opens both sides, old and new. As side_open(). */
static int sides_open(struct compared sides[2], const struct serve_comparison *comparison)
{
	if (comparison->c)
		return error_set(-EINVAL, "c is of heaps");
	return side_open(&sides[0], comparison, comparison->a)
		       ?: side_open(&sides[1], comparison, comparison->b);
}

static int diff_print(const struct compared sides[2], enum group_by by, uint32_t top, FILE *out)
{
	struct report_choice choice;

	report_choice_default(&choice);
	choice.opts.by = choice.group = by;
	choice.opts.top = top;
	choice.opts.old = &sides[0].snapshot;
	choice.opts.old_name = sides[0].name;
	choice.opts.name = sides[1].name;
	choice.format = FORMAT_JSON;
	choice.out = out;
	int status = cli_report_print(&sides[1].snapshot, &choice);
	report_choice_free(&choice);
	return status == EXIT_DONE ? 0 : -EIO;
}

int serve_compare_json(const struct serve_comparison *comparison, FILE *out)
{
	static const struct cli_word words[] = {{"lineno", GROUP_LINENO},
						{"function", GROUP_FUNCTION},
						{"filename", GROUP_FILENAME}};
	struct compared sides[2] = {0};
	int by = GROUP_LINENO,
	    err = serve_word_find("by", words, ARRAY_SIZE(words), comparison->by, &by)
			  ?: sides_open(sides, comparison);

	err = err ?: diff_print(sides, (enum group_by)by, comparison->top, out);
	side_close(&sides[0]);
	side_close(&sides[1]);
	return err;
}

/* As tracer export --format html NEW OLD does it. */
static int page_write(const struct snapshot *snapshot, const struct snapshot *old,
		      const struct export_opts *names, struct outfile *file)
{
	const struct view_choice view = {0};
	struct export_opts opts = *names;
	struct shown shown = {0}, shown_old = {0};
	int err = view_apply(&view, snapshot, &shown);

	if (!err && old)
		err = view_apply(&view, old, &shown_old);
	opts.shown = &shown.snapshot;
	opts.old = old ? &shown_old.snapshot : NULL;
	err = err ?: exporter_write(&export_html, &shown.snapshot, NULL, &opts, file);
	shown_free(&shown);
	shown_free(&shown_old);
	return err;
}

int serve_page_take(int fd, struct buffer *page)
{
	struct stat st;
	int err = fstat(fd, &st) ? error_errno() : buffer_reserve(page, (size_t)st.st_size);

	if (err)
		return err;
	while (page->size < (size_t)st.st_size) {
		ssize_t got = pread(fd, page->data + page->size, (size_t)st.st_size - page->size,
				    (off_t)page->size);

		if (got <= 0)
			return got ? error_errno() : -EIO;
		page->size += (size_t)got;
	}
	return 0;
}

int serve_page(const struct snapshot *snapshot, const char *name, const struct snapshot *old,
	       const char *old_name, struct buffer *page)
{
	_cleanup_close_ int fd = memfd_create("tracer-page", MFD_CLOEXEC);
	const struct export_opts names = {.name = name, .old_name = old_name};
	struct outfile *file = NULL;
	int err = fd < 0 ? error_errno() : outfile_on(&file, fd, name);

	return err ?: outfile_end(file, page_write(snapshot, old, &names, file))
			      ?: serve_page_take(fd, page);
}

int serve_compare_page(const struct serve_comparison *comparison, FILE *out)
{
	struct compared sides[2] = {0};
	struct buffer page = {0};
	int err = sides_open(sides, comparison)
			  ?: serve_page(&sides[1].snapshot, sides[1].name, &sides[0].snapshot,
					sides[0].name, &page);

	if (!err && fwrite(page.data, 1, page.size, out) != page.size)
		err = -ENOMEM;
	buffer_free(&page);
	side_close(&sides[0]);
	side_close(&sides[1]);
	return err;
}

/* --- heaps ------------------------------------------------------------------------------------ */

static int heap_of(const struct serve_comparison *comparison, const char *text,
		   const struct heap_graph **heap)
{
	const struct serve_source *source;
	const char *part;
	int err = source_find(comparison, text, &source, &part);

	if (err)
		return err;
	if (part || !source->is_heap)
		return error_set(-ENOENT, "this source is no heap");
	*heap = &source->heap;
	return 0;
}

int serve_compare_heaps(const struct serve_comparison *comparison, FILE *out)
{
	static const struct cli_word words[] = {
		{"type", BY_TYPE}, {"module", BY_MODULE}, {"path", BY_PATH}};
	const struct heap_graph *heaps[3];
	struct json json = {.out = out};
	struct heap_choice choice = {.json = &json};
	int by = BY_TYPE, err = serve_word_find("by", words, ARRAY_SIZE(words), comparison->by, &by)
					?: heap_of(comparison, comparison->a, &heaps[0])
					?: heap_of(comparison, comparison->b, &heaps[1]);

	if (!err && comparison->c)
		err = heap_of(comparison, comparison->c, &heaps[2]);
	if (err)
		return err;
	report_choice_default(&choice.output);
	choice.output.opts.top = comparison->top;
	choice.output.format = FORMAT_JSON;
	choice.by = (enum heap_by)by;
	return heap_diff_graphs(&choice, heaps, comparison->c ? 3 : 2);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/evidence/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmd/cli.h"
#include "cmd/heap/heap_leaks.h"
#include "cmd/options/options.h"
#include "proc/container/memory_files.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "report/tracemalloc/snapshot_file.h"
#include "util/archive.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/html.h"
#include "util/json.h"
#include "util/size.h"
#include "util/stream.h"
#include "util/terminal.h"
#include "util/text.h"

#define NS            1e9
#define LINE_MOST     65536u     /* bytes of a line of a member, or of a part of it */
#define TOP           3          /* holders that grow, of the report */
#define WIDTH         80u        /* columns */
#define FACTS_MOST    (4u << 20) /* bytes of the facts that are read, */
#define FACT_TIME_MAX 1e11       /* and of a time in them: of the year 5138 */
#define ANSWER_S      120        /* a question about a heap is given up after so many seconds */
#define SNAPSHOT_S    20         /* the same for a session's snapshot */

/* The copies by their age, the last one with a name of its own: the one that is read. */
static const char *dump_name(const struct suspect *suspect, unsigned int copy)
{
	static const char *const names[] = {"heap-1.dump", "heap-2.dump"};

	return copy + 1 == suspect->count ? "heap.dump" : names[copy];
}

/* --- evidence.json ---------------------------------------------------------------------------- */

/* Words that end with a NUL. */
static void words_json(struct json *json, const char *key, const struct buffer *words)
{
	json_open(json, key, '[');
	for (size_t at = 0; at < words->size;) {
		const char *word = (const char *)words->data + at;

		json_text(json, NULL, word);
		at += strlen(word) + 1;
	}
	json_close(json, ']');
}

/* A file of "name 123" lines. */
static void counts_json(struct json *json, const char *key, const char *directory, const char *name)
{
	char text[MEMORY_FILE_BYTES], *line, *next = text;

	if (!memory_text_read(directory, name, text, sizeof(text)))
		return;
	json_open(json, key, '{');
	while ((line = strsep(&next, "\n"))) {
		char *value = strchr(line, ' ');

		if (!value)
			continue;
		*value = '\0';
		json_unsigned(json, line, strtoull(value + 1, NULL, 10));
	}
	json_close(json, '}');
}

static void copies_json(struct json *json, const struct bundle *bundle)
{
	const struct suspect *suspect = bundle->suspect;

	json_open(json, "copies", '[');
	for (unsigned int i = 0; i < suspect->count; i++) {
		const struct suspect_copy *copy = &suspect->copies[i];

		json_open(json, NULL, '{');
		json_text(json, "file", dump_name(suspect, i));
		json_fixed(json, "time", (double)copy->time_ns / NS, 3);
		json_unsigned(json, "rss", copy->rss);
		json_fixed(json, "share", copy->share, 4);
		json_bool(json, "whole", !copy->cut);
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void facts_json(FILE *out, const struct bundle *bundle)
{
	const struct suspect *suspect = bundle->suspect;
	const char *directory = memory_watch_directory(bundle->watch);
	struct json json = {.out = out};

	json_open(&json, NULL, '{');
	json_unsigned(&json, "format", 1);
	json_text(&json, "reason", bundle->reason == BUNDLE_OOM ? "oom" : "memory");
	if (bundle->reason == BUNDLE_MEMORY) {
		json_text(&json, "threshold", bundle->trigger->text);
		json_unsigned(&json, "rss", bundle->rss);
	}
	json_fixed(&json, "time", (double)bundle->time_ns / NS, 3);
	json_signed(&json, "pid", suspect->pid);
	json_text(&json, "process", suspect->name);
	json_bool(&json, "ended", suspect->ended);
	words_json(&json, "command", &suspect->command);
	words_json(&json, "environment", &suspect->names);
	json_open(&json, "limit", '{');
	json_text(&json, "where", bundle->state->where);
	json_numbers(&json, {"bytes", bundle->state->limit}, {"used", bundle->state->used},
		     {"kills", bundle->state->kills});
	json_close(&json, '}');
	json_open(&json, "cgroup", '{');
	json_text(&json, "path", memory_watch_cgroup(bundle->watch));
	if (directory) {
		counts_json(&json, "events", directory, "memory.events");
		counts_json(&json, "stat", directory, "memory.stat");
	}
	json_close(&json, '}');
	copies_json(&json, bundle);
	if (suspect->reason[0])
		json_text(&json, "heap_reason", suspect->reason);
	if (suspect->memory_time_ns)
		json_fixed(&json, "memory_time", (double)suspect->memory_time_ns / NS, 3);
	json_end(&json);
}

/* --- the report ------------------------------------------------------------------------------- */

/* The command line as one line of the report. The whole of it is in evidence.json. */
static void command_print(const struct buffer *command)
{
	char text[WIDTH + 1], line[4 * WIDTH + 1];
	size_t bytes = command->size < WIDTH ? command->size : WIDTH;

	/* Each argument ends with a NUL. */
	while (bytes && !command->data[bytes - 1])
		bytes--;
	if (!bytes)
		return;
	memcpy(text, command->data, bytes);
	for (size_t i = 0; i < bytes; i++)
		text[i] = text[i] ? text[i] : ' ';
	text[bytes] = '\0';
	size_t room = WIDTH - strlen("Command:  ...");
	bool is_cut = text_escape(line, sizeof(line), text) > room || command->size > WIDTH;
	if (is_cut)
		text_escape(line, room + 1, text);
	printf("Command: %s%s\n", line, is_cut ? " ..." : "");
}

/* How long before the end something was read: "1.5 s before", "3.0 s after" */
static void age_print(const struct bundle *bundle, uint64_t time_ns)
{
	double seconds = ((double)bundle->time_ns - (double)time_ns) / NS;

	printf("%.1f s %s", fabs(seconds), seconds < 0 ? "after" : "before");
}

/* The newest copy whose parts fit together, of which what holds most is told; else the newest. */
static unsigned int held_copy(const struct suspect *suspect)
{
	unsigned int copy = suspect->count;

	while (copy && suspect->copies[copy - 1].cut)
		copy--;
	return (copy ?: suspect->count) - 1;
}

static void copies_print(const struct bundle *bundle)
{
	const struct suspect *suspect = bundle->suspect;
	const struct suspect_copy *last = &suspect->copies[suspect->count - 1];

	if (suspect->count) {
		fputs("Its heap as of ", stdout);
		age_print(bundle, last->time_ns);
		printf(", at RSS %s; %u cop%s of it\n", SIZE_TEXT(last->rss), suspect->count,
		       suspect->count > 1 ? "ies" : "y");
		if (last->cut)
			puts("It ended or changed meanwhile: parts of it do not fit together");
		if (held_copy(suspect) + 1 < suspect->count) {
			fputs("What holds most is of a copy before, as of ", stdout);
			age_print(bundle, suspect->copies[held_copy(suspect)].time_ns);
			putchar('\n');
		}
	}
	if (suspect->reason[0]) {
		printf("Its heap was not copied%s: ", suspect->count ? " later" : "");
		text_print(stdout, suspect->reason);
		putchar('\n');
	} else if (!suspect->count) {
		puts("Its heap was not copied: it was killed before that");
	}
}

static void reached_print(const struct bundle *bundle)
{
	static const char *const what[TRIGGER_KINDS] = {
		[TRIGGER_SHARE] = "Memory in use has reached this share of the limit:",
		[TRIGGER_RSS] = "Its RSS has reached",
		[TRIGGER_GROWTH] = "Its RSS has grown by",
		[TRIGGER_PRESSURE] = "Waiting for memory (PSI) has reached"};
	const char *text = bundle->trigger->text, *colon = strchr(text, ':');

	printf("%s %s; RSS %s\n", what[bundle->kind], colon ? colon + 1 : text,
	       SIZE_TEXT(bundle->rss));
}

static void head_print(const struct bundle *bundle)
{
	const struct suspect *suspect = bundle->suspect;
	time_t seconds = (time_t)(bundle->time_ns / 1000000000);
	char when[32] = "";
	struct tm utc;

	if (gmtime_r(&seconds, &utc))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", &utc);
	fputs("tracer: evidence of ", stdout);
	text_print(stdout, suspect->name);
	printf(" (PID %d), %s\n", (int)suspect->pid, when);
	if (bundle->reason == BUNDLE_OOM)
		printf("The kernel killed %s for memory\n",
		       suspect->ended ? "it" : "a process near it");
	else
		reached_print(bundle);
	printf("Used: %s of %s of ", SIZE_TEXT(bundle->state->used),
	       SIZE_TEXT(bundle->state->limit));
	text_print(stdout, bundle->state->where);
	putchar('\n');
	command_print(&suspect->command);
	copies_print(bundle);
}

static int file_new(const struct bundle *bundle, const char *name)
{
	unlinkat(bundle->folder, name, 0);
	return openat(bundle->folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		      0600);
}

/* The paths of the copies from one of them on, and a NULL. */
struct copy_paths {
	char text[SUSPECT_COPIES][4096 + 80], *items[SUSPECT_COPIES + 1];
};

static void paths_make(const struct bundle *bundle, unsigned int from, struct copy_paths *paths)
{
	char what[16], name[64];
	unsigned int count = 0;

	for (unsigned int i = from; i < bundle->suspect->count; i++, count++) {
		snprintf(what, sizeof(what), "%u.dump", i + 1);
		suspect_file(bundle->suspect, what, name);
		snprintf(paths->text[count], sizeof(paths->text[count]), "%s/%s",
			 bundle->folder_path, name);
		paths->items[count] = paths->text[count];
	}
	paths->items[count] = NULL;
}

/* What grew, as text on stdout and as JSON. */
static int leaks_answer(const struct bundle *bundle, FILE *json)
{
	struct copy_paths paths;
	struct heap_leaks leaks;

	paths_make(bundle, 0, &paths);
	int err =
		heap_leaks_of_dumps(paths.items, bundle->suspect->count, bundle->path, TOP, &leaks);
	if (!err) {
		putchar('\n');
		err = heap_leaks_text(&leaks, stdout) ?: heap_leaks_json(&leaks, json);
	}
	heap_leaks_free(&leaks);
	return err;
}

/* What holds most. */
static int held_answer(const struct bundle *bundle, FILE *json)
{
	static char heap[] = "heap", by[] = "--by", path[] = "path", top[] = "--top", rows[] = "5",
		    format[] = "--format", kind[] = "json";
	struct copy_paths paths = {0};
	char *words[] = {heap, paths.text[0], by, path, top, rows, format, kind, NULL};

	paths_make(bundle, held_copy(bundle->suspect), &paths);
	putchar('\n');
	int status = cli_heap(6, words);
	int err = stream_flush(stdout);
	if (status != EXIT_DONE || err || dup2(fileno(json), STDOUT_FILENO) < 0)
		return -EIO;
	return cli_heap(8, words) == EXIT_DONE ? 0 : -EIO;
}

/*
 * Appends an answer about the copies to the report, and writes it to a file as JSON. In a process
 * of its own, which has few rights: it reads copies of a target's memory.
 */
static void answer_write(const struct bundle *bundle, int report, const char *file,
			 int (*answer)(const struct bundle *bundle, FILE *json))
{
	_cleanup_close_ int fd = file_new(bundle, file);
	int status;

	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(ANSWER_S);
		suspect_yield_memory();
		int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
		FILE *json = fd < 0 ? NULL : fdopen(fd, "w");

		if (lseek(report, 0, SEEK_END) < 0 || dup2(report, STDOUT_FILENO) < 0 ||
		    nothing < 0 || !json || dup2(nothing, STDERR_FILENO) < 0 ||
		    privileges_drop(0, 0) || calls_limit(0))
			_exit(EXIT_FAILED);
		int err = answer(bundle, json);
		_exit(fflush(stdout) | fflush(json) | err ? EXIT_FAILED : EXIT_DONE);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
}

static void answers_write(const struct bundle *bundle, int report)
{
	if (bundle->suspect->count > 1)
		answer_write(bundle, report, "leaks.json", leaks_answer);
	if (bundle->suspect->count)
		answer_write(bundle, report, "paths.json", held_answer);
}

/* The tree of what RSS was, without its finest parts; memory.txt has all. */
static void memory_append(const struct bundle *bundle, FILE *report)
{
	static const char deep[] = "      ";
	char name[64], line[4096];

	suspect_file(bundle->suspect, "memory.txt", name);
	int fd = openat(bundle->folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_(fclosep) FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	if (!file || !report)
		return;
	fputs("\nRSS as of ", stdout);
	age_print(bundle, bundle->suspect->memory_time_ns);
	putchar('\n');
	while (fgets(line, sizeof(line), file) && strcmp(line, "Not in RSS:\n") != 0)
		if (strncmp(line, deep, strlen(deep)) != 0 && strncmp(line, "tracer: ", 8) != 0)
			fputs(line, report);
}

/* Of a session that traces it, or has. */
static void snapshot_take(const struct bundle *bundle)
{
	static char ctl[] = "ctl", snapshot[] = "snapshot";
	char pid[16], path[4096 + 80], *words[] = {ctl, pid, snapshot, path, NULL};
	_cleanup_close_ int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);

	snprintf(pid, sizeof(pid), "%d", (int)bundle->suspect->pid);
	snprintf(path, sizeof(path), "%s/" SNAPSHOT_MEMBER, bundle->folder_path);
	pid_t child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(SNAPSHOT_S);
		if (dup2(nothing, STDOUT_FILENO) < 0 || dup2(nothing, STDERR_FILENO) < 0)
			_exit(EXIT_FAILED);
		_exit(cli_ctl(4, words));
	}
	if (child > 0)
		waitpid(child, NULL, 0);
}

/* --- the bundle ------------------------------------------------------------------------------- */

/* A file that is not there, or is empty, is no member. */
static int member_add(struct outfile *out, const struct bundle *bundle, const char *file,
		      const char *member)
{
	_cleanup_close_ int fd = openat(bundle->folder, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || lseek(fd, 0, SEEK_END) <= 0)
		return 0;
	return archive_add(out, member, fd, bundle->time_ns / 1000000000);
}

static const char *const bundle_texts[] = {ARCHIVE_FIRST, BUNDLE_REPORT, "leaks.json", "paths.json",
					   SNAPSHOT_MEMBER};

/* from: the first copy of the heap that goes in. */
static int members_add(struct outfile *out, const struct bundle *bundle, unsigned int from)
{
	static const char *const memory[] = {"memory.txt", "memory.json"};
	const struct suspect *suspect = bundle->suspect;
	char name[64], what[16];
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(bundle_texts) && !err; i++)
		err = member_add(out, bundle, bundle_texts[i], bundle_texts[i]);
	for (size_t i = 0; i < ARRAY_SIZE(memory) && !err; i++) {
		suspect_file(suspect, memory[i], name);
		err = member_add(out, bundle, name, memory[i]);
	}
	for (unsigned int i = from; i < suspect->count && !err; i++) {
		snprintf(what, sizeof(what), "%u.dump", i + 1);
		suspect_file(suspect, what, name);
		err = member_add(out, bundle, name, dump_name(suspect, i));
	}
	return err ?: archive_end(out);
}

/* Writes what the bundle says. 0, -errno. */
static int texts_write(const struct bundle *bundle)
{
	_cleanup_close_ int facts = file_new(bundle, ARCHIVE_FIRST);
	_cleanup_close_ int report = file_new(bundle, BUNDLE_REPORT);
	FILE *text = facts < 0 ? NULL : fdopen(dup(facts), "w");

	if (!text || report < 0)
		return error_errno();
	facts_json(text, bundle);
	int err = stream_flush(text);
	fclose(text);
	if (err || dup2(report, STDOUT_FILENO) < 0)
		return err ?: error_errno();
	head_print(bundle);
	err = stream_flush(stdout);
	answers_write(bundle, report);
	lseek(report, 0, SEEK_END);
	memory_append(bundle, stdout);
	snapshot_take(bundle);
	return err ?: stream_flush(stdout);
}

/* 0, -errno: there is no new file. */
static int file_write(const struct bundle *bundle, unsigned int from)
{
	struct outfile *out;
	int err = outfile_open(&out, bundle->path, OUTFILE_OWN);

	if (err)
		return err;
	err = members_add(out, bundle, from);
	if (!err)
		return bundle->keep > 1 ? outfile_rotate(out, bundle->keep) : outfile_commit(out);
	outfile_discard(out);
	return err;
}

static bool is_full(int err)
{
	return err == -ENOSPC || err == -EDQUOT;
}

static int bundle_run(const struct bundle *bundle)
{
	unsigned int count = bundle->suspect->count;
	int err = texts_write(bundle) ?: file_write(bundle, 0);

	/* With the last copy alone, and then with none. */
	for (unsigned int from = count ? count - 1 : 0; is_full(err) && from <= count; from++) {
		error_clear();
		err = file_write(bundle, from);
		if (!err)
			log_info("%s: no room for %s", bundle->path,
				 from < count ? "copies of the heap but the last"
					      : "the copies of the heap: without them");
	}
	if (err)
		error_print(err, "the evidence is lost", "%s", bundle->path);
	for (size_t i = 0; i < ARRAY_SIZE(bundle_texts); i++)
		unlinkat(bundle->folder, bundle_texts[i], 0);
	return err ? EXIT_FAILED : EXIT_DONE;
}

pid_t bundle_begin(const struct bundle *bundle)
{
	pid_t parent = getpid(), pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpriority(PRIO_PROCESS, 0, SUSPECT_NICE);
		_exit(getppid() == parent ? bundle_run(bundle) : EXIT_FAILED);
	}
	return pid < 0 ? error_errno() : pid;
}

bool bundle_is(const char *path)
{
	unsigned char head[512];
	struct stat st;

	/* A pipe that is opened here would lose its writer. */
	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return 0;
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	ssize_t bytes = fd < 0 ? 0 : pread(fd, head, sizeof(head), 0);

	return archive_begins(head, bytes > 0 ? (size_t)bytes : 0);
}

/* The command of a line names the bundle's file as it was then: it is another one since. */
static void line_print(char *line, const char *path, FILE *out)
{
	static const char next[] = "next: tracer heap why ";
	size_t prefix = sizeof(next) - 1;
	char *file = strncmp(line, next, prefix) != 0 ? NULL : strchr(line + prefix, ' ');

	if (file)
		file[1] = '\0';
	text_print(out, line);
	if (file)
		text_print(out, path);
}

int bundle_print(const char *path, const char *member, unsigned int parts, FILE *out)
{
	struct terminal terminal = {0};
	struct infile file;
	int err = bundle_is(path) ? archive_infile(&file, path, member)
				  : error_set(-EINVAL, "it is no bundle of evidence");

	if (err)
		return err;
	terminal_begin(&terminal, &out);
	while (!(err = infile_fill(&file, LINE_MOST)) && file.end > file.at) {
		char *line = (char *)file.data + file.at;
		size_t bytes = file.end - file.at;
		const char *end = memchr(line, '\n', bytes < LINE_MOST ? bytes : LINE_MOST);
		char text[LINE_MOST + 1];

		if (end == line && parts && !--parts)
			break;
		bytes = end ? (size_t)(end - line) : bytes < LINE_MOST ? bytes : LINE_MOST;
		memcpy(text, line, bytes);
		text[bytes] = '\0';
		line_print(text, path, out);
		if (end)
			putc('\n', out);
		file.at += bytes + (end != NULL);
	}
	infile_close(&file);
	terminal_end(&terminal);
	return err ?: stream_flush(out);
}

/* A number of the facts; 0: they have none. */
static double fact_number(const json_t *facts, const char *key)
{
	double number = json_number_value(json_object_get(facts, key));

	return isfinite(number) && number > 0 && number < FACT_TIME_MAX ? number : 0;
}

void bundle_memory_time_print(const char *path, FILE *out)
{
	struct infile file;

	if (!bundle_is(path) || archive_infile(&file, path, ARCHIVE_FIRST))
		return;
	json_t *facts = infile_fill(&file, FACTS_MOST)
				? NULL
				: json_loadb((const char *)file.data + file.at, file.end - file.at,
					     JSON_REJECT_DUPLICATES, NULL);
	double read = fact_number(facts, "memory_time"), end = fact_number(facts, "time");
	time_t seconds = (time_t)read;
	char when[32];
	struct tm utc;

	if (read > 0 && gmtime_r(&seconds, &utc) &&
	    strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", &utc)) {
		fprintf(out, "As of %s", when);
		if (end > 0)
			fprintf(out, ", %.1f s %s the evidence's time", fabs(end - read),
				end < read ? "after" : "before");
		putc('\n', out);
	}
	json_decref(facts);
	infile_close(&file);
}

/*
 * The page has no script and no style, and its policy allows none: all text in it is of a process.
 */
static const char page_head[] =
	"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
	"base-uri 'none'; form-action 'none'\">\n"
	"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	"<meta name=\"referrer\" content=\"no-referrer\">\n"
	"<meta name=\"color-scheme\" content=\"light dark\">\n"
	"<title>tracer: evidence</title>\n</head>\n<body>\n<h1>Evidence</h1>\n";

/* A member under a heading; one that the bundle does not have has none. 0, -errno. */
static int member_html(const char *path, const char *member, const char *title, FILE *page)
{
	_cleanup_free_ char *text = NULL;
	size_t bytes;
	FILE *memory = open_memstream(&text, &bytes);

	if (!memory)
		return -ENOMEM;
	int err = bundle_print(path, member, 0, memory);
	if (fclose(memory))
		return -ENOMEM;
	if (err)
		return err == -ENOENT ? 0 : err;
	fprintf(page, "<h2>%s</h2>\n<pre>\n", title);
	html_text(page, text);
	fputs("</pre>\n", page);
	return 0;
}

int bundle_html(const char *path, struct outfile *out)
{
	_cleanup_free_ char *text = NULL;
	size_t bytes;
	FILE *page = open_memstream(&text, &bytes);

	if (!page)
		return -ENOMEM;
	fputs(page_head, page);
	int err = member_html(path, BUNDLE_REPORT, "Report", page)
			  ?: member_html(path, "memory.txt", "Resident memory", page)
			  ?: member_html(path, ARCHIVE_FIRST, "Facts, as JSON", page);
	fputs("</body>\n</html>\n", page);
	if (fclose(page))
		return -ENOMEM;
	return err ?: outfile_write(out, text, bytes);
}

int bundle_dumps(const char *path, char *paths[SUSPECT_COPIES])
{
	static const char *const names[] = {"heap-1.dump", "heap-2.dump", "heap.dump"};
	struct archive_member members[ARCHIVE_MEMBERS];
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	int members_count = fd < 0 ? error_errno() : archive_list(fd, members), count = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		for (int k = 0; k < members_count; k++)
			if (!strcmp(members[k].name, names[i])) {
				count += asprintf(&paths[count], "%s:%s", path, names[i]) > 0;
				break;
			}
	return members_count < 0 ? members_count : count;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap: the answers that need all references between the objects. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/heap/heap_query.h"
#include "cmd/options/targets.h"
#include "util/array.h"
#include "util/error.h"
#include "util/json.h"
#include "util/stream.h"
#include "util/terminal.h"

static const struct {
	const char *name;
	const char *about;  /* what it takes; NULL: it is of all objects */
	unsigned int needs; /* enum heap_needs */
	int (*print)(const struct heap_choice *choice, const struct heap_graph *heap);
} questions[] = {
	{"why", "a type or an address", HEAP_RETAINED | HEAP_PATHS, heap_why_print},
	{"holders", "a type or an address", HEAP_RETAINED, heap_holders_print},
	{"show", "an address", HEAP_RETAINED | HEAP_PATHS, heap_show_print},
	{"lines", "a type or an address", HEAP_PATHS, heap_lines_print},
	{"query", "a query", HEAP_RETAINED | HEAP_PATHS, heap_query_print},
	{"waste", NULL, HEAP_PATHS, heap_waste_print},
	{"cycles", NULL, HEAP_RETAINED | HEAP_PATHS, heap_cycles_print},
	{"gc", NULL, HEAP_COPY, heap_gc_print},
};

static int usage_error(const char *reason)
{
	error_print(error_set(-EINVAL, "%s", reason), "tracer heap -p PID", "heap");
	return EXIT_USAGE;
}

/* Whether the answer is a file of a whole heap rather than text. */
static bool is_file(const struct heap_choice *choice)
{
	return choice->output.format == FORMAT_HEAPSNAPSHOT ||
	       choice->output.format == FORMAT_PPROF;
}

static unsigned int view_needs(const struct heap_choice *choice)
{
	int retained = choice->retained || choice->by == BY_CONTAINER ||
		       choice->output.format == FORMAT_PPROF;
	int paths = choice->depth || choice->output.format == FORMAT_HEAPSNAPSHOT ||
		    (choice->by != BY_TYPE && choice->by != BY_CLASS && choice->by != BY_SIZE);

	return (retained ? HEAP_RETAINED : 0) | (paths ? HEAP_PATHS : 0);
}

static int view_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	if (choice->output.format == FORMAT_HEAPSNAPSHOT)
		return heap_snapshot_write(choice, heap) ?: stream_flush(stdout);
	if (choice->output.format == FORMAT_PPROF)
		return heap_pprof_write(heap);
	return (choice->depth ? heap_tree_print : heap_view_print)(choice, heap);
}

#define NO_QUESTION ARRAY_SIZE(questions)

/* The answer about choice->pid, the core or the dump. An exit status. */
static int graph_answer(struct heap_choice *choice, size_t question, const char *dump)
{
	int is_view = question == NO_QUESTION;
	struct heap_graph heap;
	struct terminal terminal = {0};

	if (heap_graph_open(choice, dump, is_view ? view_needs(choice) : questions[question].needs,
			    &heap))
		return EXIT_FAILED;
	if (choice->output.format == FORMAT_TEXT)
		terminal_begin(&terminal, &stdout);
	int err = (is_view ? view_print : questions[question].print)(choice, &heap);
	terminal_end(&terminal);
	heap_graph_close(&heap);
	if (err)
		error_print(err, NULL, "%s", err == -ENOENT ? choice->what : "heap");
	return err ? EXIT_FAILED : EXIT_DONE;
}

/* Leaves the processes that run Python, of those of a container. Returns how many. */
static size_t pythons_keep(const struct heap_choice *choice, pid_t *pids, size_t count)
{
	struct python_runtime runtime;
	struct process_info info;
	size_t kept = 0;

	if (target_set_is_pids(&choice->targets) || count < 2)
		return count;
	for (size_t i = 0; i < count; i++) {
		if (python_process_find(pids[i], NULL, choice->swap_in, &info, &runtime))
			continue;
		python_runtime_close(&runtime);
		pids[kept++] = pids[i];
	}
	return kept;
}

/* In a process of its own: each gives up what it needs no more for its target. */
static int process_answer(struct heap_choice *choice, size_t question)
{
	int status;

	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		status = graph_answer(choice, question, NULL);
		_exit(fflush(stdout) ? EXIT_FAILED : status);
	}
	if (child < 0) {
		error_print(error_errno(), NULL, "heap");
		return EXIT_FAILED;
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
}

static int processes_answer(struct heap_choice *choice, size_t question)
{
	const char *hint = "tracer list shows what can be read";
	int status = EXIT_DONE, answered;
	size_t count = 0;
	pid_t *pids = NULL;

	if (targets_list(&choice->targets, hint, &pids, &count))
		return EXIT_FAILED;
	size_t kept = pythons_keep(choice, pids, count);
	if (!kept) {
		error_print(error_set(-ENOENT, "none of its %zu processes runs Python", count),
			    hint, "heap");
		status = EXIT_FAILED;
	} else if (kept == 1) {
		choice->pid = pids[0];
		status = graph_answer(choice, question, NULL);
	} else if (choice->out || is_file(choice)) {
		status = usage_error("a file is of one process");
	}
	for (size_t i = 0; kept > 1 && i < kept && status != EXIT_USAGE; i++) {
		if (i && choice->output.format == FORMAT_TEXT)
			putchar('\n');
		choice->pid = pids[i];
		answered = process_answer(choice, question);
		status = answered > status ? answered : status;
	}
	free(pids);
	return status;
}

/* Answers about the processes that are named, or about a dump or core. */
static int answer(struct heap_choice *choice, size_t question)
{
	const char *about = question == NO_QUESTION ? NULL : questions[question].about;
	size_t count = choice->rest.count, words = (question != NO_QUESTION) + (about != NULL);
	const char *dump = count > words ? choice->rest.items[words] : NULL;
	int sources =
		!target_set_is_empty(&choice->targets) + (choice->core != NULL) + (dump != NULL);

	char reason[128];

	snprintf(reason, sizeof(reason), "it takes %s%sprocesses, a dump or a core",
		 about ? about : "", about ? ", and " : "");
	if (count < words || count > words + 1 || sources != 1)
		return usage_error(reason);
	choice->what = about ? choice->rest.items[1] : NULL;
	if (question != NO_QUESTION && questions[question].print == heap_query_print) {
		struct query *query = NULL;
		int err = query_parse(&query, choice->what, choice->values);

		query_free(query);
		if (err) {
			error_print(err, NULL, "query");
			return EXIT_USAGE;
		}
	}
	if (dump || choice->core)
		return graph_answer(choice, question, dump);
	return processes_answer(choice, question);
}

bool heap_is_question(const struct heap_choice *choice)
{
	return choice->rest.count || choice->retained || choice->depth || choice->out ||
	       choice->freeze || choice->core || choice->sysroot || choice->trace ||
	       choice->duration_ns || is_file(choice) || choice->by_age ||
	       (choice->by != BY_TYPE && choice->by != BY_CLASS);
}

/* What objects hold is not of their age; nor are other answers than groups of objects. */
static bool can_have_ages(const struct heap_choice *choice)
{
	const char *first = choice->rest.count ? choice->rest.items[0] : "";

	for (size_t i = 0; i < ARRAY_SIZE(questions); i++)
		if (!strcmp(first, questions[i].name))
			return false;
	return strcmp(first, "diff") != 0 && !choice->retained && choice->by != BY_CONTAINER &&
	       choice->by != BY_CLASS && !is_file(choice);
}

/* lines is about them; show tells that of its object, if something is there that knows it. */
static bool asks_lines(const struct heap_choice *choice, const char *first)
{
	return first && (!strcmp(first, "lines") || (!strcmp(first, "show") && choice->trace));
}

int heap_answer(struct heap_choice *choice)
{
	const char *first = choice->rest.count ? choice->rest.items[0] : NULL;
	struct json json = {.out = stdout};

	if (asks_lines(choice, first))
		choice->by = BY_LINE;
	choice->json = choice->output.format == FORMAT_JSON ? &json : NULL;
	if (choice->swap_in && target_set_is_empty(&choice->targets))
		return usage_error("--swap-in is of a running process");
	if (choice->core ? choice->freeze : choice->sysroot != NULL)
		return usage_error(choice->core ? "a core is not stopped: --freeze is of a process"
						: "--sysroot is of a core");
	if (heap_wants_lines(choice)
		    ? !choice->trace && (choice->core || target_set_is_empty(&choice->targets))
		    : choice->trace != NULL)
		return usage_error("--by line and ages are of a process that is traced, or take "
				   "--trace");
	if (choice->by_age && !can_have_ages(choice))
		return usage_error("ages are of objects by type, module, path, root, size or line, "
				   "without --retained");
	if (choice->depth && (!choice->retained || choice->by != BY_TYPE || is_file(choice)))
		return usage_error("--depth is of --retained, by type");
	if (is_file(choice) && choice->rest.count > 1)
		return usage_error("this format is of a whole heap");
	if (choice->duration_ns && (!first || strcmp(first, "gc") != 0 || choice->core ||
				    target_set_is_empty(&choice->targets)))
		return usage_error("-d is of gc and a running process");
	for (size_t i = 0; first && i < ARRAY_SIZE(questions); i++)
		if (!strcmp(first, questions[i].name))
			return answer(choice, i);
	if (first && !strcmp(first, "diff")) {
		if (choice->rest.count < 3 || choice->rest.count > 4 ||
		    !target_set_is_empty(&choice->targets) || choice->out || choice->core)
			return usage_error("diff takes two dumps, or three");
		if (choice->by != BY_TYPE && choice->by != BY_MODULE && choice->by != BY_PATH)
			return usage_error("diff is by type, module or path");
		return heap_diff_print(choice, choice->rest.items + 1, choice->rest.count - 1)
			       ? EXIT_FAILED
			       : EXIT_DONE;
	}
	if (choice->by == BY_CLASS)
		return usage_error("--by class is of a running process's pools alone");
	return answer(choice, NO_QUESTION);
}

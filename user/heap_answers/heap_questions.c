/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap: the answers that need all references between the objects. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "heap_answers/heap_choice.h"
#include "holders/heapsnapshot.h"
#include "options/targets.h"

static const struct {
	const char *name;
	unsigned int needs; /* enum heap_needs */
	int (*print)(const struct heap_choice *choice, const struct heap_graph *heap,
		     const char *what);
} questions[] = {
	{"why", HEAP_RETAINED | HEAP_PATHS, heap_why_print},
	{"holders", HEAP_RETAINED, heap_holders_print},
	{"show", HEAP_RETAINED | HEAP_PATHS, heap_show_print},
	{"waste", HEAP_PATHS, heap_waste_print},
	{"cycles", HEAP_PATHS, heap_cycles_print},
};

/* waste and cycles are of all objects. */
static size_t question_words(size_t question)
{
	return question < 3 ? 2 : 1;
}

static int usage_error(const char *reason)
{
	error_print(error_set(-EINVAL, "%s", reason), "tracer heap -p PID", "heap");
	return EXIT_USAGE;
}

/*
 * Finds the one process that is read, unless it is a dump or a core. 1; 0: there is none, or there
 * are several; -errno after a message.
 */
static int process_choose(struct heap_choice *choice, const char *dump)
{
	pid_t *pids = NULL;
	size_t count = 0;
	int err;

	if (dump || choice->core)
		return target_set_is_empty(&choice->targets) && (!dump || !choice->core);
	if (target_set_is_empty(&choice->targets))
		return 0;
	err = targets_list(&choice->targets, "tracer list shows what can be read", &pids, &count);
	if (err)
		return err;
	if (count == 1)
		choice->pid = pids[0];
	free(pids);
	return count == 1;
}

/* After heap_graph_open(): prints an error of writing the answer. */
static int answer_end(struct heap_graph *heap, int err)
{
	heap_graph_close(heap);
	if (err == -ENOENT)
		return EXIT_FAILED;
	if (err)
		error_print(err, NULL, "heap");
	return err ? EXIT_FAILED : EXIT_DONE;
}

/* tracer heap why|holders|show WHAT [DUMP], tracer heap waste|cycles [DUMP] */
static int question_answer(struct heap_choice *choice, size_t question)
{
	size_t words = question_words(question), count = choice->rest.count;
	const char *dump = count > words ? choice->rest.items[words] : NULL;
	struct heap_graph heap;
	int chosen = process_choose(choice, dump);

	if (chosen < 0)
		return EXIT_FAILED;
	if (count < words || count > words + 1 || !chosen)
		return usage_error(words > 1 ? "it takes a type or an address, and one process, a "
					       "dump or a core"
					     : "it takes one process, a dump or a core");
	if (heap_graph_open(choice, dump, questions[question].needs, &heap))
		return EXIT_FAILED;
	return answer_end(&heap, questions[question].print(
					 choice, &heap, words > 1 ? choice->rest.items[1] : NULL));
}

static int view_answer(struct heap_choice *choice, const char *dump)
{
	unsigned int needs = choice->retained || choice->by == BY_CONTAINER ? HEAP_RETAINED : 0;
	struct heap_graph heap;

	if (choice->by == BY_MODULE || choice->by == BY_ROOT || choice->by == BY_CONTAINER ||
	    choice->by == BY_LINE || choice->by == BY_PATH)
		needs |= HEAP_PATHS;
	if (choice->output.format == FORMAT_HEAPSNAPSHOT || choice->depth)
		needs |= HEAP_PATHS;
	if (choice->output.format == FORMAT_PPROF)
		needs |= HEAP_RETAINED;
	if (heap_graph_open(choice, dump, needs, &heap))
		return EXIT_FAILED;
	if (choice->output.format == FORMAT_HEAPSNAPSHOT)
		return answer_end(&heap, heap_snapshot_write(choice, &heap)
						 ?: fflush(stdout) || ferror(stdout) ? -EIO
										     : 0);
	if (choice->output.format == FORMAT_PPROF)
		return answer_end(&heap, heap_pprof_write(&heap));
	if (choice->depth)
		return answer_end(&heap, heap_tree_print(choice, &heap));
	return answer_end(&heap, heap_view_print(choice, &heap));
}

/* Whether the answer is a file of a whole heap rather than text. */
static int is_file(const struct heap_choice *choice)
{
	return choice->output.format == FORMAT_HEAPSNAPSHOT ||
	       choice->output.format == FORMAT_PPROF;
}

int heap_is_question(const struct heap_choice *choice)
{
	return choice->rest.count || choice->retained || choice->depth || choice->out ||
	       choice->freeze || choice->core || choice->sysroot || choice->trace ||
	       is_file(choice) || (choice->by != BY_TYPE && choice->by != BY_CLASS);
}

int heap_answer(struct heap_choice *choice)
{
	const char *first = choice->rest.count ? choice->rest.items[0] : NULL;
	int chosen;

	if (choice->no_swap_in && target_set_is_empty(&choice->targets))
		return usage_error("--no-swap-in is of a running process");
	if (choice->core ? choice->freeze : choice->sysroot != NULL)
		return usage_error(choice->core ? "a core is not stopped: --freeze is of a process"
						: "--sysroot is of a core");
	if (choice->by == BY_LINE ? !choice->trace && (first || choice->core)
				  : choice->trace != NULL)
		return usage_error("--by line is of a process that is traced, or takes --trace");
	if (choice->depth && (!choice->retained || choice->by != BY_TYPE || is_file(choice)))
		return usage_error("--depth is of --retained, by type");
	if (is_file(choice) && choice->rest.count > 1)
		return usage_error("this format is of a whole heap");
	for (size_t i = 0; first && i < sizeof(questions) / sizeof(questions[0]); i++)
		if (!strcmp(first, questions[i].name))
			return question_answer(choice, i);
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
	if (choice->rest.count > 1)
		return usage_error("it reads one process, a dump or a core");
	chosen = process_choose(choice, first);
	if (chosen < 0)
		return EXIT_FAILED;
	if (!chosen)
		return usage_error("it reads one process, a dump or a core");
	return view_answer(choice, first);
}

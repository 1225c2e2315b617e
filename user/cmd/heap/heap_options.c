/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of tracer heap. */
#include <errno.h>
#include <string.h>

#include "cmd/heap/heap_choice.h"
#include "util/array.h"
#include "util/error.h"

enum {
	KEY_BY = 0x300,
	KEY_RETAINED,
	KEY_FREEZE,
	KEY_SWAP_IN,
	KEY_NO_SWAP_IN,
	KEY_CORE,
	KEY_SYSROOT,
	KEY_TRACE,
	KEY_SESSION,
	KEY_VALUES,
	KEY_DEPTH
};

static const struct argp_option options[] = {
	{"pid", 'p', "PID[,PID...]", 0,
	 "these processes; with -c, their process ids in the container", 1},
	{"container", 'c', "CONTAINER", 0,
	 "the processes of a container, by name, ID or the beginning of either (repeatable)", 1},
	{"core", KEY_CORE, "FILE", 0, "a core file instead of a process", 1},
	{"sysroot", KEY_SYSROOT, "DIR", 0,
	 "with --core: where the files that the process had mapped are (default: /)", 1},
	{"by", KEY_BY, "KEY", 0,
	 "type (default), class (pymalloc's size classes), module, path (the module's variable or "
	 "the root), root, container, size or line; diff: type, module or path",
	 2},
	{"trace", KEY_TRACE, "FILE", 0,
	 "by line, by age: the blocks that tracer ctl PID blocks has written (default: of the "
	 "session that traces the process)",
	 2},
	{"session", KEY_SESSION, "PID", 0,
	 "by line, by age: choose one of several sessions that trace the process: the tracer's PID",
	 2},
	{"retained", KEY_RETAINED, NULL, 0, "by type: also what would be freed with the objects",
	 2},
	{"depth", KEY_DEPTH, "N", 0,
	 "with --retained: N levels of what retains what, as a tree; --top is of each level", 2},
	{"values", KEY_VALUES, NULL, 0, "show, waste, query: also the contents of texts", 2},
	{"freeze", KEY_FREEZE, NULL, 0, "stop the process while its memory is copied", 2},
	{"swap-in", KEY_SWAP_IN, NULL, 0,
	 "also read memory that is swapped out, which brings it back", 2},
	{"no-swap-in", KEY_NO_SWAP_IN, NULL, OPTION_HIDDEN, NULL, 2}, /* as it is without */
	{"output", 'o', "FILE", 0, "also write the copied memory to FILE, a dump", 2},
	{"duration", 'd', "SEC", 0, "gc: also watch the collector for so long", 2},
	CLI_OPTION_FORCE(2),
	CLI_OPTION_VERBOSE(10),
	{0},
};

static const struct argp_child children[] = {
	{&cli_graphs_argp, 0, NULL, 0}, {&cli_ages_argp, 0, NULL, 0}, {0}};

static error_t by_parse(struct heap_choice *choice, const char *arg)
{
	static const struct cli_word words[] = {{"type", BY_TYPE},     {"class", BY_CLASS},
						{"module", BY_MODULE}, {"path", BY_PATH},
						{"root", BY_ROOT},     {"container", BY_CONTAINER},
						{"size", BY_SIZE},     {"line", BY_LINE}};

	return CLI_WORD("--by", arg, words, choice->by);
}

static error_t depth_parse(struct heap_choice *choice, const char *arg)
{
	uint64_t depth;

	if (cli_parse_number(arg, 1, HEAP_DEPTH_MAX, &depth))
		return cli_reject("--depth", arg, "a number from 1 to 100");
	choice->depth = (uint32_t)depth;
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct heap_choice *choice = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &choice->output;
		state->child_inputs[1] = &choice->ages;
		return 0;
	case 'p':
		if (cli_parse_pids(arg, &choice->targets.pids, &choice->targets.pid_count)) {
			error_print(-EINVAL, "tracer list shows what can be read", "--pid");
			return CLI_REPORTED;
		}
		return 0;
	case 'c':
		return -target_set_container(&choice->targets, arg);
	case KEY_BY:
		return by_parse(choice, arg);
	case KEY_RETAINED:
		choice->retained = 1;
		return 0;
	case KEY_DEPTH:
		return depth_parse(choice, arg);
	case KEY_VALUES:
		choice->values = 1;
		return 0;
	case 'v':
		report_choice_verbose(&choice->output);
		return 0;
	case KEY_FREEZE:
		choice->freeze = 1;
		return 0;
	case KEY_SWAP_IN:
	case KEY_NO_SWAP_IN:
		choice->swap_in = key == KEY_SWAP_IN;
		return 0;
	case KEY_CORE:
		choice->core = arg;
		return 0;
	case KEY_SESSION:
		if (!cli_parse_number(arg, 1, 1 << 22, &choice->session))
			return 0;
		error_print(error_set(-EINVAL, "\"%s\" is not a process id", arg), NULL,
			    "--session");
		return CLI_REPORTED;
	case KEY_TRACE:
		choice->trace = arg;
		return 0;
	case KEY_SYSROOT:
		choice->sysroot = arg;
		return 0;
	case CLI_KEY_FORCE:
		choice->replace = OUTFILE_ANY;
		return 0;
	case 'd':
		return cli_take_seconds("--duration", arg, &choice->duration_ns);
	case 'o':
		choice->out = arg;
		return 0;
	}
	return cli_parse_arguments(key, state, &choice->rest);
}

const struct argp heap_argp = {
	.options = options,
	.parser = parse,
	.args_doc = "-p PID[,PID...]\n-c CONTAINER\n--core FILE\nDUMP\nwhy TYPE|ADDR [DUMP]\n"
		    "holders TYPE|ADDR [DUMP]\nshow ADDR [DUMP]\nlines TYPE|ADDR [DUMP]\n"
		    "query QUERY [DUMP]\nwaste [DUMP]\ncycles [DUMP]\ngc [DUMP]\n"
		    "diff OLD NEW [LATER]",
	.doc = "Prints what is on the heap of running Pythons, by the types of their "
	       "objects, and what keeps them alive. The heap is read from outside: no "
	       "probe is placed, and the process is stopped only with --freeze.\n\n"
	       "  why      the shortest paths from a root to the objects\n"
	       "  holders  which types refer to the objects, and by which attribute\n"
	       "  show     one object, what it refers to and what refers to it\n"
	       "  lines    the lines that allocated the objects, of a process that is traced or\n"
	       "           with --trace; show tells that of its object\n"
	       "  query    the objects for which a condition is true, such as\n"
	       "           'type = dict and retained > 1M and path ~ \"cache\"'\n"
	       "  waste    texts that exist several times, tables that are larger than needed\n"
	       "  cycles   objects that refer to each other, and garbage of that kind\n"
	       "  gc       the collector: generations, what it has freed, whether it is on\n"
	       "  diff     what has changed from one dump to another\n\n"
	       "These take a process (-p), a dump that -o has written, or a core (--core). "
	       "TYPE is a name, whole or from one of its dots on.",
	.children = children,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of command lines. */
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <unistd.h>

#include "attach/links/features.h"
#include "cmd/options/options.h"
#include "proc/sandbox/privileges.h"
#include "util/array.h"
#include "util/error.h"
#include "util/near.h"
#include "util/terminal.h"

/* --- print options ---------------------------------------------------------------------------- */

/* The options of a command for programs: shells complete them (completions/). */

/* As the only argument of a command, it prints that instead of running. */
#define PRINT_OPTIONS "--print-options"

/*
 * A line for each option of the table and of its children: "--name", "-n" or "", the name of its
 * argument or "", and what it does, separated by tabs.
 */
static void options_print(const struct argp *argp, FILE *out)
{
	const struct argp_option *option = argp->options;
	const struct argp_child *child = argp->children;

	for (; option && (option->name || option->key || option->doc); option++) {
		if (!option->name || option->flags & OPTION_HIDDEN)
			continue;
		fprintf(out, "--%s\t", option->name);
		if (option->key > 0 && option->key < 128 && isgraph(option->key))
			fprintf(out, "-%c", option->key);
		fprintf(out, "\t%s\t%s\n", option->arg ? option->arg : "",
			option->doc ? option->doc : "");
	}
	for (; child && child->argp; child++)
		options_print(child->argp, out);
}

/* --- options ---------------------------------------------------------------------------------- */

int cli_parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *number)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	*number = strtoull(text, &end, 10);
	return errno || *end || *number < low || *number > high ? -EINVAL : 0;
}

int cli_parse_bytes(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMG";
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	*bytes = strtoull(text, &end, 10);
	if (errno || *bytes > 1ull << 40)
		return -EINVAL;
	if (!*end)
		return 0;
	const char *unit = strchr(units, toupper((unsigned char)*end));
	if (!unit || end[1])
		return -EINVAL;
	int shift = 10 * (int)(unit - units + 1);
	if (*bytes > 1ull << 40 >> shift)
		return -EINVAL;
	*bytes <<= shift;
	return 0;
}

int cli_parse_seconds(const char *text, uint64_t *ns)
{
	static const struct {
		const char *name;
		double seconds;
	} units[] = {{"", 1},     {"s", 1},    {"ms", 1e-3}, {"m", 60},
		     {"min", 60}, {"h", 3600}, {"d", 86400}};
	char *end;
	double seconds = 0;

	errno = 0;
	double number = strtod(text, &end);
	if (errno || end == text || !isfinite(number))
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (!strcmp(end, units[i].name))
			seconds = number * units[i].seconds;
	if (seconds <= 0 || seconds > 1e9)
		return -EINVAL;
	*ns = (uint64_t)(seconds * 1e9);
	return 0;
}

int cli_parse_pause(const char *text, uint64_t *ns)
{
	*ns = 0;
	return strcmp(text, "0") != 0 ? cli_parse_seconds(text, ns) : 0;
}

int cli_parse_percent(const char *text, double *percent)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	*percent = strtod(text, &end);
	return !isfinite(*percent) || (*end && strcmp(end, "%") != 0) ? -EINVAL : 0;
}

/* Why a process may not be read, in a container most likely. */
static const char *permission_remedy(void)
{
	if (!features_user_ns_is_root())
		return "it runs in a user namespace of its own: run it with sudo outside of it";
	if (geteuid())
		return "run it with sudo";
	if (!privileges_hold(CAP_SYS_PTRACE))
		return "CAP_SYS_PTRACE is missing; in a container: --cap-add SYS_PTRACE";
	if (!privileges_hold(CAP_DAC_READ_SEARCH) && !privileges_hold(CAP_DAC_OVERRIDE))
		return "CAP_DAC_READ_SEARCH is missing, for processes of other users; in a "
		       "container: --cap-add DAC_READ_SEARCH";
	return "root is not enough: a security module or a lost capability forbids it";
}

const char *cli_remedy(int err)
{
	switch (err) {
	case -ESRCH:
		return "tracer list shows what can be traced";
	case -ENOENT:
		return "tracer list shows the processes with a known Python; --wait waits until a "
		       "process loads it";
	case -EPERM:
	case -EACCES:
		return permission_remedy();
	default:
		return NULL;
	}
}

int pids_have(const pid_t *pids, size_t count, pid_t pid)
{
	for (size_t i = 0; i < count; i++)
		if (pids[i] == pid)
			return 1;
	return 0;
}

int pids_add(pid_t **pids, size_t *count, pid_t pid)
{
	pid_t *more;

	if (pids_have(*pids, *count, pid))
		return 0;
	more = realloc(*pids, (*count + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	*pids = more;
	more[(*count)++] = pid;
	return 0;
}

static int pid_take(const char *word, pid_t **pids, size_t *count)
{
	uint64_t number;

	if (cli_parse_number(word, 1, 1 << 22, &number))
		return error_set(-EINVAL,
				 word[strspn(word, "0123456789 ")]
					 ? "\"%s\" is not a process id; --comm takes a name"
					 : "\"%s\" is not a process id",
				 word);
	return pids_add(pids, count, (pid_t)number);
}

int cli_parse_pids(const char *text, pid_t **pids, size_t *count)
{
	char *copy = strdup(text), *state = copy;
	int err = copy ? 0 : -ENOMEM;

	for (char *word = NULL; !err && (word = strsep(&state, ","));)
		err = pid_take(word, pids, count);
	free(copy);
	return err;
}

/* Wraps the parser of each command: argp's own messages take two lines and lack the remedy. */
struct root_input {
	void *input;
	const char *culprit;
};

static error_t root_parse(int key, char *arg, struct argp_state *state)
{
	struct root_input *root = state->input;

	(void)arg;
	if (key == ARGP_KEY_INIT)
		state->child_inputs[0] = root->input;
	else if (key == ARGP_KEY_ERROR && state->next > 0 && state->next <= state->argc)
		/* Within "-abc", next is still the index of that argument. */
		root->culprit = state->argv[state->next - 1][0] != '-' && state->next < state->argc
					? state->argv[state->next]
					: state->argv[state->next - 1];
	else
		return ARGP_ERR_UNKNOWN;
	return 0;
}

/* What is known of an argument that argp has refused. */
struct refused {
	struct near near;     /* all long names are offered */
	size_t bytes;         /* of the long name that was typed */
	int key;              /* of the short option that was typed; 0: a long one */
	unsigned int matches; /* options that begin like that */
	int is_exact, takes_value;
};

static void option_find(const struct argp *argp, struct refused *refused)
{
	const struct argp_option *option = argp->options;
	const struct argp_child *child = argp->children;

	for (; option && (option->name || option->key || option->doc); option++) {
		int is_this = refused->key
				      ? option->key == refused->key
				      : option->name && !strncmp(option->name, refused->near.word,
								 refused->bytes);

		if (option->name && !refused->key)
			near_offer(&refused->near, option->name);
		refused->matches += (unsigned int)is_this;
		refused->is_exact |= is_this && (refused->key || !option->name[refused->bytes]);
		refused->takes_value |= is_this && option->arg;
	}
	for (; child && child->argp; child++)
		option_find(child->argp, refused);
}

/* Why argp has refused it. It stops at the first letter of "-abc" that it does not take. */
static int option_explain(const struct argp *argp, const char *typed)
{
	char name[64];
	struct refused refused = {.near.word = name};

	if (typed[0] != '-' || !typed[1])
		return error_set(-EINVAL, "it takes no argument \"%s\"", typed);
	if (typed[1] != '-') {
		for (const char *at = typed + 1; *at; at++) {
			refused = (struct refused){.near.word = "", .key = *at};
			option_find(argp, &refused);
			if (!refused.matches)
				return error_set(-EINVAL, "there is no option -%c", *at);
			if (refused.takes_value)
				return error_set(-EINVAL, "the value of -%c is missing", *at);
		}
		return error_set(-EINVAL, "not an option");
	}
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(typed + 2, "="), typed + 2);
	refused.bytes = strlen(name);
	option_find(argp, &refused);
	if (refused.matches > 1 && !refused.is_exact)
		return error_set(-EINVAL, "%u options begin like this", refused.matches);
	if (refused.matches)
		return error_set(-EINVAL, refused.takes_value ? "its value is missing"
							      : "it takes no value");
	return refused.near.best
		       ? error_set(-EINVAL, "no such option; did you mean --%s?", refused.near.best)
		       : error_set(-EINVAL, "no such option");
}

#define ARGP_COLUMNS 79u

/* argp takes 79 columns, or what this says. */
static void help_fit(void)
{
	size_t width = terminal_width(stdout);
	char format[64];

	if (!width || width > ARGP_COLUMNS)
		return;
	snprintf(format, sizeof(format), "rmargin=%zu,opt-doc-col=%zu", width - 1, width / 2);
	setenv("ARGP_HELP_FMT", format, 0);
}

int cli_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *input)
{
	const char *slash = strrchr(argv[0], '/');
	char name[32];

	/* "tracer report", or "tracer" alone if the command was left out. */
	snprintf(name, sizeof(name), "tracer%s%s", slash || !strcmp(argv[0], "tracer") ? "" : " ",
		 slash || !strcmp(argv[0], "tracer") ? "" : argv[0]);
	/* argp would end the process after --help and after its own messages; here they return. */
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") ||
		    !strcmp(argv[i], "--usage")) {
			help_fit();
			argp_help(argp, stdout,
				  strcmp(argv[i], "--usage")
					  ? ARGP_HELP_LONG | ARGP_HELP_PRE_DOC |
						    ARGP_HELP_POST_DOC | ARGP_HELP_SHORT_USAGE
					  : ARGP_HELP_USAGE,
				  name);
			return -1;
		}
		if ((flags & ARGP_IN_ORDER) && argv[i][0] != '-')
			break;
	}
	if (argc == 2 && !strcmp(argv[1], PRINT_OPTIONS)) {
		options_print(argp, stdout);
		return -1;
	}
	struct argp_child children[] = {{argp, 0, NULL, 0}, {0}};
	struct argp root = {.parser = root_parse, .children = children};
	struct root_input root_input = {.input = input};

	error_t err =
		argp_parse(&root, argc, argv, flags | ARGP_NO_EXIT | ARGP_NO_HELP | ARGP_NO_ERRS,
			   NULL, &root_input);
	if (!err)
		return 0;
	if (err != CLI_REPORTED)
		error_print(root_input.culprit
				    ? option_explain(argp, root_input.culprit)
				    : error_set(-EINVAL, "arguments are missing or not known"),
			    "--help lists what it takes", "%s",
			    root_input.culprit && root_input.culprit[0] == '-' ? root_input.culprit
									       : argv[0]);
	return EXIT_USAGE;
}

error_t cli_parse_arguments(int key, struct argp_state *state, struct cli_arguments *arguments)
{
	if (key != ARGP_KEY_ARGS)
		return ARGP_ERR_UNKNOWN;
	arguments->items = state->argv + state->next;
	arguments->count = state->argc - state->next;
	return 0;
}

error_t cli_reject(const char *option, const char *arg, const char *remedy)
{
	error_print(error_set(-EINVAL, "\"%s\" is not one of its values", arg),
		    remedy ? remedy : "--help lists them", "%s", option);
	return CLI_REPORTED;
}

bool cli_word_find(const struct cli_word *words, size_t count, const char *text, int *value,
		   char names[CLI_WORD_NAMES])
{
	size_t used = 0;

	names[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		if (!strcmp(text, words[i].name)) {
			*value = words[i].value;
			return true;
		}
		if (used < CLI_WORD_NAMES)
			used += (size_t)snprintf(names + used, CLI_WORD_NAMES - used, "%s%s",
						 !i               ? ""
						 : i + 1 == count ? " or "
								  : ", ",
						 words[i].name);
	}
	return false;
}

error_t cli_parse_word(const char *option, const char *arg, const struct cli_word *words,
		       size_t count, int *value)
{
	char names[CLI_WORD_NAMES];

	return cli_word_find(words, count, arg, value, names) ? 0 : cli_reject(option, arg, names);
}

error_t cli_take_seconds(const char *option, const char *arg, uint64_t *ns)
{
	if (!cli_parse_seconds(arg, ns))
		return 0;
	error_print(error_set(-EINVAL, "\"%s\" is not a number of seconds above 0", arg),
		    "for example 10, 0.5, 30s or 5m", "%s", option);
	return CLI_REPORTED;
}

error_t cli_parse_buffer(const char *arg, size_t *bytes)
{
	uint64_t number;

	if (cli_parse_bytes(arg, &number) || number < 4096 || number > 1ull << 31 ||
	    number & (number - 1))
		return cli_reject("--buffer", arg, "a power of two from 4K to 2G");
	*bytes = number;
	return 0;
}

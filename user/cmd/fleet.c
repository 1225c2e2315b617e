/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer fleet: what many snapshots have in common, such as those of all machines of a service.
 * They are files, or fetched from URLs. One is in memory at a time; of the others there are sums by
 * line, a bounded number of them. Of snapshots of one process only the newest counts: where there
 * are several, all are read for a second time, when it is known which one that is.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/cli.h"
#include "cmd/options/options.h"
#include "report/pprof/pprof.h"
#include "snapshot/group/group.h"
#include "snapshot/merge.h"
#include "util/array.h"
#include "util/buffer.h"
#include "util/cleanup.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/http_client.h"
#include "util/id_map.h"
#include "util/infile.h"
#include "util/json.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/stream.h"
#include "util/strings.h"
#include "util/terminal.h"
#include "util/text.h"

#define ROWS_MAX     100000u /* beyond them entries are one row, "other" */
#define OUTLIER_OF   5u      /* of fewer snapshots none can be told */
#define OUTLIER_AT   4.0     /* standard deviations of the others */
#define OUTLIER_MORE 0.05    /* and so much more of its snapshot than of the others */
#define OUTLIERS_MAX 10u

#define ANSWER_SECONDS 30u
#define ANSWER_BYTES   (256u << 20) /* of a snapshot, packed */
#define URL_BYTES      4096u

enum fleet_by { FLEET_LINE, FLEET_FUNCTION, FLEET_FILE, FLEET_SERVICE, FLEET_VERSION };

/*
 * What is added up: a line, or what else was asked for. Names are in fleet.names. A service is the
 * filename, its version the function.
 */
struct fleet_row {
	uint32_t filename, function, line;
	uint64_t snapshots; /* that have it */
	uint64_t size, count;
	double shares, squares; /* of each snapshot's size */
	uint64_t last;          /* the number of the last snapshot that has it */
	double last_share;
	double highest;      /* share */
	uint32_t highest_in; /* the snapshot's file */
};

/* A process, which its boot, pid and start tell from all others. */
struct fleet_process {
	uint64_t taken_ns; /* of the newest snapshot of it, CLOCK_REALTIME, */
	size_t input;      /* and where that is */
};

/* A file or URL. */
struct fleet_input {
	const char *path;
	bool is_out;            /* given before, or it cannot be read */
	uint64_t offset, bytes; /* of what was fetched, in fleet.fetched */
};

struct fleet {
	struct report_choice choice;
	enum fleet_by by;
	struct cli_arguments files;
	const char *token_file, *ca; /* for URLs; NULL: none, the system's */

	struct http_client *client; /* NULL: no URL yet */
	char authorization[sizeof("Authorization: Bearer ") + HTTP_TOKEN_SIZE]; /* "": none */
	struct strings *names;
	struct fleet_row *rows;
	size_t count, capacity;
	struct id_map row_of;
	struct strings *given;      /* the files so far */
	uint64_t snapshots, unread; /* files; those that could not be read */
	uint64_t repeated;          /* files that were given before */
	struct fleet_input *inputs;
	FILE *fetched; /* a temporary file; NULL: nothing yet */
	struct fleet_process *processes;
	size_t process_count, process_capacity;
	struct id_map process_of;
	bool is_second; /* round: each process is in processes, */
	bool any_older; /* and has been in several inputs */
	uint64_t older; /* snapshots of a process that were left out for a newer one */
	uint64_t size, blocks;
	uint64_t other_size, other_count, other_rows; /* of entries beyond ROWS_MAX */
	int estimated;                                /* figures of a snapshot are */
};

static int name_take(struct fleet *fleet, const char *text, uint32_t *id)
{
	return strings_intern(fleet->names, text, strlen(text), id);
}

static bool is_of_services(const struct fleet *fleet)
{
	return fleet->by == FLEET_SERVICE || fleet->by == FLEET_VERSION;
}

/* What an entry is called. */
static int entry_name(struct fleet *fleet, const struct statistic *entry, struct fleet_row *out)
{
	const struct snapshot *snapshot = entry->snapshot;
	const struct snapshot_meta *process = entry->process;

	*out = (struct fleet_row){0};
	if (is_of_services(fleet)) {
		int err = name_take(fleet,
				    process->service[0]     ? process->service
				    : process->container[0] ? process->container
							    : process->name,
				    &out->filename);

		return err || fleet->by == FLEET_SERVICE
			       ? err
			       : name_take(fleet, process->version, &out->function);
	}
	out->line = entry->frame.line;
	int err = name_take(fleet, strings_get(snapshot->strings, entry->frame.filename),
			    &out->filename);
	if (!err && entry->frame.function != STATISTIC_NO_FUNCTION)
		err = name_take(fleet, strings_get(snapshot->strings, entry->frame.function),
				&out->function);
	return err;
}

static uint64_t row_key(const struct fleet_row *row)
{
	uint64_t names = (uint64_t)row->filename << 32 | row->function;

	return hash_u64(names) ^ hash_u64(row->line + 0x9e3779b97f4a7c15ull);
}

/* The row of an entry; NULL: there are too many. */
static int row_find(struct fleet *fleet, const struct fleet_row *name, struct fleet_row **out)
{
	uint64_t key = row_key(name);
	uint32_t at = id_map_find(&fleet->row_of, key);

	*out = NULL;
	if (at == ID_MAP_NONE) {
		if (fleet->count == ROWS_MAX)
			return 0;
		int err = id_map_append(&fleet->row_of, key, &fleet->rows, &fleet->capacity,
					fleet->count, sizeof(*fleet->rows));
		if (err)
			return err;
		at = (uint32_t)fleet->count++;
		fleet->rows[at] = *name;
	}
	*out = &fleet->rows[at];
	return 0;
}

static int entry_add(struct fleet *fleet, const struct statistic *entry, uint64_t total,
		     uint32_t file)
{
	double share = total ? (double)entry->size / (double)total : 0;
	struct fleet_row name, *row;
	int err = entry_name(fleet, entry, &name) ?: row_find(fleet, &name, &row);

	if (err)
		return err;
	if (!row) {
		fleet->other_size += entry->size;
		fleet->other_count += entry->count;
		fleet->other_rows++;
		return 0;
	}
	/* Several processes of a snapshot may be of one service. */
	if (row->last != fleet->snapshots) {
		row->last = fleet->snapshots;
		row->last_share = 0;
		row->snapshots++;
	}
	row->squares -= row->last_share * row->last_share;
	row->last_share += share;
	row->squares += row->last_share * row->last_share;
	row->size += entry->size;
	row->count += entry->count;
	row->shares += share;
	if (row->last_share > row->highest) {
		row->highest = row->last_share;
		row->highest_in = file;
	}
	return 0;
}

/* *key 0: it is not known which process it is. 0, -ENOMEM. */
static int process_key(struct fleet *fleet, const struct snapshot_meta *meta, uint64_t *key)
{
	uint32_t boot;
	int err = name_take(fleet, meta->boot, &boot);

	*key = meta->boot[0] && meta->start_ticks
		       ? hash_u64((uint64_t)boot << 32 | meta->pid) ^ hash_u64(~meta->start_ticks)
		       : 0;
	return err;
}

/*
 * Does a process of a snapshot count? 1; 0: there is a newer one of it; -ENOMEM. An exec in a
 * snapshot makes two of a process, which count both.
 */
static int process_counts(struct fleet *fleet, const struct snapshot_meta *meta, size_t input)
{
	uint64_t key;
	int err = process_key(fleet, meta, &key);
	uint32_t at = key ? id_map_find(&fleet->process_of, key) : ID_MAP_NONE;

	if (err || !key)
		return err ?: 1;
	if (at == ID_MAP_NONE) {
		err = id_map_append(&fleet->process_of, key, &fleet->processes,
				    &fleet->process_capacity, fleet->process_count,
				    sizeof(*fleet->processes));

		if (err)
			return err;
		fleet->processes[fleet->process_count++] =
			(struct fleet_process){meta->taken_realtime_ns, input};
		return 1;
	}
	struct fleet_process *process = &fleet->processes[at];
	if (process->input == input)
		return 1;
	fleet->any_older = true;
	if (!fleet->is_second && meta->taken_realtime_ns > process->taken_ns)
		*process = (struct fleet_process){meta->taken_realtime_ns, input};
	return 0;
}

/* Without the processes of which there is a newer one. *out NULL: nothing is left. 0, -errno. */
static int newest_pick(struct fleet *fleet, const struct snapshot *snapshot, size_t input,
		       struct snapshot **out)
{
	size_t count = snapshot_process_count(snapshot), older = 0;
	_cleanup_free_ signed char *wanted = calloc(count, 1);
	struct builder builder;
	int err = wanted ? 0 : -ENOMEM;

	*out = NULL;
	for (size_t i = 0; i < count && err >= 0; i++) {
		err = process_counts(fleet, snapshot_process(snapshot, i), input);
		wanted[i] = err == 1;
		older += !err;
	}
	fleet->older += older;
	if (err < 0 || older == count)
		return err < 0 ? err : 0;
	err = builder_begin(&builder);
	if (err)
		return err;
	err = merge_add(&builder, snapshot, wanted);
	if (err)
		builder_abort(&builder);
	else
		*out = merge_finish(&builder);
	return err;
}

static int snapshot_add(struct fleet *fleet, const struct snapshot *snapshot, uint32_t file)
{
	static const enum group_by groups[] = {
		[FLEET_LINE] = GROUP_LINENO,     [FLEET_FUNCTION] = GROUP_FUNCTION,
		[FLEET_FILE] = GROUP_FILENAME,   [FLEET_SERVICE] = GROUP_PROCESS,
		[FLEET_VERSION] = GROUP_PROCESS,
	};
	const struct statistics_opts opts = {.by = groups[fleet->by],
					     .filters = &fleet->choice.filter.filters,
					     .app = &fleet->choice.app};
	struct statistics statistics;
	int err = statistics_compute(snapshot, &opts, &statistics);

	if (err)
		return err;
	fleet->snapshots++;
	fleet->size += statistics.total_size;
	fleet->blocks += statistics.total_count;
	fleet->estimated |= statistics.sampled;
	for (size_t i = 0; i < statistics.count && !err; i++)
		err = entry_add(fleet, &statistics.entries[i], statistics.total_size, file);
	statistics_free(&statistics);
	return err;
}

static bool is_url(const char *path)
{
	return !strncasecmp(path, "http://", 7) || !strncasecmp(path, "https://", 8);
}

/* With a query, such as ?container=web. */
static bool url_is_valid(const char *url)
{
	char base[URL_BYTES];
	size_t bytes = strcspn(url, "?");

	for (const char *at = url + bytes; *at; at++)
		if (*at <= ' ' || *at >= 0x7f || *at == '#')
			return false;
	if (strlen(url) >= sizeof(base))
		return false;
	snprintf(base, sizeof(base), "%.*s", (int)bytes, url);
	return http_url_is_valid(base);
}

static int client_begin(struct fleet *fleet)
{
	static const char bearer[] = "Authorization: Bearer ";
	char token[HTTP_TOKEN_SIZE];

	if (fleet->client)
		return 0;
	if (fleet->token_file) {
		int err = http_token_read(fleet->token_file, token);

		if (err)
			return err;
		snprintf(fleet->authorization, sizeof(fleet->authorization), "%s%s", bearer, token);
	}
	return http_client_new(&fleet->client);
}

/* 0; also -EIO: the answer has another status than 200. */
static int answer_get(struct fleet *fleet, const char *url, struct http_answer *answer)
{
	char *headers[] = {fleet->authorization};
	const struct http_request request = {.url = url,
					     .headers = headers,
					     .header_count = fleet->authorization[0] != '\0',
					     .ca = fleet->ca,
					     .seconds = ANSWER_SECONDS,
					     .answer_max = ANSWER_BYTES};
	int err = http_ask(fleet->client, &request, answer);

	if (!err && answer->status != 200) {
		char text[256];

		http_answer_text(answer, text, sizeof(text));
		err = error_set(-EIO, "%s", text);
	} else if (!err && answer->is_cut) {
		err = error_set(-EFBIG, "it is larger than 256 MiB");
	}
	return err;
}

/* What was fetched is kept: a second round is to see the same. */
static int fetched_keep(struct fleet *fleet, struct fleet_input *input, const struct buffer *body)
{
	if (!fleet->fetched && !(fleet->fetched = tmpfile()))
		return error_errno();
	off_t at = lseek(fileno(fleet->fetched), 0, SEEK_END);
	if (at < 0)
		return error_errno();
	input->offset = (uint64_t)at;
	input->bytes = body->size;
	return descriptor_write(fileno(fleet->fetched), body->data, body->size);
}

static int fetched_read(const struct fleet *fleet, const struct fleet_input *input,
			struct buffer *out)
{
	int err = buffer_reserve(out, input->bytes);

	while (!err && out->size < input->bytes) {
		ssize_t got = pread(fileno(fleet->fetched), out->data + out->size,
				    input->bytes - out->size, (off_t)(input->offset + out->size));

		if (got <= 0)
			return got ? error_errno() : -EIO;
		out->size += (size_t)got;
	}
	return err;
}

/* 0, or -errno after an error message. */
static int url_load(struct fleet *fleet, struct fleet_input *input, struct snapshot **out)
{
	_cleanup_(http_answer_free) struct http_answer answer = {0};
	const char *url = input->path;
	int err = fleet->is_second    ? fetched_read(fleet, input, &answer.body)
		  : url_is_valid(url) ? client_begin(fleet) ?: answer_get(fleet, url, &answer)
				      : error_set(-EINVAL, "it is no URL of http or https");

	if (!err && !fleet->is_second)
		err = fetched_keep(fleet, input, &answer.body);
	if (!err) {
		struct infile file = infile_memory(answer.body.data, answer.body.size);

		err = pprof_read(&file, out);
	}
	return err ? error_print(err,
				 answer.status == 401 ? "--token-file FILE has the token" : NULL,
				 "%s", url)
		   : 0;
}

/*
 * Was the file given before, maybe under another name? 1; 0; -ENOMEM. The moments of a recording
 * (FILE@TIME) have their names.
 */
static int is_repeated(struct fleet *fleet, const char *path)
{
	uint32_t known = strings_count(fleet->given), id;
	struct buffer name = {0};
	struct stat st;
	int err = is_url(path) || stat(path, &st)
			  ? buffer_printf(&name, "%s", path)
			  : buffer_printf(&name, "/%ju:%ju", (uintmax_t)st.st_dev,
					  (uintmax_t)st.st_ino);

	err = err ?: strings_intern(fleet->given, (const char *)name.data, name.size, &id);
	buffer_free(&name);
	return err ?: id < known;
}

static int input_add(struct fleet *fleet, size_t number)
{
	struct fleet_input *input = &fleet->inputs[number];
	const struct pid_choice pids = {.ages.ages = AGES_ALL};
	struct snapshot *whole, *newest;
	uint32_t file;

	if (input->is_out)
		return 0;
	/* It is told; the others are added up all the same. */
	if (is_url(input->path) ? url_load(fleet, input, &whole)
				: cli_snapshot_pick(input->path, &pids, &whole)) {
		fleet->unread++;
		input->is_out = true;
		return 0;
	}
	int err = newest_pick(fleet, whole, number, &newest);
	snapshot_free(whole);
	if (!err && newest)
		err = name_take(fleet, input->path, &file) ?: snapshot_add(fleet, newest, file);
	snapshot_free(newest);
	return err;
}

static int inputs_begin(struct fleet *fleet)
{
	fleet->inputs = calloc(fleet->files.count, sizeof(*fleet->inputs));
	if (!fleet->inputs)
		return -ENOMEM;
	for (size_t i = 0; i < fleet->files.count; i++) {
		const char *path = fleet->files.items[i];
		int repeated = is_repeated(fleet, path);

		if (repeated < 0)
			return repeated;
		fleet->inputs[i] = (struct fleet_input){.path = path, .is_out = repeated};
		fleet->repeated += (uint64_t)repeated;
	}
	return 0;
}

/* The sums of a first round, which has seen several snapshots of one process, are for nothing. */
static void sums_drop(struct fleet *fleet)
{
	id_map_free(&fleet->row_of);
	fleet->row_of = (struct id_map){0};
	fleet->count = 0;
	fleet->snapshots = fleet->size = fleet->blocks = fleet->older = 0;
	fleet->other_size = fleet->other_count = fleet->other_rows = 0;
	fleet->estimated = 0;
	fleet->is_second = true;
}

static int inputs_add(struct fleet *fleet)
{
	int err = 0;

	for (size_t i = 0; i < fleet->files.count && !err; i++)
		err = input_add(fleet, i);
	if (err || !fleet->any_older)
		return err;
	sums_drop(fleet);
	for (size_t i = 0; i < fleet->files.count && !err; i++)
		err = input_add(fleet, i);
	return err;
}

/* --- outliers --------------------------------------------------------------------------------- */

/* The mean share in the snapshots other than the highest one; those without it have none of it. */
static double others_mean(const struct fleet *fleet, const struct fleet_row *row)
{
	return (row->shares - row->highest) / (double)(fleet->snapshots - 1);
}

/* Does one snapshot have much more of it than the others? */
static bool is_outlier(const struct fleet *fleet, const struct fleet_row *row)
{
	/* Services run where they run. */
	if (fleet->snapshots < OUTLIER_OF || is_of_services(fleet))
		return 0;
	double mean = others_mean(fleet, row);
	double squares =
		(row->squares - row->highest * row->highest) / (double)(fleet->snapshots - 1);
	double deviation = sqrt(fmax(squares - mean * mean, 0));

	return row->highest > mean + OUTLIER_AT * deviation + OUTLIER_MORE;
}

static int size_compare(const void *a, const void *b)
{
	const struct fleet_row *x = a, *y = b;

	return CMP(y->size, x->size) ?: CMP(x->filename, y->filename) ?: CMP(x->line, y->line);
}

/* --- what is printed -------------------------------------------------------------------------- */

static void row_name(const struct fleet *fleet, const struct fleet_row *row, FILE *out)
{
	text_print(out, strings_get(fleet->names, row->filename));
	if (fleet->by == FLEET_VERSION) {
		putc(' ', out);
		text_print(out,
			   row->function ? strings_get(fleet->names, row->function) : "(unknown)");
	} else if (row->line)
		fprintf(out, ":%u", row->line);
	else if (row->function) {
		fputs(" in ", out);
		text_print(out, strings_get(fleet->names, row->function));
	}
}

static void outliers_text(const struct fleet *fleet)
{
	unsigned int shown = 0;

	for (size_t i = 0; i < fleet->count && shown < OUTLIERS_MAX; i++) {
		const struct fleet_row *row = &fleet->rows[i];

		if (!is_outlier(fleet, row))
			continue;
		if (!shown++)
			puts("Of one snapshot far more than of the others:");
		printf("  %.1f %% of ", 100 * row->highest);
		text_print(stdout, strings_get(fleet->names, row->highest_in));
		printf(", %.1f %% of the others: ", 100 * others_mean(fleet, row));
		row_name(fleet, row, stdout);
		putchar('\n');
	}
}

static const char *plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

static void foot_text(const struct fleet *fleet)
{
	const char *before = "Not in it: ";

	if (fleet->unread) {
		printf("%s%" PRIu64 " snapshot%s that could not be read", before, fleet->unread,
		       plural(fleet->unread));
		before = "; ";
	}
	if (fleet->other_rows) {
		printf("%s%s of %s entries beyond the first %u", before,
		       SIZE_TEXT(fleet->other_size), COUNT_TEXT(fleet->other_rows), ROWS_MAX);
		before = "; ";
	}
	if (before[0] == ';')
		putchar('\n');
	if (fleet->repeated)
		printf("%" PRIu64 " file%s given more than once, counted once\n", fleet->repeated,
		       plural(fleet->repeated));
	if (fleet->older)
		printf("%" PRIu64
		       " older snapshot%s of a process left out: its newest one counts\n",
		       fleet->older, plural(fleet->older));
	if (fleet->estimated)
		puts("Sizes are sums of estimates");
}

static void fleet_text(const struct fleet *fleet)
{
	static const char *const titles[] = {"LINE", "FUNCTION", "FILE", "SERVICE",
					     "SERVICE VERSION"};
	static const char *const names[] = {"line", "function", "file", "service", "version"};
	size_t top = fleet->choice.opts.top, shown = top && top < fleet->count ? top : fleet->count;
	struct terminal terminal;

	terminal_begin(&terminal, &stdout);
	printf("tracer: %s snapshot%s, %s in %s block%s\n", COUNT_TEXT(fleet->snapshots),
	       plural(fleet->snapshots), SIZE_TEXT(fleet->size), COUNT_TEXT(fleet->blocks),
	       plural(fleet->blocks));
	if (shown < fleet->count)
		printf("Top %zu of %zu %ss by size\n", shown, fleet->count, names[fleet->by]);
	else if (fleet->count == 1)
		printf("The only %s\n", names[fleet->by]);
	else
		printf("All %zu %ss by size\n", fleet->count, names[fleet->by]);
	printf("SIZE\tSHARE\tCOUNT\tIN\tHIGHEST\t%s\n", titles[fleet->by]);
	for (size_t i = 0; i < shown; i++) {
		const struct fleet_row *row = &fleet->rows[i];

		printf("%s\t%.1f %%\t%s\t%s\t%.1f %%\t", SIZE_TEXT(row->size),
		       fleet->size ? 100 * (double)row->size / (double)fleet->size : 0,
		       COUNT_TEXT(row->count), COUNT_TEXT(row->snapshots), 100 * row->highest);
		row_name(fleet, row, stdout);
		putchar('\n');
	}
	outliers_text(fleet);
	foot_text(fleet);
	terminal_end(&terminal);
}

static void row_json(struct json *json, const struct fleet *fleet, const struct fleet_row *row)
{
	json_open(json, NULL, '{');
	if (is_of_services(fleet)) {
		json_text(json, "service", strings_get(fleet->names, row->filename));
		if (fleet->by == FLEET_VERSION)
			json_text(json, "version",
				  row->function ? strings_get(fleet->names, row->function) : NULL);
	} else {
		json_text(json, "filename", strings_get(fleet->names, row->filename));
		if (fleet->by == FLEET_LINE)
			json_unsigned(json, "lineno", row->line);
		if (row->function)
			json_text(json, "function", strings_get(fleet->names, row->function));
	}
	json_numbers(json, {"size", row->size}, {"count", row->count},
		     {"snapshots", row->snapshots});
	json_fixed(json, "share_highest", row->highest, 6);
	json_text(json, "highest", strings_get(fleet->names, row->highest_in));
	json_bool(json, "outlier", is_outlier(fleet, row));
	json_close(json, '}');
}

static void fleet_json(const struct fleet *fleet)
{
	static const char *const names[] = {"line", "function", "file", "service", "version"};
	size_t top = fleet->choice.opts.top;
	struct json json = {.out = stdout};

	json_open(&json, NULL, '{');
	json_text(&json, "by", names[fleet->by]);
	json_numbers(&json, {"snapshots", fleet->snapshots}, {"unread", fleet->unread},
		     {"repeated", fleet->repeated}, {"older", fleet->older}, {"size", fleet->size},
		     {"count", fleet->blocks});
	json_bool(&json, "estimated", fleet->estimated);
	json_open(&json, "statistics", '[');
	for (size_t i = 0; i < fleet->count && (!top || i < top); i++)
		row_json(&json, fleet, &fleet->rows[i]);
	json_close(&json, ']');
	json_open(&json, "other", '{');
	json_numbers(&json, {"size", fleet->other_size}, {"count", fleet->other_count},
		     {"entries", fleet->other_rows});
	json_close(&json, '}');
	json_end(&json);
}

/* --- the command ------------------------------------------------------------------------------ */

enum { KEY_BY = 0x720, KEY_TOKEN, KEY_CA };

static const struct argp_option options[] = {
	{"by", KEY_BY, "KEY", 0,
	 "line (default), function, file, service (as OTEL_SERVICE_NAME says, else the container, "
	 "else the command), or version: of a service, as OTEL_RESOURCE_ATTRIBUTES says",
	 1},
	{"token-file", KEY_TOKEN, "FILE", 0,
	 "each URL gets the token in its first line (Authorization: Bearer TOKEN)", 1},
	{"ca", KEY_CA, "FILE", 0,
	 "the authorities that are trusted, as PEM (default: the system's)", 1},
	{0},
};

static const struct argp_child children[] = {{&cli_figures_argp, 0, NULL, 0},
					     {&cli_filter_argp, 0, NULL, 0},
					     {&cli_app_argp, 0, NULL, 0},
					     {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	static const struct cli_word words[] = {{"line", FLEET_LINE},
						{"function", FLEET_FUNCTION},
						{"file", FLEET_FILE},
						{"service", FLEET_SERVICE},
						{"version", FLEET_VERSION}};
	struct fleet *fleet = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &fleet->choice;
		state->child_inputs[1] = &fleet->choice.filter;
		state->child_inputs[2] = &fleet->choice.app;
		return 0;
	case KEY_BY:
		return CLI_WORD("--by", arg, words, fleet->by);
	case KEY_TOKEN:
		fleet->token_file = arg;
		return 0;
	case KEY_CA:
		fleet->ca = arg;
		return 0;
	}
	return cli_parse_arguments(key, state, &fleet->files);
}

static int fleet_run(struct fleet *fleet)
{
	int err = strings_new(&fleet->names) ?: strings_new(&fleet->given);
	uint32_t nothing;

	/* Number 0 is no name. */
	err = err ?: name_take(fleet, "", &nothing);
	err = err ?: inputs_begin(fleet) ?: inputs_add(fleet);
	if (err)
		return error_print(err, NULL, "fleet"), EXIT_FAILED;
	if (!fleet->snapshots)
		return EXIT_FAILED;
	if (fleet->count)
		qsort(fleet->rows, fleet->count, sizeof(*fleet->rows), size_compare);
	if (fleet->choice.format == FORMAT_JSON)
		fleet_json(fleet);
	else
		fleet_text(fleet);
	return stream_flush(stdout) || fleet->unread ? EXIT_FAILED : EXIT_DONE;
}

int cli_fleet(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "FILE|URL...",
		.doc = "Adds up the snapshots of many processes or machines: which lines hold most "
		       "of all, in how many they do, and where one has far more than the others. A "
		       "snapshot is in memory only while it is added.",
		.children = children,
	};
	struct fleet fleet = {0};

	report_choice_default(&fleet.choice);
	int status = cli_parse(&argp, argc, argv, 0, &fleet);
	if (status) {
		status = status < 0 ? EXIT_DONE : status;
	} else if (!fleet.files.count) {
		error_print(error_set(-EINVAL, "no snapshot is named"), "tracer fleet FILE|URL...",
			    "fleet");
		status = EXIT_USAGE;
	} else {
		status = fleet_run(&fleet);
	}
	strings_free(fleet.names);
	strings_free(fleet.given);
	http_client_free(fleet.client);
	if (fleet.fetched)
		fclose(fleet.fetched);
	free(fleet.inputs);
	free(fleet.processes);
	id_map_free(&fleet.process_of);
	free(fleet.rows);
	id_map_free(&fleet.row_of);
	report_choice_free(&fleet.choice);
	return status;
}

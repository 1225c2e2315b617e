/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/tui/watch.h"

#include <curses.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cmd/tui/screen.h"
#include "proc/container/state_file.h"
#include "report/source.h"
#include "session/ctl/ask.h"
#include "snapshot/ages.h"
#include "util/buffer.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/outfile.h"
#include "util/sorted.h"

#define PERIOD_NS     1000000000ull
#define COST_OF       100u /* refreshes take at most 1/100 of a CPU, */
#define NAMES_OF      10u  /* names that are read for the first time at most 1/10 */
#define PERIOD_MAX_NS 60000000000ull
#define ANSWER_MAX    (1ull << 31)
#define LAST_BYTES    512 /* of the messages, to find the last line */

struct watch {
	const struct watch_opts *opts;
	struct watch_model model;
	struct watch_view view;
	int memory;  /* the memfd that the session writes to */
	int signals; /* signalfd: the user or the system wants the end */
	enum request_kind asked;
	int asking; /* an answer is awaited; */
	int stale;  /* other sums than those are wanted by now */
	struct buffer answer, data;
	uint32_t *rows;
	size_t row_count, row_capacity;
	uint64_t next_ns, names_ns; /* when sums and names may be asked for next */
	uint64_t begun_ns, cpu_ns;  /* the current request: when, and our CPU time by then */
	struct outfile *saving;
	char saving_name[64];
	int save_wanted;
	struct source *source; /* of the opened row */
	struct source_roots roots;
	off_t reported; /* of the messages */
};

static void rows_make(struct watch *watch)
{
	size_t want = watch->view.top + 2 * watch_screen_rows();
	uint32_t *rows;

	if (watch->view.cursor + 2 * watch_screen_rows() > want)
		want = watch->view.cursor + 2 * watch_screen_rows();
	if (want > watch->row_capacity) {
		rows = reallocarray(watch->rows, want, sizeof(*rows));
		if (!rows)
			return;
		watch->rows = rows;
		watch->row_capacity = want;
	}
	int count = watch_groups_rows(&watch->view.groups, &watch->model, want, watch->rows);

	watch->row_count = count > 0 ? (size_t)count : 0;
}

/* The last line of the messages, if there is a new one. */
static void message_look(struct watch *watch)
{
	char text[LAST_BYTES + 1];
	struct stat st;

	if (watch->opts->messages < 0 || fstat(watch->opts->messages, &st) ||
	    st.st_size <= watch->reported)
		return;
	watch->reported = st.st_size;
	ssize_t bytes = pread(watch->opts->messages, text, LAST_BYTES,
			      st.st_size > LAST_BYTES ? st.st_size - LAST_BYTES : 0);
	if (bytes <= 0)
		return;
	text[bytes - (text[bytes - 1] == '\n')] = '\0';
	char *line = strrchr(text, '\n');
	snprintf(watch->view.message, sizeof(watch->view.message), "%.250s",
		 line ? line + 1 : text);
}

static char *text_make(struct watch *watch, int detail)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	if (detail)
		watch_detail(&watch->view, &watch->model, watch->source, out);
	else
		watch_header(&watch->view, &watch->model, clock_ns(CLOCK_MONOTONIC), out);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

static void draw(struct watch *watch)
{
	rows_make(watch);
	message_look(watch);
	char *header = text_make(watch, 0);
	char *detail = watch->view.opened ? text_make(watch, 1) : NULL;
	if (!watch->model.answers) {
		free(header);
		header = strdup("waiting for the session\n");
	}
	watch_screen_draw(&watch->view, &watch->model, watch->rows, watch->row_count,
			  header ? header : "", detail);
	free(header);
	free(detail);
}

static void source_close(struct watch *watch)
{
	source_free(watch->source);
	watch->source = NULL;
	for (size_t i = 0; i < watch->roots.count; i++)
		close(watch->roots.fds[i]);
	watch->roots.count = 0;
}

/* Source lines come from the root directory of the row's process. */
static void source_open(struct watch *watch)
{
	uint32_t group = id_map_find(&watch->view.groups.keys, watch->view.open_key);
	const struct watch_process *process;

	source_close(watch);
	if (!watch->view.opened || group == ID_MAP_NONE)
		return;
	process = &watch->model.processes[watch->view.groups.items[group].process];
	int root = state_root_open((pid_t)process->info.pid);
	if (root < 0)
		return;
	watch->roots = (struct source_roots){.fds = {root}, .count = 1};
	if (source_new(&watch->source, &watch->roots))
		watch->source = NULL;
}

/* --- requests --- */

static int request_begin(struct watch *watch, const struct request *request, int passed)
{
	int err = ask_begin(watch->opts->session, request, passed, &watch->answer);

	watch->asked = request->kind;
	watch->stale = 0;
	watch->asking = !err;
	watch->begun_ns = clock_ns(CLOCK_MONOTONIC);
	watch->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	return err;
}

/* Only once processes are known: one of them stands for the session. */
static int save_begin(struct watch *watch)
{
	struct request request = {.kind = REQUEST_SNAPSHOT, .all = 1};
	time_t now = time(NULL);
	struct tm tm;

	watch->save_wanted = 0;
	if (!watch->model.process_count || !localtime_r(&now, &tm))
		return 0;
	request.pid = watch->model.processes[0].info.pid;
	snprintf(watch->saving_name, sizeof(watch->saving_name),
		 "tracer-%u-%04d%02d%02d-%02d%02d%02d.pb.gz", request.pid, tm.tm_year + 1900,
		 tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
	int err = outfile_open(&watch->saving, watch->saving_name, OUTFILE_OWN);
	if (err) {
		snprintf(watch->view.message, sizeof(watch->view.message), "%s: %s",
			 watch->saving_name, error_reason(err));
		return 0;
	}
	snprintf(watch->view.message, sizeof(watch->view.message), "writing %s",
		 watch->saving_name);
	return request_begin(watch, &request, outfile_fd(watch->saving));
}

/* In a request, 0 is no limit. */
static uint32_t age_ms(uint64_t age_ns)
{
	return (uint32_t)lesser(age_ns / AGE_UNIT_NS + (age_ns < AGE_UNIT_NS), UINT32_MAX);
}

/* Which ages blocks have now that are wanted. */
static void ages_ask(const struct ages *ages, uint64_t now_realtime_ns, struct request *request)
{
	uint64_t least_ns = ages->least_ns, most_ns = ages->most_ns;

	if (ages->until_realtime_ns < now_realtime_ns &&
	    least_ns < now_realtime_ns - ages->until_realtime_ns)
		least_ns = now_realtime_ns - ages->until_realtime_ns;
	if (ages->from_realtime_ns)
		most_ns = lesser(most_ns,
				 now_realtime_ns - lesser(ages->from_realtime_ns, now_realtime_ns));
	request->older_ms = least_ns ? age_ms(least_ns) : 0;
	request->younger_ms = most_ns != UINT64_MAX ? age_ms(most_ns) : 0;
}

/* Sends what is due. 0, -errno. */
static int requests_step(struct watch *watch)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	struct request request = {.kind = REQUEST_SUMS,
				  .layer = watch->view.layer,
				  .by = watch->model.by,
				  .since = watch->model.since};

	if (watch->asking)
		return 0;
	ages_ask(&watch->opts->ages, clock_ns(CLOCK_REALTIME), &request);
	if (watch->save_wanted)
		return save_begin(watch);
	if (now >= watch->next_ns && (!watch->view.paused || !watch->next_ns))
		return request_begin(watch, &request, watch->memory);
	if (now >= watch->names_ns && watch_model_missing(&watch->model, now, &request))
		return request_begin(watch, &request, watch->memory);
	return 0;
}

/* What the request has cost the session and, so far, the view. */
static uint64_t cost_ns(const struct watch *watch)
{
	uint64_t theirs = 0;

	if (watch->data.size >= 3 * sizeof(uint64_t))
		memcpy(&theirs,
		       watch->data.data + (watch->asked == REQUEST_SUMS
						   ? offsetof(struct sums_header, cpu_ns)
						   : offsetof(struct stacks_header, cpu_ns)),
		       sizeof(theirs));
	return theirs + clock_ns(CLOCK_PROCESS_CPUTIME_ID) - watch->cpu_ns;
}

static int sums_done(struct watch *watch)
{
	if (watch->stale)
		return 0;
	int err = ask_memory_read(watch->memory, ANSWER_MAX, &watch->data)
			  ?: watch_model_sums(&watch->model, watch->data.data, watch->data.size);

	if (err)
		return err;
	draw(watch);
	uint64_t pause_ns = cost_ns(watch) * COST_OF;
	watch->view.interval_ns = pause_ns < PERIOD_NS       ? PERIOD_NS
				  : pause_ns > PERIOD_MAX_NS ? PERIOD_MAX_NS
							     : pause_ns;
	watch->next_ns = watch->begun_ns + watch->view.interval_ns;
	return 0;
}

static int stacks_done(struct watch *watch)
{
	int err = ask_memory_read(watch->memory, ANSWER_MAX, &watch->data)
			  ?: watch_model_stacks(&watch->model, watch->data.data, watch->data.size);
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	struct request next;

	watch->names_ns = now + cost_ns(watch) * (NAMES_OF - 1);
	/* Once all names are known, the rows are drawn with them at once. */
	if (!err && !watch_model_missing(&watch->model, now, &next))
		draw(watch);
	return err;
}

static void save_done(struct watch *watch, const char *answer)
{
	int err = strstr(answer, "\"error\"") ? -EIO : outfile_commit(watch->saving);

	if (err == -EIO)
		outfile_discard(watch->saving);
	watch->saving = NULL;
	snprintf(watch->view.message, sizeof(watch->view.message), "%s: %s", watch->saving_name,
		 err == -EIO ? answer
		 : err       ? error_reason(err)
			     : "snapshot of all processes written");
	draw(watch);
}

/* 0, -errno; -EPIPE: the session has ended. */
static int answer_step(struct watch *watch)
{
	int got = ask_step(watch->opts->session, &watch->answer);
	const char *answer = (const char *)watch->answer.data;

	if (got <= 0)
		return got;
	watch->asking = 0;
	if (watch->asked == REQUEST_SNAPSHOT) {
		save_done(watch, answer);
		return 0;
	}
	if (!strncmp(answer, "{\"error\"", 8)) {
		/* A process has ended since the sums: the next ones do not have it. */
		watch->names_ns = clock_ns(CLOCK_MONOTONIC) + PERIOD_NS;
		return watch->asked == REQUEST_STACKS
			       ? 0
			       : error_set(-EPROTO, "the session refuses: %.200s", answer);
	}
	return watch->asked == REQUEST_SUMS ? sums_done(watch) : stacks_done(watch);
}

/* --- the loop --- */

/* 1: the user quits. */
static int keys_step(struct watch *watch)
{
	int key, any = 0;

	while ((key = getch()) != ERR) {
		any = 1;
		switch (watch_view_key(&watch->view, &watch->model, key, watch->rows,
				       watch->row_count)) {
		case WATCH_QUIT:
			return 1;
		case WATCH_SAVE:
			watch->save_wanted = 1;
			break;
		case WATCH_ASK:
			watch->next_ns = 0;
			watch->stale = 1;
			break;
		case WATCH_OPEN:
			source_open(watch);
			break;
		case WATCH_DRAW:
			break;
		}
		rows_make(watch); /* the next key may be about them */
	}
	if (any)
		draw(watch);
	return 0;
}

static int wait_ms(const struct watch *watch)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC), until = now + PERIOD_NS;

	if (watch->asking)
		return 1000;
	if (!watch->view.paused && watch->next_ns < until)
		until = watch->next_ns;
	if (watch->names_ns > now && watch->names_ns < until)
		until = watch->names_ns;
	return until > now ? (int)((until - now) / 1000000) + 1 : 0;
}

static int watch_follow(struct watch *watch)
{
	struct pollfd polls[] = {{.fd = STDIN_FILENO, .events = POLLIN},
				 {.fd = watch->opts->session, .events = POLLIN},
				 {.fd = watch->opts->end, .events = POLLIN},
				 {.fd = watch->signals, .events = POLLIN}};
	int err;

	for (;;) {
		err = requests_step(watch);
		if (err)
			return err;
		polls[0].revents = polls[1].revents = polls[2].revents = polls[3].revents = 0;
		if (poll(polls, 4, wait_ms(watch)) < 0 && errno != EINTR)
			return error_errno();
		if (polls[2].revents)
			return WATCH_END_SESSION;
		if (polls[3].revents || keys_step(watch) ||
		    (polls[0].revents & (POLLHUP | POLLERR | POLLNVAL)))
			return WATCH_END_QUIT;
		if (polls[1].revents)
			err = answer_step(watch);
		if (err)
			return err == -EPIPE || err == -ECONNRESET ? WATCH_END_SESSION : err;
	}
}

/* What a user or the system ends the view with; the terminal must be given back first. */
static int signals_take(const struct watch_opts *opts)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGQUIT);
	/* The session itself reacts to Ctrl-C, and then ends the view. */
	if (opts->end >= 0)
		signal(SIGINT, SIG_IGN);
	else
		sigaddset(&set, SIGINT);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

int watch_run(const struct watch_opts *opts)
{
	struct watch watch = {.opts = opts,
			      .view.ends_session = opts->ends_session,
			      .view.by_age = opts->by_age,
			      .view.ages = opts->ages};

	if (!watch_screen_is_possible())
		return error_set(-ENOTTY, "stdin and stdout are no terminal with a movable cursor");
	int err = watch_model_begin(&watch.model);
	watch.view.groups.keys.seed = watch.model.pids.seed;
	watch.model.by = opts->by_age ? REQUEST_BY_AGE : REQUEST_BY_STACK;
	watch.memory = memfd_create("tracer-watch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	watch.signals = signals_take(opts);
	if (!err && (watch.memory < 0 || watch.signals < 0))
		err = error_errno();
	err = err ?: watch_screen_begin();
	if (!err) {
		draw(&watch);
		err = watch_follow(&watch);
		watch_screen_end();
	}
	outfile_discard(watch.saving);
	source_close(&watch);
	watch_groups_free(&watch.view.groups);
	watch_model_end(&watch.model);
	buffer_free(&watch.answer);
	buffer_free(&watch.data);
	free(watch.rows);
	close(watch.memory);
	close(watch.signals);
	return err;
}

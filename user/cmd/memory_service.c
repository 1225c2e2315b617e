/* SPDX-License-Identifier: Apache-2.0 */
/* tracer memory of several processes: what each of them has, and all of them together. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/memory.h"
#include "cmd/options/options.h"
#include "cmd/options/targets.h"
#include "inspect/rss/service.h"
#include "inspect/rss/sharing.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "report/report_parts.h"
#include "util/error.h"
#include "util/json.h"
#include "util/one_line.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/stream.h"
#include "util/terminal.h"
#include "util/text.h"

#define MEMBERS_BRIEF 4u /* of a set, named in the text */
#define SETS_BRIEF    4u /* on a page of a terminal */

/* What is told. */
struct service_answer {
	const pid_t *pids; /* as they were given: bit n of a set's members is the n-th */
	size_t count;
	struct service service;
	struct sharing sharing;
	int sharing_err;
};

/* In pages that other processes have, too. */
static uint64_t shared_of(uint64_t rss, uint64_t own)
{
	return rss > own ? rss - own : 0;
}

/* The largest first, by its part of the whole. */
static int process_compare(const void *a, const void *b)
{
	const struct service_process *x = a, *y = b;

	return CMP(y->totals.pss, x->totals.pss) ?: CMP(x->info.pid, y->info.pid);
}

static void process_row(const struct service_process *process)
{
	const struct smaps_totals *totals = &process->totals;

	printf("%d\t%s\t%s\t%s\t%s\t%s\t", (int)process->info.pid, SIZE_TEXT(totals->rss),
	       SIZE_TEXT(totals->pss), SIZE_TEXT(totals->own),
	       SIZE_TEXT(shared_of(totals->rss, totals->own)),
	       process->parent ? SIZE_TEXT(process->unshared) : "");
	text_print(stdout, process->info.name);
	putchar('\n');
}

static void process_text(const struct service_process *process)
{
	const struct smaps_totals *totals = &process->totals;

	fputs("  ", stdout);
	text_print(stdout, process->info.name);
	printf(" (PID %d): rss=%s, pss=%s, private=%s, shared=%s", (int)process->info.pid,
	       SIZE_TEXT(totals->rss), SIZE_TEXT(totals->pss), SIZE_TEXT(totals->own),
	       SIZE_TEXT(shared_of(totals->rss, totals->own)));
	if (process->parent)
		printf(", unshared=%s, forked by PID %d", SIZE_TEXT(process->unshared),
		       (int)process->parent);
	if (totals->swap)
		printf(", swapped out=%s", SIZE_TEXT(totals->swap));
	putchar('\n');
}

/* The process with the most pages that were unshared; NULL: none. */
static const struct service_process *most_unshared(const struct service *service)
{
	const struct service_process *most = NULL;

	for (size_t i = 0; i < service->count; i++)
		if (service->processes[i].unshared &&
		    (!most || service->processes[i].unshared > most->unshared))
			most = &service->processes[i];
	return most;
}

/* Why it is not told who shares what; NULL: it is. */
static const char *sharing_missing(const struct service_answer *answer)
{
	if (answer->sharing_err)
		return error_reason(answer->sharing_err);
	return answer->sharing.is_hidden ? "the kernel does not show which pages are the same"
					 : NULL;
}

static void foot_text(const struct service_answer *answer, const struct report_opts *opts)
{
	const struct service *service = &answer->service;
	const char *missing = sharing_missing(answer);
	const struct service_process *most = most_unshared(service);
	struct one_line line = {0};

	printf("Together: %s (PSS: what several have counts in parts): %s of single processes, %s "
	       "of several\n",
	       SIZE_TEXT(service->pss), SIZE_TEXT(service->own),
	       SIZE_TEXT(shared_of(service->pss, service->own)));
	if (most)
		puts("Unshared: pages that a process had in common with the one that forked it, "
		     "until one of them wrote to them; or that both have allocated since");
	if (service->missing)
		one_line_add(&line, "%zu process%s could not be read", service->missing,
			     service->missing > 1 ? "es" : "");
	if (service->swap)
		one_line_add(&line, "%s swapped out beside it", SIZE_TEXT(service->swap));
	if (missing)
		one_line_add(&line, "who shares what is not told: %s", missing);
	if (answer->sharing.left_out)
		one_line_add(&line, "%s not looked at for who shares it",
			     SIZE_TEXT(answer->sharing.left_out));
	if (!line.count)
		one_line_add(&line, "complete, as the kernel counts");
	one_line_print(stdout, "Figures", &line, opts->brief, opts->color);
	printf("next: tracer memory %s-p %d\n", most ? "--unshared " : "",
	       (int)(most ? most : service->processes)->info.pid);
}

static bool is_member(const struct sharing_set *set, size_t n)
{
	return set->members[n / 64] >> n % 64 & 1;
}

static void members_print(const struct service_answer *answer, const struct sharing_set *set,
			  size_t most)
{
	size_t printed = 0;

	if (set->count == answer->count && !answer->service.missing) {
		printf("all %zu", set->count);
		return;
	}
	for (size_t i = 0; i < answer->count && printed < most; i++)
		if (is_member(set, i))
			printf("%s%d", printed++ ? ", " : "", (int)answer->pids[i]);
	if (printed < set->count)
		printf(" and %zu more", set->count - printed);
}

/* Pages that several have, by who has them. */
static void sharing_text(const struct service_answer *answer, const struct report_opts *opts)
{
	const struct sharing *sharing = &answer->sharing;
	size_t shown = sharing->count, most = opts->brief ? MEMBERS_BRIEF : SHARING_PROCESSES;

	if (opts->brief && !opts->top_asked && shown > SETS_BRIEF)
		shown = SETS_BRIEF;
	if (!sharing->count)
		return;
	puts("Shared pages, each counted once, by the processes that have them:");
	if (opts->tables)
		puts("SIZE\tOF FILES\tALSO OTHERS\tPROCESSES");
	for (size_t i = 0; i < shown; i++) {
		const struct sharing_set *set = &sharing->sets[i];

		printf(opts->tables ? "%s\t%s\t%s\t" : "  %s, of files=%s, also of others=%s: ",
		       SIZE_TEXT(set->anonymous + set->file), SIZE_TEXT(set->file),
		       SIZE_TEXT(set->outside));
		if (sharing->has_rest && i == SHARING_SETS)
			fputs("other sets", stdout);
		else
			members_print(answer, set, most);
		putchar('\n');
	}
	if (shown < sharing->count)
		printf("%zu other sets of processes; -v: all\n", sharing->count - shown);
}

static void service_text(const struct service_answer *answer, const struct report_opts *opts)
{
	const struct service *service = &answer->service;
	size_t shown = report_rows(opts, service->count);
	struct terminal terminal;

	terminal_begin(&terminal, &stdout);
	printf("tracer: %zu processes, read in %.1f ms\n", service->count,
	       (double)service->elapsed_ns / 1e6);
	if (opts->tables)
		puts("PID\tRSS\tPSS\tPRIVATE\tSHARED\tUNSHARED\tPROCESS");
	for (size_t i = 0; i < shown; i++)
		(opts->tables ? process_row : process_text)(&service->processes[i]);
	if (shown < service->count)
		printf("%zu other processes\n", service->count - shown);
	sharing_text(answer, opts);
	foot_text(answer, opts);
	terminal_end(&terminal);
}

static void sums_json(struct json *json, uint64_t rss, uint64_t pss, uint64_t own, uint64_t swap)
{
	json_numbers(json, {"rss", rss}, {"pss", pss}, {"private", own},
		     {"shared", shared_of(rss, own)}, {"swap", swap});
}

static void sharing_json(struct json *json, const struct service_answer *answer)
{
	const struct sharing *sharing = &answer->sharing;
	const char *missing = sharing_missing(answer);

	if (missing) {
		json_text(json, "sharing_refused", missing);
		return;
	}
	json_open(json, "sharing", '[');
	for (size_t i = 0; i < sharing->count; i++) {
		const struct sharing_set *set = &sharing->sets[i];

		json_open(json, NULL, '{');
		if (!sharing->has_rest || i != SHARING_SETS) {
			json_open(json, "pids", '[');
			for (size_t n = 0; n < answer->count; n++)
				if (is_member(set, n))
					json_signed(json, NULL, answer->pids[n]);
			json_close(json, ']');
		}
		json_numbers(json, {"anonymous", set->anonymous}, {"file", set->file},
			     {"outside", set->outside});
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void service_json(const struct service_answer *answer)
{
	const struct service *service = &answer->service;
	struct json json = {.out = stdout};

	json_open(&json, NULL, '{');
	sums_json(&json, service->rss, service->pss, service->own, service->swap);
	json_open(&json, "processes", '[');
	for (size_t i = 0; i < service->count; i++) {
		const struct service_process *process = &service->processes[i];
		const struct smaps_totals *totals = &process->totals;

		json_open(&json, NULL, '{');
		json_signed(&json, "pid", process->info.pid);
		json_text(&json, "process", process->info.name);
		sums_json(&json, totals->rss, totals->pss, totals->own, totals->swap);
		if (process->parent) {
			json_signed(&json, "parent", process->parent);
			json_unsigned(&json, "unshared", process->unshared);
		}
		json_close(&json, '}');
	}
	json_close(&json, ']');
	sharing_json(&json, answer);
	json_numbers(&json, {"missing", service->missing}, {"elapsed_ns", service->elapsed_ns});
	json_end(&json);
}

static void service_csv(const struct service *service)
{
	puts("pid,process,rss,pss,private,shared,swap,unshared");
	for (size_t i = 0; i < service->count; i++) {
		const struct service_process *process = &service->processes[i];
		const struct smaps_totals *totals = &process->totals;

		printf("%d,", (int)process->info.pid);
		report_csv_quoted(stdout, process->info.name);
		printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",", totals->rss,
		       totals->pss, totals->own, shared_of(totals->rss, totals->own), totals->swap);
		if (process->parent)
			printf("%" PRIu64, process->unshared);
		putchar('\n');
	}
}

/* 0; errors of service_read(). Sharing is told if it can be. */
static int answer_read(struct service_answer *answer, service_failed_fn failed)
{
	struct sharing_files *files = NULL;

	answer->sharing_err = sharing_open(&files, answer->pids, answer->count);
	int err = privileges_drop(0, 0)
			  ?: calls_limit(0)
			  ?: service_read(&answer->service, answer->pids, answer->count, failed);
	if (!err && !answer->sharing_err)
		answer->sharing_err = sharing_read(files, &answer->sharing);
	sharing_close(files);
	return err;
}

int memory_service_print(const pid_t *pids, size_t count, bool named,
			 const struct report_choice *choice)
{
	struct service_answer answer = {.pids = pids, .count = count};
	struct service *service = &answer.service;
	int err = answer_read(&answer, named ? pid_error_print : NULL);
	bool missing;

	if (err) {
		if (!named || err != -ESRCH)
			error_print(err, "tracer list shows what can be read", "memory");
		return EXIT_FAILED;
	}
	qsort(service->processes, service->count, sizeof(*service->processes), process_compare);
	if (choice->format == FORMAT_JSON)
		service_json(&answer);
	else if (choice->format == FORMAT_CSV)
		service_csv(service);
	else
		service_text(&answer, &choice->opts);
	missing = named && service->missing;
	service_free(service);
	return stream_flush(stdout) || missing ? EXIT_FAILED : EXIT_DONE;
}

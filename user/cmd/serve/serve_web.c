/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has the link has a token, which is exchanged once for a cookie; then another link is printed.
 * What was asked stays the same while the server runs, so that answers are kept: a view that took a
 * second for ten million objects is there at once when it is shown again.
 */
#include "cmd/serve/serve_web.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/heap/heap_query.h"
#include "cmd/options/signals.h"
#include "cmd/serve/serve_compare.h"
#include "proc/child.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/files.h"
#include "proc/sandbox/privileges.h"
#include "report/export/exporter.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/http_server.h"
#include "util/json.h"

#include "page/serve.h"

#define SECRET_BYTES 33u /* 128 bits in hexadecimal */
#define LINKS        100u
#define ANSWERS      128u
#define ANSWER_BYTES (64u << 20) /* of all that are kept */
#define WAITING      32u
#define TOP_MAX      10000u
#define AHEAD_NICE   19 /* of the process that answers before it is asked */

/* An answer that is kept. */
struct serve_answer {
	char *key; /* the request; NULL: the place is free */
	struct MHD_Response *response;
	size_t bytes;
	uint64_t used; /* the number of the request that has asked for it last */
};

/* A question about a heap, a range of a recording, or a comparison, and the key of its answer. */
struct serve_question {
	const struct serve_route *route;
	const struct heap_graph *heap; /* NULL: it is about: */
	struct heap_choice choice;
	const struct serve_recording *recording; /* NULL: it is about: */
	size_t first, last;                      /* snapshots of it */
	struct serve_comparison comparison;
	char *key;
};

/* What a process of its own answers: before it is asked, or while others ask something else. */
struct serve_ahead {
	size_t next; /* question of `slow`, of all sources */
	pid_t child; /* 0: none */
	int fd;      /* from it */
	struct serve_question question;
	struct buffer answer;
	struct MHD_Connection *waiting[WAITING]; /* for that answer, or for the process */
	size_t waiting_count;
	char *failed; /* the key of what it could not answer last */
};

struct serve_web {
	struct http_server server;
	struct serve_opts opts;
	uint16_t port;
	int signals;
	unsigned int links;
	char token[SECRET_BYTES], cookie[SECRET_BYTES], cookie_name[24];
	struct serve_answer answers[ANSWERS];
	size_t answer_bytes;
	uint64_t requests;
	struct serve_ahead ahead;
};

/* --- secrets ---------------------------------------------------------------------------------- */

/* 0, -errno. */
static int secret_make(char out[SECRET_BYTES])
{
	uint64_t random[2];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return error_errno();
	snprintf(out, SECRET_BYTES, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
	return 0;
}

/* Prints a link that nobody has used. After LINKS of them there is none: a pipe would be full. */
static int link_print(struct serve_web *web)
{
	char link[128];

	if (web->links++ == LINKS) {
		web->token[0] = '\0';
		return 0;
	}
	int err = secret_make(web->token);
	if (err)
		return err;
	snprintf(link, sizeof(link), "http://127.0.0.1:%u/?token=%s", web->port, web->token);
	printf("%s%s\n", web->links > 1 ? "for another browser: " : "", link);
	fflush(stdout);
	if (web->links == 1 && web->opts.opener >= 0)
		descriptor_write(web->opts.opener, link, strlen(link));
	return 0;
}

/* Whether one of the request's cookies is ours. */
static bool cookie_is_right(const struct serve_web *web, struct MHD_Connection *connection)
{
	const char *cookie =
		MHD_lookup_connection_value(connection, MHD_COOKIE_KIND, web->cookie_name);

	return cookie && http_server_secret_is(cookie, strlen(cookie), web->cookie);
}

/* --- answers ---------------------------------------------------------------------------------- */

static enum MHD_Result error_reply(struct MHD_Connection *connection, unsigned int status,
				   const char *reason)
{
	return http_server_reply_line(connection, status, NULL, NULL, reason);
}

static struct MHD_Response *response_new(char *body, size_t bytes, const char *type,
					 const char *policy)
{
	struct MHD_Response *response = http_server_response(body, bytes, type, policy);

	http_server_header(response, "Cross-Origin-Resource-Policy", "same-origin");
	http_server_header(response, "Cross-Origin-Opener-Policy", "same-origin");
	return response;
}

static void answer_drop(struct serve_web *web, struct serve_answer *answer)
{
	if (answer->response)
		MHD_destroy_response(answer->response);
	free(answer->key);
	web->answer_bytes -= answer->bytes;
	*answer = (struct serve_answer){0};
}

/* The answer that is kept for the request; NULL: none. */
static struct serve_answer *answer_find(struct serve_web *web, const char *key)
{
	for (size_t i = 0; i < ANSWERS; i++)
		if (web->answers[i].key && !strcmp(web->answers[i].key, key))
			return &web->answers[i];
	return NULL;
}

/* Of all that are kept, the one that was not asked for for the longest time; a free place first. */
static struct serve_answer *answer_oldest(struct serve_web *web, bool used)
{
	struct serve_answer *oldest = NULL;

	for (size_t i = 0; i < ANSWERS; i++) {
		struct serve_answer *answer = &web->answers[i];

		if ((answer->key || !used) && (!oldest || answer->used < oldest->used))
			oldest = answer;
	}
	return oldest;
}

/* Keeps the response, which is taken. NULL is legal. */
static void answer_keep(struct serve_web *web, const char *key, struct MHD_Response *response,
			size_t bytes)
{
	char *copy = response && bytes <= ANSWER_BYTES ? strdup(key) : NULL;

	if (!copy) {
		if (response)
			MHD_destroy_response(response);
		return;
	}
	while (web->answer_bytes + bytes > ANSWER_BYTES)
		answer_drop(web, answer_oldest(web, true));
	struct serve_answer *answer = answer_oldest(web, false);
	answer_drop(web, answer);
	*answer = (struct serve_answer){copy, response, bytes, web->requests};
	web->answer_bytes += bytes;
}

/* --- what is asked ---------------------------------------------------------------------------- */

struct serve_request {
	struct serve_web *web;
	struct MHD_Connection *connection;
	const struct serve_source *source;
	size_t number; /* of the source */
};

static void sources_json(struct json *json, const struct serve_request *request)
{
	const struct serve_web *web = request->web;

	json_open(json, NULL, '{');
	json_bool(json, "values", web->opts.values);
	json_open(json, "sources", '[');
	for (size_t i = 0; i < web->opts.count; i++) {
		const struct serve_source *source = &web->opts.sources[i];

		json_open(json, NULL, '{');
		json_unsigned(json, "source", i);
		json_text(json, "file", source->name);
		json_text(json, "kind",
			  source->is_heap               ? "heap"
			  : source->recording.file.size ? "recording"
							: "report");
		if (source->snapshot)
			json_bool(json, "snapshot", true);
		if (source->is_heap) {
			json_unsigned(json, "pid", source->heap.capture.image.pid);
			json_text(json, "name", source->heap.capture.image.name);
			json_unsigned(json, "objects", source->heap.graph->count);
			json_bool(json, "lines", source->heap.lines.pid != 0);
		}
		json_close(json, '}');
	}
	json_close(json, ']');
	json_end(json);
}

static void series_json(struct json *json, const struct serve_request *request)
{
	const struct buffer *series = &request->source->recording.series;

	fwrite(series->data, 1, series->size, json->out);
}

static void fields_json(struct json *json, const struct serve_request *request)
{
	const char *name, *help, *operators;

	(void)request;
	json_open(json, NULL, '{');
	json_open(json, "fields", '[');
	for (size_t i = 0; (name = query_field(i, &help, &operators)); i++) {
		json_open(json, NULL, '{');
		json_text(json, "field", name);
		json_text(json, "help", help);
		json_text(json, "operators", operators);
		json_close(json, '}');
	}
	json_close(json, ']');
	json_end(json);
}

static void parts_json(struct json *json, const struct serve_request *request)
{
	json_open(json, NULL, '{');
	if (serve_parts_json(request->source, request->number, json))
		log_debug("serve: no memory for the parts of %s", request->source->name);
	json_end(json);
}

typedef int (*heap_question_fn)(const struct heap_choice *choice, const struct heap_graph *heap);

struct serve_route {
	const char *path;
	enum MHD_Result (*reply)(const struct serve_request *request,
				 const struct serve_route *route);
	const char *arguments[6];
	/* what reply() prints: */
	void (*json)(struct json *json, const struct serve_request *request);
	heap_question_fn heap;
	const char *what; /* the argument that names what is asked about; NULL: none */
	bool may_lack;    /* it may be left out */
	int (*compare)(const struct serve_comparison *comparison, FILE *out);
};

/* A number of an argument that may be left out. false: it is none. */
static bool number_take(struct MHD_Connection *connection, const char *name, uint64_t most,
			uint64_t *number)
{
	const char *text = http_server_argument(connection, name);

	return !text || !cli_parse_number(text, 0, most, number);
}

/* What key names, to choice->by. 0, -EINVAL (error_set). */
static int by_take(struct heap_choice *choice, const char *key)
{
	static const struct cli_word words[] = {
		{"type", BY_TYPE}, {"module", BY_MODULE},       {"path", BY_PATH},
		{"root", BY_ROOT}, {"container", BY_CONTAINER}, {"size", BY_SIZE},
		{"line", BY_LINE}};
	int by = choice->by, err = serve_word_find("key", words, ARRAY_SIZE(words), key, &by);

	choice->by = (enum heap_by)by;
	return err;
}

static void question_free(struct serve_question *question)
{
	free(question->key);
	question->key = NULL;
}

/* what: NULL: what may be left out is. source: the number. 0, -EINVAL, -ENOMEM. */
static int question_make(struct serve_question *question, const struct serve_web *web,
			 const struct serve_route *route, size_t source, const char *what,
			 uint32_t top)
{
	struct heap_choice *choice = &question->choice;

	*question = (struct serve_question){.route = route,
					    .heap = &web->opts.sources[source].heap,
					    .choice = {.by = BY_TYPE,
						       .retained = 1,
						       .depth = 1,
						       .values = web->opts.values,
						       .what = what}};
	report_choice_default(&choice->output);
	choice->output.opts.top = top;
	choice->output.format = FORMAT_JSON;
	if (!what && route->what && !route->may_lack)
		return error_set(-EINVAL, "what is asked about is missing");
	int err = route->heap == heap_view_print ? by_take(choice, what) : 0;
	if (err)
		return err;
	if ((choice->by == BY_LINE || route->heap == heap_lines_print) &&
	    !question->heap->lines.pid)
		return error_set(-EINVAL, "the lines that allocated its objects are not known");
	if (route->heap == heap_level_print && what && !strcmp(what, "root"))
		choice->what = NULL;
	if (asprintf(&question->key, "%s %zu %u %s", route->path, source, top,
		     choice->what ? choice->what : "") < 0) {
		question->key = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* Each question is answered as by a process of its own: what one leaves in the graph ends here. */
static int heap_answer_print(const struct serve_question *question, struct json *json)
{
	struct heap_choice choice = question->choice;
	struct graph *graph = question->heap->graph;
	int cut = graph->cut;

	choice.json = json;
	graph->texts_hidden = 0;
	int err = question->route->heap(&choice, question->heap);
	graph->cut = cut;
	return err;
}

/* The caller frees *text. 0, -errno (error_set). */
static int question_answer(const struct serve_question *question, char **text, size_t *bytes)
{
	struct json json = {.out = open_memstream(text, bytes)};
	int err;

	if (!json.out)
		return -ENOMEM;
	error_clear();
	if (question->heap)
		err = heap_answer_print(question, &json);
	else if (question->recording)
		err = serve_range_print(question->recording, question->first, question->last,
					&json);
	else
		err = question->route->compare(&question->comparison, json.out);
	return fclose(json.out) && !err ? -ENOMEM : err;
}

static struct MHD_Response *json_response(char *text, size_t bytes)
{
	return response_new(text, bytes, "application/json; charset=utf-8", HTTP_SERVER_POLICY);
}

static enum MHD_Result error_answer(struct MHD_Connection *connection, int err)
{
	return error_reply(connection,
			   err == -ENOENT   ? 404
			   : err == -EINVAL ? 400
					    : 500,
			   error_reason(err));
}

/* In a process of its own, which shares what is shown: who asks something else does not wait. */
_Noreturn static void ahead_run(const struct serve_question *question, int to, pid_t parent)
{
	char *text = NULL;
	size_t bytes = 0;
	int err = child_confine("tracer-ahead", to, parent)
			  ?: question_answer(question, &text, &bytes)
			  ?: descriptor_write(CHILD_SOCKET, text, bytes);

	_exit(err ? EXIT_FAILED : EXIT_DONE);
}

/* Takes the question. If there is no process, the answer is made when it is asked for. */
static void ahead_start(struct serve_web *web, struct serve_question *question)
{
	struct serve_ahead *ahead = &web->ahead;
	int ends[2];
	pid_t parent = getpid(), child = pipe2(ends, O_CLOEXEC | O_NONBLOCK) ? -1 : fork();

	if (!child) {
		fcntl(ends[1], F_SETFL, 0);
		/* Nobody may ask: the server and the browser come first. */
		if (!question->recording)
			setpriority(PRIO_PROCESS, 0, AHEAD_NICE);
		ahead_run(question, ends[1], parent);
	}
	if (child < 0) {
		log_debug("serve: no process for answers: %s", strerror(errno));
		return;
	}
	close(ends[1]);
	ahead->child = child;
	ahead->fd = ends[0];
	ahead->question = *question;
	question->key = NULL;
}

/*
 * If the question is being answered ahead, the request waits for that: it is looked at again when
 * ahead_take() lets it go on. One about a recording always is, unless there was no answer.
 */
static bool ahead_wait(struct serve_web *web, struct MHD_Connection *connection,
		       struct serve_question *question)
{
	struct serve_ahead *ahead = &web->ahead;
	bool is_apart = question->recording &&
			(!ahead->failed || strcmp(ahead->failed, question->key) != 0);

	if (ahead->waiting_count == WAITING)
		return false;
	if (is_apart && !ahead->child)
		ahead_start(web, question);
	if (!ahead->child || (!is_apart && strcmp(ahead->question.key, question->key) != 0))
		return false;
	ahead->waiting[ahead->waiting_count++] = connection;
	http_server_work(connection);
	MHD_suspend_connection(connection);
	return true;
}

static void ahead_resume(struct serve_web *web)
{
	while (web->ahead.waiting_count)
		MHD_resume_connection(web->ahead.waiting[--web->ahead.waiting_count]);
}

/* The page is shown in a frame of the view: of this server's pages, and of no other's. */
static struct MHD_Response *frame_response(char *page, size_t bytes)
{
	struct MHD_Response *response =
		response_new(page, bytes, "text/html; charset=utf-8", export_html_policy);

	if (response)
		MHD_del_response_header(response, "X-Frame-Options", "DENY");
	http_server_header(response, "X-Frame-Options", "SAMEORIGIN");
	return response;
}

static enum MHD_Result question_reply(const struct serve_request *request,
				      struct serve_question *question)
{
	struct serve_answer *kept = answer_find(request->web, question->key);
	char *text = NULL;
	size_t bytes = 0;

	if (kept) {
		kept->used = request->web->requests;
		return http_server_reply(request->connection, 200, kept->response);
	}
	if (ahead_wait(request->web, request->connection, question))
		return MHD_YES;
	int err = question_answer(question, &text, &bytes);
	if (err) {
		free(text);
		return error_answer(request->connection, err);
	}
	struct MHD_Response *response =
		(question->route->compare == serve_compare_page ? frame_response
								: json_response)(text, bytes);
	enum MHD_Result result = http_server_reply(request->connection, 200, response);
	answer_keep(request->web, question->key, response, bytes);
	return result;
}

static int top_take(struct MHD_Connection *connection, uint32_t *top)
{
	uint64_t number = SERVE_TOP;

	if (!number_take(connection, "top", TOP_MAX, &number) || !number)
		return error_set(-EINVAL, "top is to be a number from 1 to 10000");
	*top = (uint32_t)number;
	return 0;
}

static enum MHD_Result heap_take(const struct serve_request *request,
				 const struct serve_route *route)
{
	_cleanup_(question_free) struct serve_question question = {0};
	uint32_t top = SERVE_TOP;

	if (!request->source->is_heap)
		return error_reply(request->connection, 404, "this source is no heap");
	const char *what =
		route->what ? http_server_argument(request->connection, route->what) : NULL;
	int err = top_take(request->connection, &top)
			  ?: question_make(&question, request->web, route, request->number, what,
					   top);

	return err ? error_answer(request->connection, err) : question_reply(request, &question);
}

static enum MHD_Result no_recording(const struct serve_request *request)
{
	return error_reply(request->connection, 404, "this source is no recording");
}

/* A range of a recording: all of it unless its ends are named. */
static enum MHD_Result range_take(const struct serve_request *request,
				  const struct serve_route *route)
{
	const struct serve_recording *recording = &request->source->recording;
	uint64_t first = 0, last = recording->snapshots - 1;
	_cleanup_(question_free) struct serve_question question = {.route = route,
								   .recording = recording};

	if (!recording->file.size)
		return no_recording(request);
	if (!number_take(request->connection, "first", SIZE_MAX, &first) ||
	    !number_take(request->connection, "last", SIZE_MAX, &last))
		return error_reply(request->connection, 400,
				   "first and last are to be numbers of snapshots");
	if (last >= recording->snapshots)
		return error_reply(request->connection, 404, "the recording has no such snapshot");
	question.first = first;
	question.last = last;
	if (asprintf(&question.key, "%s %zu %zu %zu", route->path, request->number, question.first,
		     question.last) < 0) {
		question.key = NULL;
		return error_answer(request->connection, -ENOMEM);
	}
	return question_reply(request, &question);
}

static enum MHD_Result comparison_take(const struct serve_request *request,
				       const struct serve_route *route)
{
	struct MHD_Connection *connection = request->connection;
	_cleanup_(question_free) struct serve_question question = {
		.route = route,
		.comparison = {.sources = request->web->opts.sources,
			       .count = request->web->opts.count,
			       .a = http_server_argument(connection, "a"),
			       .b = http_server_argument(connection, "b"),
			       .c = http_server_argument(connection, "c"),
			       .by = http_server_argument(connection, "by")}};
	struct serve_comparison *of = &question.comparison;
	int err = top_take(connection, &of->top);

	if (err)
		return error_answer(connection, err);
	if (asprintf(&question.key, "%s %u %s\n%s\n%s\n%s", route->path, of->top, of->a ?: "",
		     of->b ?: "", of->c ?: "", of->by ?: "") < 0) {
		question.key = NULL;
		return error_answer(connection, -ENOMEM);
	}
	return question_reply(request, &question);
}

/* The caller frees *text. 0, -ENOMEM. */
static int json_make(const struct serve_request *request, const struct serve_route *route,
		     char **text, size_t *bytes)
{
	struct json json = {.out = open_memstream(text, bytes)};

	if (!json.out)
		return -ENOMEM;
	route->json(&json, request);
	return fclose(json.out) ? -ENOMEM : 0;
}

static enum MHD_Result json_take(const struct serve_request *request,
				 const struct serve_route *route)
{
	char *text = NULL;
	size_t bytes = 0;

	if (json_make(request, route, &text, &bytes)) {
		free(text);
		return MHD_NO;
	}
	struct MHD_Response *response = json_response(text, bytes);
	enum MHD_Result result = http_server_reply(request->connection, 200, response);
	if (response)
		MHD_destroy_response(response);
	return result;
}

static enum MHD_Result page_reply(const struct serve_request *request, const void *page,
				  size_t bytes, const char *policy)
{
	char *copy = malloc(bytes + 1);

	if (copy)
		memcpy(copy, page, bytes);
	struct MHD_Response *response =
		response_new(copy, bytes, "text/html; charset=utf-8", policy);
	enum MHD_Result result = http_server_reply(request->connection, 200, response);
	if (response)
		MHD_destroy_response(response);
	return result;
}

static enum MHD_Result series_take(const struct serve_request *request,
				   const struct serve_route *route)
{
	return request->source->recording.file.size ? json_take(request, route)
						    : no_recording(request);
}

static enum MHD_Result start_take(const struct serve_request *request,
				  const struct serve_route *route)
{
	(void)route;
	return page_reply(request, page_head, sizeof(page_head) - 1, PAGE_POLICY);
}

static enum MHD_Result report_take(const struct serve_request *request,
				   const struct serve_route *route)
{
	const struct serve_source *source = request->source;

	(void)route;
	if (source->is_heap)
		return error_reply(request->connection, 404, "this source is a heap");
	return page_reply(request, source->page.data, source->page.size, source->policy);
}

static const struct serve_route routes[] = {
	{"/", start_take, .arguments = {NULL}},
	{"/report", report_take, .arguments = {"source"}},
	{"/compare", comparison_take, {"a", "b"}, .compare = serve_compare_page},
	{"/api/sources", json_take, {NULL}, .json = sources_json},
	{"/api/query-fields", json_take, {NULL}, .json = fields_json},
	{"/api/parts", json_take, {"source"}, .json = parts_json},
	{"/api/compare", comparison_take, {"a", "b", "by", "top"}, .compare = serve_compare_json},
	{"/api/heap/diff",
	 comparison_take,
	 {"a", "b", "c", "by", "top"},
	 .compare = serve_compare_heaps},
	{"/api/heap/by",
	 heap_take,
	 {"source", "top", "key"},
	 .heap = heap_view_print,
	 .what = "key",
	 .may_lack = true},
	{"/api/heap/tree",
	 heap_take,
	 {"source", "top", "of"},
	 .heap = heap_level_print,
	 .what = "of",
	 .may_lack = true},
	{"/api/heap/show",
	 heap_take,
	 {"source", "top", "address"},
	 .heap = heap_show_print,
	 .what = "address"},
	{"/api/heap/why",
	 heap_take,
	 {"source", "top", "what"},
	 .heap = heap_why_print,
	 .what = "what"},
	{"/api/heap/lines",
	 heap_take,
	 {"source", "top", "what"},
	 .heap = heap_lines_print,
	 .what = "what"},
	{"/api/heap/holders",
	 heap_take,
	 {"source", "top", "what"},
	 .heap = heap_holders_print,
	 .what = "what"},
	{"/api/heap/query",
	 heap_take,
	 {"source", "top", "q"},
	 .heap = heap_query_print,
	 .what = "q"},
	{"/api/heap/waste", heap_take, {"source", "top"}, .heap = heap_waste_print},
	{"/api/heap/cycles", heap_take, {"source", "top"}, .heap = heap_cycles_print},
	{"/api/time/series", series_take, {"source"}, .json = series_json},
	{"/api/time/range", range_take, .arguments = {"source", "first", "last"}},
};

static const struct serve_route *route_find(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
		if (!strcmp(routes[i].path, path))
			return &routes[i];
	return NULL;
}

int serve_answer(const struct serve_opts *opts, const char *path, const char *what, char **text,
		 size_t *bytes)
{
	struct serve_web web = {.opts = *opts};
	const struct serve_request request = {.web = &web, .source = opts->sources};
	const struct serve_route *route = route_find(path);
	_cleanup_(question_free) struct serve_question question = {0};

	if (route->json)
		return json_make(&request, route, text, bytes);
	return question_make(&question, &web, route, 0, what, SERVE_TOP)
		       ?: question_answer(&question, text, bytes);
}

/* --- answers ahead of their questions --------------------------------------------------------- */

/* What takes seconds of a heap of millions of objects, as the page asks for it. */
static const struct {
	const char *path, *what;
} slow[] = {
	{"/api/heap/by", "module"}, {"/api/heap/by", "path"},   {"/api/heap/by", "container"},
	{"/api/heap/waste", NULL},  {"/api/heap/cycles", NULL},
};

/* The next question; false: there is none. */
static bool ahead_next(struct serve_web *web, struct serve_question *question)
{
	while (web->ahead.next < ARRAY_SIZE(slow) * web->opts.count) {
		size_t number = web->ahead.next % ARRAY_SIZE(slow);
		size_t source = web->ahead.next++ / ARRAY_SIZE(slow);

		if (!web->opts.sources[source].is_heap)
			continue;
		if (!question_make(question, web, route_find(slow[number].path), source,
				   slow[number].what, SERVE_TOP) &&
		    !answer_find(web, question->key))
			return true;
		question_free(question);
	}
	return false;
}

/* Begins with the next one, if the process has nothing to do. */
static void ahead_begin(struct serve_web *web)
{
	_cleanup_(question_free) struct serve_question question = {0};

	if (!web->ahead.child && ahead_next(web, &question))
		ahead_start(web, &question);
}

/* Takes what the child has written. */
static void ahead_take(struct serve_web *web)
{
	struct serve_ahead *ahead = &web->ahead;
	char piece[65536];
	ssize_t got;
	int status;

	while ((got = read(ahead->fd, piece, sizeof(piece))) > 0)
		if (buffer_append(&ahead->answer, piece, (size_t)got))
			break;
	if (got < 0 && errno == EAGAIN)
		return;
	close(ahead->fd);
	if (waitpid(ahead->child, &status, 0) == ahead->child && WIFEXITED(status) &&
	    WEXITSTATUS(status) == EXIT_DONE && !got && !answer_find(web, ahead->question.key)) {
		struct buffer *answer = &ahead->answer;

		answer_keep(web, ahead->question.key,
			    json_response((char *)answer->data, answer->size), answer->size);
		*answer = (struct buffer){0};
	} else {
		free(ahead->failed);
		ahead->failed = ahead->question.key;
		ahead->question.key = NULL;
	}
	buffer_free(&ahead->answer);
	question_free(&ahead->question);
	ahead_resume(web);
	*ahead = (struct serve_ahead){.next = ahead->next, .fd = -1, .failed = ahead->failed};
}

static void ahead_end(struct serve_web *web)
{
	ahead_resume(web); /* libmicrohttpd wants it before it is stopped */
	free(web->ahead.failed);
	if (!web->ahead.child)
		return;
	kill(web->ahead.child, SIGKILL);
	waitpid(web->ahead.child, NULL, 0);
	close(web->ahead.fd);
	buffer_free(&web->ahead.answer);
	question_free(&web->ahead.question);
}

/* --- requests --------------------------------------------------------------------------------- */

static enum MHD_Result request_answer(struct serve_request *request,
				      const struct serve_route *route)
{
	const struct serve_web *web = request->web;
	uint64_t number = 0;
	char why[128];

	if (!http_server_arguments_are(request->connection, route->path, route->arguments, why,
				       sizeof(why)))
		return error_reply(request->connection, 400, why);
	if (!number_take(request->connection, "source", SERVE_SOURCES, &number) ||
	    number >= web->opts.count)
		return error_reply(request->connection, 404, "/api/sources lists the sources");
	request->number = (size_t)number;
	request->source = &web->opts.sources[number];
	return route->reply(request, route);
}

/*
 * The token becomes a cookie. A browser does not send a cookie that is SameSite=Strict where a page
 * of another site has led to a redirect (--open's file is one): there a page of this site leads
 * on.
 */
static enum MHD_Result login(struct serve_web *web, struct MHD_Connection *connection)
{
	static const char page[] = "<!doctype html>\n<title>tracer</title>\n"
				   "<meta http-equiv=\"refresh\" content=\"0;url=/\">\n"
				   "<p><a href=\"/\">tracer serve</a></p>\n";
	const char *site =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Sec-Fetch-Site");
	bool is_led = site && !strcmp(site, "cross-site");
	char cookie[128];
	struct MHD_Response *response = response_new(
		strdup(page), sizeof(page) - 1, "text/html; charset=utf-8", HTTP_SERVER_POLICY);

	snprintf(cookie, sizeof(cookie), "%s=%s; HttpOnly; SameSite=Strict; Path=/",
		 web->cookie_name, web->cookie);
	http_server_header(response, MHD_HTTP_HEADER_SET_COOKIE, cookie);
	if (!is_led)
		http_server_header(response, MHD_HTTP_HEADER_LOCATION, "/");
	enum MHD_Result result = http_server_reply(connection, is_led ? 200 : 303, response);
	if (response)
		MHD_destroy_response(response);
	return link_print(web) ? MHD_NO : result;
}

/* Has the request the token of the link that was printed last? */
static bool token_is_right(const struct serve_web *web, struct MHD_Connection *connection)
{
	const char *token = http_server_argument(connection, "token");

	return token && web->token[0] && http_server_secret_is(token, strlen(token), web->token);
}

static enum MHD_Result request_take(void *context, struct MHD_Connection *connection,
				    const char *path, const char *method, const char *version,
				    const char *upload, size_t *upload_bytes, void **state)
{
	struct serve_web *web = context;
	struct serve_request request = {.web = web, .connection = connection};
	const struct serve_route *route = route_find(path);
	const char *host =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);

	(void)version, (void)upload;
	if (!http_server_reads(method))
		return http_server_reply_line(connection, 405, MHD_HTTP_HEADER_ALLOW, "GET, HEAD",
					      "only GET and HEAD are answered");
	if (*upload_bytes)
		return MHD_NO;
	/* Before the first answer libmicrohttpd wants to have gone on once. */
	if (!*state) {
		*state = web;
		return MHD_YES;
	}
	web->requests++;
	if (!host || !http_server_host_is_local(host))
		return error_reply(connection, 421, "the Host is to be localhost or an address");
	if (!strcmp(path, "/") && !strcmp(method, MHD_HTTP_METHOD_GET) &&
	    token_is_right(web, connection))
		return login(web, connection);
	if (!cookie_is_right(web, connection))
		return error_reply(connection, 401,
				   "open the link that tracer serve has printed last; each is good "
				   "for one browser");
	if (!route)
		return error_reply(connection, 404, "no such page");
	return request_answer(&request, route);
}

/* --- the server ------------------------------------------------------------------------------- */

int serve_web_new(struct serve_web **out, int listener)
{
	struct sockaddr_in address;
	socklen_t bytes = sizeof(address);
	struct serve_web *web = calloc(1, sizeof(*web));

	if (!web) {
		close(listener);
		return -ENOMEM;
	}
	web->signals = -1;
	web->ahead.fd = -1;
	web->server = (struct http_server){.take = request_take, .context = web};
	int err = getsockname(listener, (struct sockaddr *)&address, &bytes) ? error_errno() : 0;
	err = err ?: http_server_start(&web->server, listener);
	if (err) {
		close(listener);
		free(web);
		return err;
	}
	web->port = ntohs(address.sin_port);
	*out = web;
	return 0;
}

static int privileges_give_up(void)
{
	/* Of the processes that make answers ahead: their standard streams. */
	const struct files_rule rule = {"/dev/null", FILES_WRITE};
	int err = privileges_drop_all() ?: files_limit(&rule, 1);

	if (err == -ENOTSUP) {
		log_debug("serve: without Landlock the web server could open its user's files");
		err = 0;
	}
	return err ?: calls_limit(0);
}

static int web_step(struct serve_web *web)
{
	struct pollfd polls[] = {
		{.fd = http_server_fd(&web->server), .events = POLLIN},
		{.fd = web->signals, .events = POLLIN},
		{.fd = web->ahead.fd, .events = POLLIN},
	};

	if (poll(polls, ARRAY_SIZE(polls), http_server_wait_ms(&web->server)) < 0 && errno != EINTR)
		return error_errno();
	if (polls[1].revents && signals_end(web->signals, NULL, &(int){0}))
		return 1;
	if (polls[2].revents)
		ahead_take(web);
	int err = http_server_step(&web->server);
	ahead_begin(web); /* after those that wait for the process */
	return err;
}

int serve_web_run(struct serve_web *web, const struct serve_opts *opts)
{
	const struct rlimit no_core = {0, 0};

	web->opts = *opts;
	setrlimit(RLIMIT_CORE, &no_core);
	signal(SIGPIPE, SIG_IGN);
	/* Cookies are of an address, whatever the port: each server's has another name. */
	snprintf(web->cookie_name, sizeof(web->cookie_name), "tracer-%u", web->port);
	int err = signals_catch(&web->signals, 1)
			  ?: secret_make(web->cookie)
			  ?: privileges_give_up()
			  ?: link_print(web);
	if (!err)
		ahead_begin(web);
	while (!err)
		err = web_step(web);
	ahead_end(web);
	return err < 0 ? err : 0;
}

void serve_web_free(struct serve_web *web)
{
	if (!web)
		return;
	http_server_stop(&web->server);
	for (size_t i = 0; i < ANSWERS; i++)
		answer_drop(web, &web->answers[i]);
	descriptor_close(web->signals);
	free(web);
}

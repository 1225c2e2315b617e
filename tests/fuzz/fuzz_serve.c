/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client sends to the web server of tracer serve, in pieces. The server is the real one, and
 * so is the parser of queries; the heap's answers are the same word. Whatever is sent, the
 * connection ends, each answer is one of HTTP, and without the cookie or the link nothing of the
 * heap is in it.
 */
#include <unistd.h>

/* Answers about a recording are made by the server itself, as where no process can be made. */
#define fork() (-1)
/* All of it, as most of its functions are static. */
#include "cmd/serve/serve_web.c"
#include "snapshot/builder.h"
#include "web_client.h"

#define SECRET "name-of-a-type"
/* Of the inputs that have it: tests/fuzz has no other way to know it. */
#define COOKIE "cccccccccccccccccccccccccccccccc"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of the first byte of an input. */
enum { COOKIE_IS_KNOWN = 0x80, PIECE = 0x1f };

/* --- instead of a heap ------------------------------------------------------------------------ */

static int answer_write(const struct heap_choice *choice)
{
	json_open(choice->json, NULL, '{');
	json_text(choice->json, "type", SECRET);
	json_text(choice->json, "what", choice->what);
	json_end(choice->json);
	return 0;
}

#define ANSWER(function)                                                                           \
	int function(const struct heap_choice *choice, const struct heap_graph *heap)              \
	{                                                                                          \
		check(heap->graph && choice->json && choice->output.opts.top, "no question");      \
		return answer_write(choice);                                                       \
	}

ANSWER(heap_view_print)
ANSWER(heap_level_print)
ANSWER(heap_show_print)
ANSWER(heap_why_print)
ANSWER(heap_holders_print)
ANSWER(heap_lines_print)
ANSWER(heap_waste_print)
ANSWER(heap_cycles_print)

int heap_diff_graphs(const struct heap_choice *choice, const struct heap_graph *const *heaps,
		     size_t count)
{
	check(count == 2 || count == 3, "no heaps");
	for (size_t i = 0; i < count; i++)
		check(heaps[i]->graph, "no heap");
	return answer_write(choice);
}

int heap_query_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	struct query *query = NULL;
	int err = query_parse(&query, choice->what, choice->values);

	(void)heap;
	query_free(query);
	return err ?: answer_write(choice);
}

int serve_range_print(const struct serve_recording *recording, size_t first, size_t last,
		      struct json *json)
{
	check(last < recording->snapshots, "no such snapshot");
	if (first > last)
		return error_set(-EINVAL, "the range ends before it begins");
	json_open(json, NULL, '{');
	json_text(json, "type", SECRET);
	json_end(json);
	return 0;
}

/* --- the server ------------------------------------------------------------------------------- */

static struct graph graph;
static struct serve_source sources[2] = {
	{.name = "heap.dump", .is_heap = true},
	{.name = "s.rec", .policy = HTTP_SERVER_POLICY, .recording.snapshots = 9}};

/* Of two processes and two threads, in one file of the secret's name. */
static struct snapshot *snapshot_make(void)
{
	struct builder builder;
	struct snapshot_meta *meta;
	struct snapshot_frame frame = {.line = 1};

	check(!builder_begin(&builder) && !strings_intern(builder.snapshot->strings, SECRET,
							  strlen(SECRET), &frame.filename),
	      "no memory");
	for (uint32_t i = 0; i < 2; i++) {
		struct snapshot_trace trace = {.process = i, .bytes = 8, .count = 1};

		check(!builder_process(&builder, &meta), "no memory");
		meta->pid = 9 + i;
		check(!builder_traceback(&builder, &frame, 1, 1, &trace.traceback) &&
			      !builder_trace(&builder, &trace),
		      "no memory");
		trace.thread = 7 + i;
		check(!builder_layer(&builder, SNAPSHOT_EXTRA(EXTRA_THREAD, EVENT_LAYER_PYTHON),
				     &trace),
		      "no memory");
	}
	builder.snapshot->meta.extra[EXTRA_THREAD].known = 1u << EVENT_LAYER_PYTHON;
	return builder_finish(&builder);
}

static void server_start(struct serve_web *web)
{
	sources[1].snapshot = snapshot_make();
	sources[0].heap.lines.pid = 1;
	sources[0].heap.graph = &graph;
	check(!buffer_append(&sources[1].page, SECRET, strlen(SECRET)) &&
		      !buffer_append(&sources[1].recording.file, SECRET, strlen(SECRET)) &&
		      !buffer_append(&sources[1].recording.series, SECRET, strlen(SECRET)),
	      "no memory");
	*web = (struct serve_web){.opts = {.sources = sources, .count = 2, .opener = -1},
				  .port = 1,
				  .signals = -1,
				  .links = LINKS,
				  .cookie_name = "tracer-1",
				  .ahead.fd = -1};
	web->server = (struct http_server){.take = request_take, .context = web};
	check(!http_server_start(&web->server, -1), "no server");
}

static void server_step(void *context)
{
	struct serve_web *web = context;

	check(!http_server_step(&web->server), "the server has failed");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct serve_web web;
	struct buffer answers = {0};
	uint8_t how = size ? data[0] : 0;
	bool is_known = how & COOKIE_IS_KNOWN;

	if (!web.server.daemon)
		server_start(&web);
	check(!secret_make(web.cookie) && !secret_make(web.token), "no entropy");
	if (is_known)
		memcpy(web.cookie, COOKIE, sizeof(COOKIE));
	web_client_run(&web.server, server_step, &web, data + (size > 0), size - (size > 0),
		       1 + (how & PIECE) * 100ul, &answers);
	check(is_known || (!web_client_has(&answers, SECRET) &&
			   !web_client_has(&answers, "Set-Cookie") &&
			   !web_client_has(&answers, " 200 OK")),
	      "an answer without the link");
	check(web.answer_bytes <= ANSWER_BYTES && !web.ahead.waiting_count, "something is left");
	buffer_free(&answers);
	return 0;
}

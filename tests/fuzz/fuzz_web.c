/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client sends to the agent's web server, in pieces, before it ends its side of the
 * connection. The server is the real one, with figures that stay the same, and a profile that is
 * made at once, never, or not at all. Whatever is sent, the connection ends, nothing of it is left,
 * each answer is one of HTTP, and without the token there is nothing of the figures in it.
 */
#include <sys/eventfd.h>

/* All of it, as most of its functions are static. */
#include "cmd/agent/web.c"
#include "web_client.h"

#define SECRET "name-of-a-process"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of the first byte of an input; the others: how many bytes are sent at once. */
enum { PROFILE_IS_NEVER = 0x20, PROFILE_FAILS = 0x40, TOKEN_IS_NEEDED = 0x80, PIECE = 0x1f };
static uint8_t how;

/* --- instead of the machine ------------------------------------------------------------------- */

int figures_read(struct figures *figures, struct session_view *view, const struct web_opts *opts,
		 pid_t parent)
{
	struct figure_process process = {
		.pid = 7, .name = SECRET, .container = "c", .service = "s.service"};
	struct figure_line line = {.text = "/srv/\"a\\b.py:3", .size = 10, .count = 1};

	(void)view, (void)opts, (void)parent;
	figures_free(figures);
	process.is_traced = figures->traces = figures->has_session = true;
	check(!ARRAY_GROW(figures->processes, figures->process_capacity, 0) &&
		      !ARRAY_GROW(figures->lines, figures->line_capacity, 0),
	      "no memory");
	figures->processes[figures->process_count++] = process;
	figures->lines[figures->line_count++] = line;
	return 0;
}

int profile_begin(struct profile *profile, const struct profile_opts *opts)
{
	check(opts->pid_count <= 1 && opts->seconds <= PROFILE_SECONDS, "a profile of nothing");
	profile->socket = eventfd(!(how & PROFILE_IS_NEVER), EFD_CLOEXEC);
	return profile->socket < 0 ? error_errno() : 0;
}

void profile_finish(struct profile *profile, struct profile_end *end, struct buffer *outs,
		    size_t count)
{
	check(count == 1, "as many answers as profiles");
	*end = (struct profile_end){200, ""};
	if (how & PROFILE_FAILS)
		*end = (struct profile_end){404, SECRET};
	else
		check(!buffer_append(outs, SECRET, sizeof(SECRET)), "no memory");
	profile_kill(profile);
}

void profile_kill(struct profile *profile)
{
	descriptor_close(profile->socket);
	profile->socket = -1;
}

/* --- a client --------------------------------------------------------------------------------- */

static void server_start(struct web *web)
{
	*web = (struct web){.listener = -1, .signals = -1, .profile.socket = -1};
	web->opts.address = "127.0.0.1";
	web->opts.top = WEB_TOP;
	web->opts.session = 1;
	check(!session_view_begin(&web->view, 0) && !daemon_start(web, false), "no server");
}

/* The token is another one each time: no input can have it. */
static void token_set(struct web *web)
{
	static char token[33];
	uint64_t random[2];

	check(getentropy(random, sizeof(random)) == 0, "no entropy");
	snprintf(token, sizeof(token), "%016llx%016llx", (unsigned long long)random[0],
		 (unsigned long long)random[1]);
	web->opts.token = how & TOKEN_IS_NEEDED ? token : NULL;
}

static void server_step(void *context)
{
	check(!web_step(context, 0), "the server has failed");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct web web;
	struct buffer answers = {0};

	if (!web.server.daemon)
		server_start(&web);
	how = size ? data[0] : 0;
	token_set(&web);
	web_client_run(&web.server, server_step, &web, data + (size > 0), size - (size > 0),
		       1 + (how & PIECE) * 100ul, &answers);
	check(!web.waiting && !web.profile_request && web.profile.socket < 0, "a request is left");
	check(!(how & TOKEN_IS_NEEDED) || !web_client_has(&answers, SECRET),
	      "figures without the token");
	buffer_free(&answers);
	return 0;
}

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

#define SECRET "name-of-a-process"
#define STEPS  400 /* without a byte sent: then the connection must have ended */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of the first byte of an input; the others: how many bytes are sent at once. */
enum { PROFILE_IS_NEVER = 0x20, PROFILE_FAILS = 0x40, TOKEN_IS_NEEDED = 0x80, PIECE = 0x1f };
static uint8_t how;

static void check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s\n", what);
	abort();
}

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

static int client_connect(struct web *web)
{
	const struct sockaddr_in address = {.sin_family = AF_INET,
					    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int pair[2];

	check(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
	      "no sockets");
	check(MHD_add_connection(web->daemon, pair[0], (const void *)&address, sizeof(address)) ==
		      MHD_YES,
	      "no connection");
	return pair[1];
}

/* Sends a piece. 0: there is no room for it, or the server has ended the connection. */
static size_t client_send(int client, const uint8_t *data, size_t size)
{
	size_t piece = 1 + (how & PIECE) * 100ul;
	ssize_t sent = send(client, data, size < piece ? size : piece, MSG_NOSIGNAL);

	return sent < 0 ? 0 : (size_t)sent;
}

static void client_receive(int client, struct buffer *out)
{
	char text[4096];
	ssize_t got;

	while ((got = recv(client, text, sizeof(text), 0)) > 0)
		check(!buffer_append(out, text, (size_t)got), "no memory");
}

/* libmicrohttpd does not look at all that comes while a request waits. The deadline ends that. */
static void time_over(struct web *web)
{
	for (struct web_client *client = web->clients; client; client = client->next)
		client->until_ns = client->until_ns ? 1 : 0;
}

static void answers_check(const struct buffer *answers)
{
	check(!answers->size || (answers->size > 12 && !memcmp(answers->data, "HTTP/1.", 7)),
	      "an answer that is none of HTTP");
	check(!answers->size || !(how & TOKEN_IS_NEEDED) ||
		      !memmem(answers->data, answers->size, SECRET, strlen(SECRET)),
	      "figures without the token");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct web web;
	struct buffer answers = {0};
	unsigned int steps = 0;

	if (!web.daemon)
		server_start(&web);
	how = size ? data[0] : 0;
	data += size > 0;
	size -= size > 0;
	token_set(&web);
	int client = client_connect(&web);
	do {
		size_t sent = size ? client_send(client, data, size) : 0;

		data += sent;
		size -= sent;
		steps += !sent;
		/* Nothing is read while its profile is made. */
		if (steps == STEPS / 4)
			size = 0;
		if (!size)
			shutdown(client, SHUT_WR);
		if (steps == STEPS / 2)
			time_over(&web);
		check(!web_step(&web, 0), "the server has failed");
		client_receive(client, &answers);
		check(steps < STEPS, "a connection that does not end");
	} while (web.clients);
	close(client);
	check(!web.waiting && !web.profile_request && web.profile.socket < 0, "a request is left");
	answers_check(&answers);
	buffer_free(&answers);
	return 0;
}

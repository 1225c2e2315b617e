/* SPDX-License-Identifier: Apache-2.0 */
/* What fuzz targets of web servers share: the client, which sends an input in pieces. */
#pragma once

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/buffer.h"
#include "util/http_server.h"

#define WEB_CLIENT_STEPS 400 /* without a byte sent: then the connection must have ended */

static inline void check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s\n", what);
	abort();
}

static inline int web_client_connect(struct http_server *server)
{
	const struct sockaddr_in address = {.sin_family = AF_INET,
					    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int pair[2];

	check(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
	      "no sockets");
	check(MHD_add_connection(server->daemon, pair[0], (const void *)&address,
				 sizeof(address)) == MHD_YES,
	      "no connection");
	return pair[1];
}

/* Sends a piece. 0: there is no room for it, or the server has ended the connection. */
static inline size_t web_client_send(int client, const uint8_t *data, size_t size, size_t piece)
{
	ssize_t sent = send(client, data, size < piece ? size : piece, MSG_NOSIGNAL);

	return sent < 0 ? 0 : (size_t)sent;
}

static inline void web_client_receive(int client, struct buffer *out)
{
	char text[4096];
	ssize_t got;

	while ((got = recv(client, text, sizeof(text), 0)) > 0)
		check(!buffer_append(out, text, (size_t)got), "no memory");
}

/*
 * Sends all of the input, a piece at a time, then ends its side of the connection, and lets the
 * server work until that has ended. step: work of the server that is not to fail. *out has the
 * answers.
 */
static inline void web_client_run(struct http_server *server, void (*step)(void *context),
				  void *context, const uint8_t *data, size_t size, size_t piece,
				  struct buffer *out)
{
	int client = web_client_connect(server);
	unsigned int steps = 0;

	do {
		size_t sent = size ? web_client_send(client, data, size, piece) : 0;

		data += sent;
		size -= sent;
		steps += !sent;
		/* Nothing is read while an answer is made. */
		if (steps == WEB_CLIENT_STEPS / 4)
			size = 0;
		if (!size)
			shutdown(client, SHUT_WR);
		/* libmicrohttpd does not look at all that comes while a request waits. */
		if (steps == WEB_CLIENT_STEPS / 2)
			http_server_expire(server);
		step(context);
		web_client_receive(client, out);
		check(steps < WEB_CLIENT_STEPS, "a connection that does not end");
	} while (server->clients);
	close(client);
	check(!out->size || (out->size > 12 && !memcmp(out->data, "HTTP/1.", 7)),
	      "an answer that is none of HTTP");
}

static inline bool web_client_has(const struct buffer *answers, const char *text)
{
	return answers->size && memmem(answers->data, answers->size, text, strlen(text));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the web servers share: libmicrohttpd in an event loop of ours, of one thread. It bounds the
 * number of connections, the size of a request's header and the time without a byte. Who sends or
 * takes a byte now and then is bounded here: each connection has a deadline for its request, and
 * another one for its answer.
 *
 *	struct http_server server = {.take = request_take, .context = &mine};
 *	int listener = http_server_listen("127.0.0.1", 0);
 *
 *	http_server_start(&server, listener);
 *	... poll http_server_fd() for http_server_wait_ms(), then http_server_step() ...
 *	http_server_stop(&server);
 */
#pragma once

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_server_client;

struct http_server {
	/* Set before the start: */
	const char *certificate, *key; /* PEM; NULL: no TLS */
	MHD_AccessHandlerCallback take;
	MHD_RequestCompletedCallback end; /* NULL: nothing is done */
	void *context;                    /* of both */
	/* Of http_server.c: */
	struct MHD_Daemon *daemon;
	struct http_server_client *clients;
};

/*
 * address: an IP address; port 0: any that is free. The descriptor, which the caller closes;
 * -EINVAL (error_set): it is no address; -EADDRINUSE, -errno (error_set).
 */
int http_server_listen(const char *address, uint16_t port);
/* listener: taken; -1: connections come from MHD_add_connection() only. 0; -EIO (error_set). */
int http_server_start(struct http_server *server, int listener);
/* What is suspended must have been resumed. Closes the listener. */
void http_server_stop(struct http_server *server);
/* Readable when there is something to do. */
int http_server_fd(const struct http_server *server);
/* How long to wait for it at most; -1: for ever. */
int http_server_wait_ms(const struct http_server *server);
/* Does what is to be done, and ends connections that are too slow. 0; -EIO (error_set). */
int http_server_step(struct http_server *server);
/* All deadlines of connections are over. For tests. */
void http_server_expire(struct http_server *server);

/* The connection's socket; -1: not known. */
int http_server_socket(struct MHD_Connection *connection);
/* Its request is being worked on: no deadline until it is answered. */
void http_server_work(struct MHD_Connection *connection);

/*
 * A response whose body is malloc'd, and taken. policy: what a browser may load and run for it.
 * NULL: no memory, or body was NULL.
 */
struct MHD_Response *http_server_response(char *body, size_t bytes, const char *type,
					  const char *policy);
/* value NULL: none. */
void http_server_header(struct MHD_Response *response, const char *name, const char *value);
/* Queues the answer, with a deadline. The response stays the caller's; NULL: nothing is sent. */
enum MHD_Result http_server_reply(struct MHD_Connection *connection, unsigned int status,
				  struct MHD_Response *response);
/* A line of text, with another header (name NULL: none). */
enum MHD_Result http_server_reply_line(struct MHD_Connection *connection, unsigned int status,
				       const char *name, const char *value, const char *line);
/* Of pages that have nothing to load or run. */
#define HTTP_SERVER_POLICY "default-src 'none'; base-uri 'none'; form-action 'none'"

/* Is it GET or HEAD? Others are to be answered with 405. */
bool http_server_reads(const char *method);
/* What the request has as an argument of that name; NULL: nothing. */
const char *http_server_argument(struct MHD_Connection *connection, const char *name);
/*
 * Has the request only arguments of the list (NULL behind the last), each once and with a value? If
 * not, `why` says what path takes.
 */
bool http_server_arguments_are(struct MHD_Connection *connection, const char *path,
			       const char *const *allowed, char *why, size_t why_bytes);
/*
 * Is what a request names as its host (with or without a port) localhost or an IP address, which no
 * site can have as its name? A page of another site may have its own name lead to the loopback
 * address, and a browser then takes what is served here for that site's.
 */
bool http_server_host_is_local(const char *host);
/* The bytes of secret, compared in the same time wherever the two differ. */
bool http_server_secret_is(const char *text, size_t bytes, const char *secret);

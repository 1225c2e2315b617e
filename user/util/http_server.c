/* SPDX-License-Identifier: Apache-2.0 */
#include "util/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"

#define CONNECTIONS         32u
#define CONNECTIONS_ADDRESS 8u     /* of one address */
#define CONNECTION_BYTES    12288u /* for a request's header and the answer's */
#define IDLE_SECONDS        10u
#define REQUEST_NS          10000000000ull /* from a connection, or an answer, to a request */
#define ANSWER_NS           60000000000ull /* to take an answer */

/* A connection. */
struct http_server_client {
	struct http_server_client *next, **link;
	int fd;
	uint64_t until_ns; /* 0: its request is being worked on */
};

/* --- connections ------------------------------------------------------------------------------ */

static struct http_server_client *client_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static void deadline_set(struct MHD_Connection *connection, uint64_t ns)
{
	struct http_server_client *client = client_of(connection);

	if (client)
		client->until_ns = ns ? clock_ns(CLOCK_MONOTONIC) + ns : 0;
}

int http_server_socket(struct MHD_Connection *connection)
{
	const struct http_server_client *client = client_of(connection);

	return client ? client->fd : -1;
}

void http_server_work(struct MHD_Connection *connection)
{
	deadline_set(connection, 0);
}

static void client_change(void *context, struct MHD_Connection *connection, void **state,
			  enum MHD_ConnectionNotificationCode what)
{
	struct http_server *server = context;
	struct http_server_client *client = *state;
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		client = calloc(1, sizeof(*client));
		if (!client || !info) {
			free(client);
			return;
		}
		*client = (struct http_server_client){.next = server->clients,
						      .link = &server->clients,
						      .fd = info->connect_fd,
						      .until_ns = clock_ns(CLOCK_MONOTONIC) +
								  REQUEST_NS};
		if (client->next)
			client->next->link = &client->next;
		server->clients = client;
		*state = client;
	} else if (client) {
		*client->link = client->next;
		if (client->next)
			client->next->link = client->link;
		free(client);
		*state = NULL;
	}
}

static void request_end(void *context, struct MHD_Connection *connection, void **state,
			enum MHD_RequestTerminationCode why)
{
	const struct http_server *server = context;

	deadline_set(connection, REQUEST_NS);
	if (server->end)
		server->end(server->context, connection, state, why);
}

/* Ends the connections of those that were too slow. libmicrohttpd sees that they have ended. */
static void clients_check(struct http_server *server)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	for (struct http_server_client *client = server->clients; client; client = client->next)
		if (client->until_ns && now > client->until_ns)
			shutdown(client->fd, SHUT_RDWR);
}

void http_server_expire(struct http_server *server)
{
	for (struct http_server_client *client = server->clients; client; client = client->next)
		client->until_ns = client->until_ns ? 1 : 0;
}

/* --- the server ------------------------------------------------------------------------------- */

int http_server_listen(const char *address, uint16_t port)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
	bool is_four = inet_pton(AF_INET, address, &four.sin_addr) == 1;
	const int on = 1;

	if (!is_four && inet_pton(AF_INET6, address, &six.sin6_addr) != 1)
		return error_set(-EINVAL, "\"%s\" is no IP address", address);
	_cleanup_close_ int fd =
		socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_errno();
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, is_four ? (void *)&four : (void *)&six,
		 is_four ? sizeof(four) : sizeof(six)) ||
	    listen(fd, 64))
		return error_set(-errno, "%s port %u: %s", address, port, strerror(errno));
	int opened = fd;
	fd = -1;
	return opened;
}

static void message_log(void *context, const char *format, va_list arguments)
{
	char text[256];

	(void)context;
	vsnprintf(text, sizeof(text), format, arguments);
	text[strcspn(text, "\n")] = '\0';
	log_debug("web: %s", text);
}

int http_server_start(struct http_server *server, int listener)
{
	const struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)server->certificate},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)server->key},
		{MHD_OPTION_END, 0, NULL},
	};
	const struct MHD_OptionItem socket[] = {
		{MHD_OPTION_LISTEN_SOCKET, listener, NULL},
		{MHD_OPTION_END, 0, NULL},
	};
	unsigned int flags = MHD_USE_EPOLL | MHD_USE_ERROR_LOG | MHD_ALLOW_SUSPEND_RESUME |
			     (server->certificate ? MHD_USE_TLS : 0) |
			     (listener >= 0 ? 0 : MHD_USE_NO_LISTEN_SOCKET);

	server->daemon = MHD_start_daemon(
		flags, 0, NULL, NULL, server->take, server->context, MHD_OPTION_EXTERNAL_LOGGER,
		message_log, NULL, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
		MHD_OPTION_PER_IP_CONNECTION_LIMIT, CONNECTIONS_ADDRESS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
		MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS, MHD_OPTION_NOTIFY_COMPLETED,
		request_end, server, MHD_OPTION_NOTIFY_CONNECTION, client_change, server,
		MHD_OPTION_ARRAY, listener >= 0 ? socket : &socket[1], MHD_OPTION_ARRAY,
		server->certificate ? tls : &tls[2], MHD_OPTION_END);
	return server->daemon ? 0 : error_set(-EIO, "the web server could not be started");
}

void http_server_stop(struct http_server *server)
{
	if (server->daemon)
		MHD_stop_daemon(server->daemon);
	server->daemon = NULL;
}

int http_server_fd(const struct http_server *server)
{
	return MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

int http_server_wait_ms(const struct http_server *server)
{
	MHD_UNSIGNED_LONG_LONG ms;
	int wait = server->clients ? 1000 : -1;

	if (MHD_get_timeout(server->daemon, &ms) == MHD_YES &&
	    (wait < 0 || ms < (unsigned int)wait))
		wait = (int)(ms < 60000 ? ms : 60000);
	return wait;
}

int http_server_step(struct http_server *server)
{
	clients_check(server);
	return MHD_run(server->daemon) == MHD_YES ? 0
						  : error_set(-EIO, "the web server has failed");
}

/* --- answers ---------------------------------------------------------------------------------- */

void http_server_header(struct MHD_Response *response, const char *name, const char *value)
{
	if (response && name && value)
		MHD_add_response_header(response, name, value);
}

struct MHD_Response *http_server_response(char *body, size_t bytes, const char *type,
					  const char *policy)
{
	struct MHD_Response *response =
		body ? MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_MUST_FREE) : NULL;

	if (!response)
		free(body);
	http_server_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	http_server_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	http_server_header(response, "X-Content-Type-Options", "nosniff");
	http_server_header(response, "Referrer-Policy", "no-referrer");
	http_server_header(response, "X-Frame-Options", "DENY");
	http_server_header(response, "Content-Security-Policy", policy);
	return response;
}

enum MHD_Result http_server_reply(struct MHD_Connection *connection, unsigned int status,
				  struct MHD_Response *response)
{
	if (!response)
		return MHD_NO;
	deadline_set(connection, ANSWER_NS);
	return MHD_queue_response(connection, status, response);
}

enum MHD_Result http_server_reply_line(struct MHD_Connection *connection, unsigned int status,
				       const char *name, const char *value, const char *line)
{
	char *text = NULL;
	int bytes = asprintf(&text, "%s\n", line);
	struct MHD_Response *response =
		http_server_response(bytes < 0 ? NULL : text, (size_t)bytes,
				     "text/plain; charset=utf-8", HTTP_SERVER_POLICY);

	http_server_header(response, name, value);
	enum MHD_Result result = http_server_reply(connection, status, response);
	if (response)
		MHD_destroy_response(response);
	return result;
}

/* --- requests --------------------------------------------------------------------------------- */

bool http_server_reads(const char *method)
{
	return !strcmp(method, MHD_HTTP_METHOD_GET) || !strcmp(method, MHD_HTTP_METHOD_HEAD);
}

const char *http_server_argument(struct MHD_Connection *connection, const char *name)
{
	return MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
}

/* What is wrong with the arguments of a request. */
struct argument_check {
	const char *const *allowed;
	unsigned int given; /* a bit for each */
	bool wrong;
};

static enum MHD_Result argument_check(void *context, enum MHD_ValueKind kind, const char *name,
				      const char *value)
{
	struct argument_check *check = context;
	size_t i = 0;

	(void)kind;
	while (check->allowed[i] && strcmp(check->allowed[i], name) != 0)
		i++;
	if (check->allowed[i] && value && !(check->given & 1u << i)) {
		check->given |= 1u << i;
		return MHD_YES;
	}
	check->wrong = true;
	return MHD_NO;
}

bool http_server_arguments_are(struct MHD_Connection *connection, const char *path,
			       const char *const *allowed, char *why, size_t why_bytes)
{
	struct argument_check check = {.allowed = allowed};
	size_t used;

	MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, argument_check, &check);
	if (!check.wrong)
		return true;
	used = (size_t)snprintf(why, why_bytes, "%s takes %s", path,
				allowed[0] ? "each once with a value:" : "no arguments");
	for (size_t i = 0; allowed[i] && used < why_bytes; i++)
		used += (size_t)snprintf(why + used, why_bytes - used, "%s %s", i ? "," : "",
					 allowed[i]);
	return false;
}

bool http_server_host_is_local(const char *host)
{
	char name[INET6_ADDRSTRLEN + 2];
	unsigned char address[sizeof(struct in6_addr)];
	const char *end = host[0] == '[' ? strchr(host, ']') : strchr(host, ':');
	size_t bytes = end ? (size_t)(end - host) + (host[0] == '[') : strlen(host);
	const char *port = host + bytes;

	if (bytes >= sizeof(name) ||
	    (port[0] && (port[0] != ':' || strspn(port + 1, "0123456789") != strlen(port + 1))))
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)bytes, host);
	if (name[0] == '[') {
		name[bytes - 1] = '\0';
		return inet_pton(AF_INET6, name + 1, address) == 1;
	}
	return !strcasecmp(name, "localhost") || inet_pton(AF_INET, name, address) == 1;
}

bool http_server_secret_is(const char *text, size_t bytes, const char *secret)
{
	size_t wanted = strlen(secret);
	unsigned char differs = bytes != wanted;

	for (size_t i = 0; i < wanted && i < bytes; i++)
		differs |= (unsigned char)(text[i] ^ secret[i]);
	return !differs;
}

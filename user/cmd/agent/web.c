/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmicrohttpd's event loop is called from ours: its epoll descriptor is one of those that are
 * waited for. A request that needs the session is suspended. When the session has answered, all
 * that wait are answered from the same figures, which stay for a second; each page is made of them
 * once.
 */
#include "cmd/agent/web.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/x509.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cmd/agent/figures.h"
#include "cmd/agent/metrics.h"
#include "cmd/agent/profile.h"
#include "cmd/agent/session_view.h"
#include "cmd/options/signals.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/files.h"
#include "proc/sandbox/privileges.h"
#include "report/export/exporter.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/http_server.h"

#define FRESH_NS     1000000000ull  /* figures are shown so long */
#define FRESH_MAX_NS 10000000000ull /* where they take more than 1/FRESH_COST of a CPU */
#define FRESH_COST   50u
#define LISTENER     3 /* its descriptor in a process of its own */
#define PEM_BYTES    (256u << 10)

enum route {
	ROUTE_METRICS,
	ROUTE_TARGETS,
	ROUTE_INDEX,
	ROUTE_READY,
	ROUTE_HEALTH,
	ROUTE_HEAP,
	ROUTE_ALLOCS,
	ROUTE_REPORT,
	ROUTES
};

enum page { PAGE_METRICS, PAGE_OPENMETRICS, PAGE_TARGETS, PAGE_INDEX, PAGES };

struct web_request {
	struct web_request *next; /* of those that wait for the session */
	struct MHD_Connection *connection;
	enum route route;
	bool figures_shown; /* it has waited for figures */
	bool profile_made;
	struct profile_end end;
	struct buffer profile;
};

struct web {
	struct web_opts opts;
	int listener, signals;
	pid_t opener;
	char *certificate, *key; /* PEM; NULL: no TLS */
	struct http_server server;
	struct session_view view;
	struct figures figures;
	uint64_t fresh_until_ns; /* 0: there are no figures */
	bool failed;             /* to make figures, the last time */
	struct MHD_Response *pages[PAGES];
	struct web_request *waiting;
	struct profile profile;
	struct web_request *profile_request; /* for which it is made */
};

/* Of a static build (tools/static/no_tls.c). */
extern const char web_has_no_tls __attribute__((weak));

/* --- answers ---------------------------------------------------------------------------------- */

static enum MHD_Result reply(struct web *web, struct MHD_Connection *connection,
			     unsigned int status, struct MHD_Response *response)
{
	web->figures.errors[1] += status == 500 && response;
	return http_server_reply(connection, status, response);
}

/* A line of text, with another header (name NULL: none). */
static enum MHD_Result reply_line(struct web *web, struct MHD_Connection *connection,
				  unsigned int status, const char *name, const char *value,
				  const char *line)
{
	web->figures.errors[1] += status == 500;
	return http_server_reply_line(connection, status, name, value, line);
}

/* --- pages ------------------------------------------------------------------------------------ */

static struct MHD_Response *page_make(struct web *web, enum page page)
{
	static const char *const types[PAGES] = {
		"text/plain; version=0.0.4; charset=utf-8",
		"application/openmetrics-text; version=1.0.0; charset=utf-8",
		"application/json",
		"text/html; charset=utf-8",
	};
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	if (page == PAGE_TARGETS) {
		targets_write(out, &web->figures);
	} else if (page == PAGE_INDEX) {
		figures_commands_read(&web->figures);
		index_write(out, &web->figures);
	} else {
		metrics_write(out, &web->figures, page == PAGE_OPENMETRICS);
	}
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return http_server_response(text, bytes, types[page], HTTP_SERVER_POLICY);
}

static void pages_drop(struct web *web)
{
	for (size_t i = 0; i < PAGES; i++)
		if (web->pages[i])
			MHD_destroy_response(web->pages[i]);
	memset(web->pages, 0, sizeof(web->pages));
}

static enum MHD_Result reply_page(struct web *web, const struct web_request *request)
{
	const char *accept = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
							 MHD_HTTP_HEADER_ACCEPT);
	enum page page = request->route == ROUTE_TARGETS ? PAGE_TARGETS
			 : request->route == ROUTE_INDEX ? PAGE_INDEX
			 : accept && strstr(accept, "application/openmetrics-text")
				 ? PAGE_OPENMETRICS
				 : PAGE_METRICS;

	if (!web->pages[page])
		web->pages[page] = page_make(web, page);
	return reply(web, request->connection, 200, web->pages[page]);
}

/* The session has answered, or has not: who has waited is answered from what is known now. */
static void round_over(struct web *web)
{
	uint64_t fresh_ns = FRESH_NS, cost_ns;

	pages_drop(web);
	web->failed = figures_read(&web->figures, &web->view, &web->opts, web->opener) != 0;
	cost_ns = session_view_cost_ns(&web->view) * FRESH_COST;
	if (cost_ns > fresh_ns)
		fresh_ns = cost_ns < FRESH_MAX_NS ? cost_ns : FRESH_MAX_NS;
	web->fresh_until_ns = clock_ns(CLOCK_MONOTONIC) + fresh_ns;
	while (web->waiting) {
		struct web_request *request = web->waiting;

		web->waiting = request->next;
		MHD_resume_connection(request->connection);
	}
}

/* Are there figures that may be shown? If not, the request is suspended until there are. */
static bool figures_wait(struct web *web, struct web_request *request)
{
	if (request->figures_shown ||
	    (!web->view.asking && clock_ns(CLOCK_MONOTONIC) < web->fresh_until_ns))
		return true;
	request->figures_shown = true;
	if (!web->view.asking && session_view_round(&web->view)) {
		round_over(web);
		return true;
	}
	request->next = web->waiting;
	web->waiting = request;
	MHD_suspend_connection(request->connection);
	return false;
}

/* --- profiles --------------------------------------------------------------------------------- */

/* 0: it is no number from 1 to most. */
static uint32_t number_of(const char *text, uint32_t most)
{
	char *end;
	unsigned long number = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;

	return number && !*end && number <= most ? (uint32_t)number : 0;
}

/* Does the request ask for that process? */
static bool process_is_asked(const struct figure_process *process, uint32_t pid,
			     const char *container, const char *service)
{
	return process->is_traced && (!pid || (uint32_t)process->pid == pid) &&
	       (!container || !strcmp(process->container, container)) &&
	       (!service || !strcmp(process->service, service));
}

/* 200: opts are what is asked for. Another status: *why says what is wrong. */
static unsigned int profile_choose(const struct web *web, const struct web_request *request,
				   struct profile_opts *opts, const char **why)
{
	const char *pid = http_server_argument(request->connection, "pid"),
		   *seconds = http_server_argument(request->connection, "seconds");
	const char *container = http_server_argument(request->connection, "container");
	const char *service = http_server_argument(request->connection, "service");
	uint32_t number = pid ? number_of(pid, 1 << 22) : 0;

	*opts = (struct profile_opts){.session = web->opts.session,
				      .kind = request->route == ROUTE_REPORT   ? PROFILE_REPORT
					      : request->route == ROUTE_ALLOCS ? PROFILE_ALLOCS
									       : PROFILE_HEAP};
	*why = "pid is to be a process id";
	if ((pid || opts->kind == PROFILE_REPORT) && !number)
		return 400;
	opts->seconds = seconds ? number_of(seconds, PROFILE_SECONDS) : 0;
	*why = "seconds is to be a number from 1 to 300";
	if (seconds && !opts->seconds)
		return 400;
	*why = "a report is of one time: it takes no seconds";
	if (seconds && opts->kind == PROFILE_REPORT)
		return 400;
	*why = web->opts.session ? "the session does not answer" : "nothing is traced";
	if (!web->figures.has_session)
		return web->opts.session ? 503 : 404;
	bool some = pid || container || service, any = false;
	for (size_t i = 0; i < web->figures.process_count; i++) {
		const struct figure_process *process = &web->figures.processes[i];

		if (!process_is_asked(process, number, container, service))
			continue;
		any = true;
		if (!some)
			break;
		*why = "too many processes: ask for one by its pid";
		if (opts->pid_count == PROFILE_PROCESSES)
			return 400;
		opts->pids[opts->pid_count++] = (uint32_t)process->pid;
	}
	*why = "no such process is traced: /targets lists those that are";
	return any ? 200 : 404;
}

static enum MHD_Result reply_profile(struct web *web, struct web_request *request)
{
	struct MHD_Response *response;
	struct buffer *made = &request->profile;

	if (request->end.status != 200)
		return reply_line(web, request->connection, (unsigned int)request->end.status, NULL,
				  NULL, request->end.text);
	if (request->route == ROUTE_REPORT) {
		response = http_server_response((char *)made->data, made->size,
						"text/html; charset=utf-8", export_html_policy);
	} else {
		response = http_server_response((char *)made->data, made->size,
						"application/octet-stream", HTTP_SERVER_POLICY);
		http_server_header(response, MHD_HTTP_HEADER_CONTENT_DISPOSITION,
				   "attachment; filename=\"profile.pb.gz\"");
	}
	*made = (struct buffer){0};
	enum MHD_Result result = reply(web, request->connection, 200, response);
	if (response)
		MHD_destroy_response(response);
	return result;
}

static enum MHD_Result profile_answer(struct web *web, struct web_request *request)
{
	struct profile_opts opts;
	const char *why;

	if (request->profile_made)
		return reply_profile(web, request);
	unsigned int status = profile_choose(web, request, &opts, &why);
	if (status != 200)
		return reply_line(web, request->connection, status, NULL, NULL, why);
	if (web->profile_request)
		return reply_line(web, request->connection, 503, MHD_HTTP_HEADER_RETRY_AFTER, "5",
				  "another profile is being made: try again");
	if (profile_begin(&web->profile, &opts))
		return reply_line(web, request->connection, 500, NULL, NULL,
				  "no process could be started");
	web->profile_request = request;
	MHD_suspend_connection(request->connection);
	return MHD_YES;
}

static void profile_over(struct web *web)
{
	struct web_request *request = web->profile_request;

	profile_finish(&web->profile, &request->end, &request->profile, 1);
	request->profile_made = true;
	web->profile_request = NULL;
	MHD_resume_connection(request->connection);
}

/* Who has asked has gone: a suspended connection is not looked at by libmicrohttpd. */
static void profile_check(struct web *web)
{
	struct web_request *request = web->profile_request;
	struct pollfd gone = {.fd = request ? http_server_socket(request->connection) : -1,
			      .events = POLLRDHUP};

	if (gone.fd < 0 || poll(&gone, 1, 0) <= 0)
		return;
	profile_kill(&web->profile);
	request->end = (struct profile_end){503, "the client has gone"};
	request->profile_made = true;
	web->profile_request = NULL;
	MHD_resume_connection(request->connection);
}

/* --- requests --------------------------------------------------------------------------------- */

#define ARGUMENTS 4u

static const struct {
	const char *path, *arguments[ARGUMENTS + 1];
} routes[ROUTES] = {
	[ROUTE_METRICS] = {"/metrics", {NULL}},
	[ROUTE_TARGETS] = {"/targets", {NULL}},
	[ROUTE_INDEX] = {"/", {NULL}},
	[ROUTE_READY] = {"/readyz", {NULL}},
	[ROUTE_HEALTH] = {"/healthz", {NULL}},
	[ROUTE_HEAP] = {"/debug/pprof/heap", {"pid", "container", "service", "seconds"}},
	[ROUTE_ALLOCS] = {"/debug/pprof/allocs", {"pid", "container", "service", "seconds"}},
	[ROUTE_REPORT] = {"/report", {"pid"}},
};

static enum route route_of(const char *path)
{
	enum route route = 0;

	while (route < ROUTES && strcmp(routes[route].path, path) != 0)
		route++;
	return route;
}

/* With a token, another site's page has none; without, its name is in the request. */
static bool host_is_ours(const struct web *web, struct MHD_Connection *connection)
{
	const char *host =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);

	return !host || web->opts.token || !web_is_loopback(web->opts.address) ||
	       http_server_host_is_local(host);
}

static bool token_is_right(const struct web *web, struct MHD_Connection *connection)
{
	const char *text = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
						       MHD_HTTP_HEADER_AUTHORIZATION);

	return !web->opts.token ||
	       (text && !strncasecmp(text, "Bearer ", 7) &&
		http_server_secret_is(text + 7, strlen(text + 7), web->opts.token));
}

static enum MHD_Result request_answer(struct web *web, struct web_request *request)
{
	struct MHD_Connection *connection = request->connection;

	if (request->route == ROUTE_HEALTH)
		return reply_line(web, connection, 200, NULL, NULL, "ok");
	if (!figures_wait(web, request))
		return MHD_YES;
	if (request->route == ROUTE_READY)
		return web->figures.has_session || !web->opts.session
			       ? reply_line(web, connection, 200, NULL, NULL, "ready")
			       : reply_line(web, connection, 503, NULL, NULL,
					    "the session does not answer");
	if (web->failed)
		return reply_line(web, connection, 500, NULL, NULL, "out of memory");
	return request->route == ROUTE_HEAP || request->route == ROUTE_ALLOCS ||
			       request->route == ROUTE_REPORT
		       ? profile_answer(web, request)
		       : reply_page(web, request);
}

/* Is called for the header, after it, and whenever the connection is resumed. */
static enum MHD_Result request_take(void *context, struct MHD_Connection *connection,
				    const char *path, const char *method, const char *version,
				    const char *upload, size_t *upload_bytes, void **state)
{
	struct web *web = context;
	struct web_request *request = *state;
	enum route route = route_of(path);
	bool is_open = route == ROUTE_HEALTH || route == ROUTE_READY;
	char why[128];

	(void)version, (void)upload;
	if (request)
		return *upload_bytes ? MHD_NO : request_answer(web, request);
	if (!http_server_reads(method))
		return reply_line(web, connection, 405, MHD_HTTP_HEADER_ALLOW, "GET, HEAD",
				  "only GET and HEAD are answered");
	if (!is_open && !host_is_ours(web, connection))
		return reply_line(web, connection, 421, NULL, NULL,
				  "the Host is to be localhost or an address, unless there is a "
				  "token");
	if (!is_open && !token_is_right(web, connection))
		return reply_line(web, connection, 401, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer",
				  "the request has no valid bearer token");
	if (route == ROUTES)
		return reply_line(web, connection, 404, NULL, NULL,
				  "no such page: / lists those that there are");
	if (!http_server_arguments_are(connection, routes[route].path, routes[route].arguments, why,
				       sizeof(why)))
		return reply_line(web, connection, 400, NULL, NULL, why);
	request = calloc(1, sizeof(*request));
	if (!request)
		return MHD_NO;
	request->connection = connection;
	request->route = route;
	http_server_work(connection);
	*state = request;
	return MHD_YES;
}

static void request_end(void *context, struct MHD_Connection *connection, void **state,
			enum MHD_RequestTerminationCode why)
{
	struct web *web = context;
	struct web_request *request = *state, **link = &web->waiting;

	(void)connection, (void)why;
	if (!request)
		return;
	while (*link && *link != request)
		link = &(*link)->next;
	if (*link)
		*link = request->next;
	if (web->profile_request == request) {
		profile_kill(&web->profile);
		web->profile_request = NULL;
	}
	buffer_free(&request->profile);
	free(request);
	*state = NULL;
}

/* --- the server ------------------------------------------------------------------------------- */

static int daemon_start(struct web *web, bool listens)
{
	web->server = (struct http_server){.certificate = web->certificate,
					   .key = web->key,
					   .take = request_take,
					   .end = request_end,
					   .context = web};
	return http_server_start(&web->server, listens ? web->listener : -1);
}

/* All that wait are let go first, as libmicrohttpd wants it. */
static void daemon_stop(struct web *web)
{
	for (; web->waiting; web->waiting = web->waiting->next)
		MHD_resume_connection(web->waiting->connection);
	if (web->profile_request)
		MHD_resume_connection(web->profile_request->connection);
	profile_kill(&web->profile);
	web->profile_request = NULL;
	http_server_stop(&web->server);
	web->listener = -1; /* it has closed that */
}

static int web_wait_ms(const struct web *web)
{
	int wait = http_server_wait_ms(&web->server);

	if (web->view.asking && (wait < 0 || session_view_wait_ms(&web->view) < wait))
		wait = session_view_wait_ms(&web->view);
	return wait;
}

/*
 * Waits so long for something to do, and does it. 1: a signal asks for the end; 0; -errno
 * (error_set).
 */
static int web_step(struct web *web, int wait_ms)
{
	struct pollfd polls[] = {
		{.fd = http_server_fd(&web->server), .events = POLLIN},
		{.fd = web->signals, .events = POLLIN},
		{.fd = web->view.asking ? web->view.fd : -1, .events = POLLIN},
		{.fd = web->profile.socket, .events = POLLIN},
	};
	if (poll(polls, ARRAY_SIZE(polls), wait_ms) < 0 && errno != EINTR)
		return error_errno();
	if (polls[1].revents && signals_end(web->signals, NULL, &(int){0}))
		return 1;
	if (web->view.asking && (polls[2].revents || !session_view_wait_ms(&web->view)) &&
	    session_view_step(&web->view))
		round_over(web);
	if (web->profile_request && polls[3].revents)
		profile_over(web);
	profile_check(web);
	return http_server_step(&web->server);
}

/* What the parent has open besides the socket is not for this process. */
static int descriptors_drop(struct web *web)
{
	if (dup3(web->listener, LISTENER, O_CLOEXEC) < 0 && errno != EINVAL)
		return error_errno();
	web->listener = LISTENER;
	return syscall(SYS_close_range, LISTENER + 1u, ~0u, 0u) ? error_errno() : 0;
}

/* What it reads, of all that belongs to root: /proc, cgroups, names of containers and bundles. */
static int files_choose(const struct web *web)
{
	const struct files_rule rules[] = {
		{web->opts.evidence, FILES_LIST},
		{"/proc", FILES_READ},
		{"/sys/fs/cgroup", FILES_READ},
		{"/etc/docker", FILES_READ},
		{"/run/containerd", FILES_READ},
		{"/run/containers", FILES_READ},
		{"/var/lib/containers/storage", FILES_READ},
		{"/var/lib/docker", FILES_READ},
		{"/var/log/containers", FILES_LIST},
		{"/dev/null", FILES_WRITE}, /* of the process that makes profiles */
	};
	int err = files_limit(rules, ARRAY_SIZE(rules));

	if (err == -ENOTSUP)
		log_debug("http: without Landlock the web server could open root's files");
	return err == -ENOTSUP ? 0 : err;
}

int web_run(struct web *web)
{
	const struct rlimit no_core = {0, 0};
	int err = 0;

	if (getpid() != web->opener) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != web->opener)
			return 0;
		prctl(PR_SET_NAME, "tracer-web");
		err = descriptors_drop(web);
	}
	setrlimit(RLIMIT_CORE, &no_core);
	signal(SIGPIPE, SIG_IGN);
	err = err ?: signals_catch(&web->signals, 1)
			    ?: session_view_begin(&web->view, web->opts.session);
	if (err)
		return err;
	err = daemon_start(web, true) ?: privileges_drop_all() ?: files_choose(web)
		?: calls_limit(0);
	while (!err)
		err = web_step(web, web_wait_ms(web));
	err = err < 0 ? err : 0;
	pages_drop(web);
	if (web->server.daemon)
		daemon_stop(web);
	session_view_end(&web->view);
	figures_free(&web->figures);
	return err;
}

/* --- opening ---------------------------------------------------------------------------------- */

static int pem_read(const char *path, char **out)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return error_set(-errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || !st.st_size || st.st_size > PEM_BYTES)
		return error_set(-EINVAL, "%s is no PEM file", path);
	_cleanup_free_ char *text = calloc(1, (size_t)st.st_size + 1);
	if (!text)
		return -ENOMEM;
	if (read(fd, text, (size_t)st.st_size) < 0)
		return error_set(-errno, "%s: %s", path, strerror(errno));
	*out = text;
	text = NULL;
	return 0;
}

/* Clients refuse a certificate outside of its time. The first one in the file is the server's. */
static void certificate_time_tell(const char *path, const char *pem)
{
	if (!pem)
		return;
	const gnutls_datum_t data = {(unsigned char *)pem, (unsigned)strlen(pem)};
	gnutls_x509_crt_t certificate;
	time_t now = time(NULL), from, until;
	char date[32];

	if (gnutls_x509_crt_init(&certificate))
		return;
	if (!gnutls_x509_crt_import(certificate, &data, GNUTLS_X509_FMT_PEM)) {
		from = gnutls_x509_crt_get_activation_time(certificate);
		until = gnutls_x509_crt_get_expiration_time(certificate);
		if (now < from || now > until) {
			strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S UTC",
				 gmtime(now < from ? &from : &until));
			log_info("http: %s: the certificate %s %s: clients will refuse it", path,
				 now < from ? "is not valid before" : "has expired on", date);
		}
	}
	gnutls_x509_crt_deinit(certificate);
}

/* A server without a socket takes them, or does not. */
static int tls_open(struct web *web)
{
	if (!web->opts.certificate && !web->opts.key)
		return 0;
	if (!web->opts.certificate || !web->opts.key)
		return error_set(-EINVAL, "TLS needs both a certificate and a key");
	if (&web_has_no_tls || MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
		return error_set(-ENOTSUP, "this build has no TLS: put a proxy in front");
	int err = pem_read(web->opts.certificate, &web->certificate)
			  ?: pem_read(web->opts.key, &web->key);

	if (err)
		return err;
	if (daemon_start(web, false))
		return error_set(-EINVAL, "%s and %s are no certificate and its key in PEM",
				 web->opts.certificate, web->opts.key);
	http_server_stop(&web->server);
	return 0;
}

bool web_is_loopback(const char *address)
{
	return !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

int web_open(struct web **out, const struct web_opts *opts)
{
	struct web *web = calloc(1, sizeof(*web));

	if (!web)
		return -ENOMEM;
	*web = (struct web){.opts = *opts,
			    .listener = -1,
			    .signals = -1,
			    .opener = getpid(),
			    .profile.socket = -1};
	if (!opts->top)
		web->opts.top = WEB_TOP;
	if (web->opts.top > WEB_TOP_MAX)
		web->opts.top = WEB_TOP_MAX;
	int err = tls_open(web);
	if (!err)
		err = web->listener = http_server_listen(opts->address, opts->port);
	if (err < 0) {
		web_free(web);
		return err;
	}
	certificate_time_tell(opts->certificate, web->certificate);
	*out = web;
	return 0;
}

unsigned int web_check(const struct web_opts *opts)
{
	struct web web = {.opts = *opts, .profile.socket = -1};
	int listener = http_server_listen(opts->address, 0);

	if (listener < 0 && listener != -EINVAL)
		error_set(listener, "%s port %u: %s", opts->address, opts->port,
			  strerror(-listener));
	if (listener < 0)
		error_print(listener, "http.listen names it", "http");
	descriptor_close(listener);
	int tls = tls_open(&web);
	if (tls)
		error_print(tls, NULL, "http");
	else
		certificate_time_tell(opts->certificate, web.certificate);
	free(web.certificate);
	free(web.key);
	return (listener < 0) + !!tls;
}

void web_session(struct web *web, pid_t session)
{
	web->opts.session = session;
}

void web_free(struct web *web)
{
	if (!web)
		return;
	descriptor_close(web->listener);
	descriptor_close(web->signals);
	free(web->certificate);
	free(web->key);
	free(web);
}

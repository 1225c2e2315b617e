/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/agent/push.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cmd/agent/board.h"
#include "cmd/agent/figures.h"
#include "cmd/agent/profile.h"
#include "cmd/agent/spool.h"
#include "cmd/tui/model.h"
#include "proc/container/memory_usage.h"
#include "proc/sandbox/privileges.h"
#include "report/export/otlp.h"
#include "report/export/pyroscope.h"
#include "report/pprof/pprof.h"
#include "session/ctl/ask.h"
#include "session/ctl/session_socket.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/gzip.h"
#include "util/http_client.h"
#include "util/infile.h"
#include "util/text.h"

#define NS            1000000000ull
#define PAUSE_MAX     (300 * NS)
#define RETRY_MAX     600u /* seconds that a server may ask for */
#define TELL_NS       (300 * NS)
#define ANSWER_BYTES  65536u
#define LIST_BYTES    (256u << 20)
#define MAKE_MS       120000 /* for a profile */
#define HEADERS_MAX   32u
#define HEADERS_BYTES 16384u
#define URL_BYTES     2048u
#define HEAD_BYTES    4096u
#define BODY_HEADERS  2u
#define WHOSE_BYTES   (FIGURE_TEXT + 32u)
#define LABELS        7u

#define OTLP_PATH        "/v1development/profiles"
#define PYROSCOPE_PUSH   "/push.v1.PusherService/Push"
#define PYROSCOPE_INGEST "/ingest"

_Static_assert(PUSH_RECEIVERS == SPOOL_KINDS, "a body's kind is its receiver");
_Static_assert(PUSH_RECEIVERS <= PROFILE_OUTS, "all bodies are made at once");

const char *const push_receiver_names[PUSH_RECEIVERS] = {"otlp", "pyroscope"};

/* A process of the round. */
struct sender_process {
	pid_t pid;
	char name[SUMS_NAME_BYTES];
};

/* Of a receiver; times are of CLOCK_MONOTONIC. */
struct sender_receiver {
	char base[URL_BYTES]; /* without what each request adds; "": there is none */
	const char *path;     /* what each adds, but for a query */
	unsigned int failures;
	uint64_t next_ns, tell_ns;
	bool is_told; /* that it fails */
};

struct sender {
	const struct push_opts *opts;
	struct http_client *client;
	char *headers_text, *headers[HEADERS_MAX + BODY_HEADERS]; /* those of a body at the end */
	size_t header_count;
	char host[FIGURE_TEXT + 1];
	char whose[WHOSE_BYTES]; /* of the profile that is made or sent, for messages */
	struct spool spool;
	struct sender_receiver receivers[PUSH_RECEIVERS];
	struct sender_process *processes;
	size_t process_count, process_capacity, process_next;
	uint64_t round_ns;
	struct buffer body; /* that is being sent */
	struct buffer made[PUSH_RECEIVERS];
	struct http_answer answer;
};

/* --- figures ---------------------------------------------------------------------------------- */

static void figures_publish(struct sender *sender)
{
	struct push_figures *figures = sender->opts->figures;

	for (int i = 0; i < PUSH_RECEIVERS; i++) {
		struct spool_sum *sum = &sender->spool.sums[i];

		figures->of[i].bytes = sum->bytes;
		figures->of[i].files = sum->files;
		figures->of[i].dropped[PUSH_DROP_SPOOL] += sum->dropped;
		sum->dropped = 0;
	}
}

/*
 * Logs it, with what it is about (sender->whose) and where that goes, unless something about this
 * receiver was logged a short time ago.
 */
static bool tell(struct sender *sender, enum push_receiver which, const char *what, const char *why)
{
	struct sender_receiver *receiver = &sender->receivers[which];
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	char text[256];

	if (now_ns < receiver->tell_ns)
		return false;
	receiver->tell_ns = now_ns + TELL_NS;
	text_escape(text, sizeof(text), why);
	log_info("push: %s%s: the profile of %s: %s: %s", receiver->base, receiver->path,
		 sender->whose, what, text);
	return true;
}

/* --- making ----------------------------------------------------------------------------------- */

/* What a body is made from, by the process that makes the profile. */
struct sender_body {
	enum push_receiver receivers[PUSH_RECEIVERS]; /* that there are, and how many: */
	size_t count;
	bool ingest;
	char service[FIGURE_TEXT + 1], pid[16];
	struct board_container container;
	const char *host;
	unsigned int interval;
};

static void uuid_make(char out[37])
{
	uint16_t parts[8] = {0};

	if (getrandom(parts, sizeof(parts), 0) != sizeof(parts))
		parts[0] = (uint16_t)clock_ns(CLOCK_REALTIME);
	snprintf(out, 37, "%04x%04x-%04x-4%03x-%04x-%04x%04x%04x", parts[0], parts[1], parts[2],
		 parts[3] & 0xfff, (parts[4] & 0x3fff) | 0x8000, parts[5], parts[6], parts[7]);
}

/* As the process calls its service itself (OTEL_SERVICE_NAME); NULL: it does not. */
static const char *own_service(const struct snapshot *snapshot)
{
	return snapshot->meta.service[0] ? snapshot->meta.service : NULL;
}

/* "shop (PID 123)", in one line whatever the process calls itself. */
static void whose_write(const struct sender_body *body, const char *service, char out[WHOSE_BYTES])
{
	char name[FIGURE_TEXT + 1];

	figure_text(service, false, name);
	snprintf(out, WHOSE_BYTES, "%s (PID %s)", name, body->pid);
}

/*
 * A file of the spool: the path of its URL, and behind a space whose profile it is; at most
 * BODY_HEADERS lines that are headers, an empty line, and what is sent.
 */
static int pyroscope_body(const struct sender_body *body, const struct snapshot *snapshot,
			  const struct buffer *profile, struct buffer *out)
{
	const struct board_container *container = &body->container;
	const char *service = own_service(snapshot) ?: body->service;
	struct pyroscope_label labels[LABELS] = {{"__name__", "memory"},
						 {"service_name", service},
						 {"host", body->host},
						 {"pid", body->pid}};
	const struct pyroscope_label more[] = {{"container", container->label},
					       {"namespace", container->namespace},
					       {"pod", container->pod}};
	size_t count = LABELS - ARRAY_SIZE(more);
	long long now = (long long)time(NULL);
	char id[37], whose[WHOSE_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(more); i++)
		if (more[i].value[0])
			labels[count++] = more[i];
	whose_write(body, service, whose);
	if (body->ingest) {
		static const char type[] = "application/octet-stream";

		return pyroscope_ingest_path(service, labels + 2, count - 2,
					     now - body->interval, now, out)
			       ?: buffer_printf(out, " %s\nContent-Type: %s\n\n", whose, type)
			       ?: buffer_append(out, profile->data, profile->size);
	}
	uuid_make(id);
	return buffer_printf(out, PYROSCOPE_PUSH " %s\nContent-Type: application/proto\n\n", whose)
		       ?: pyroscope_push_write(labels, count, id, profile, out);
}

static int otlp_body(const struct sender_body *body, const struct snapshot *snapshot,
		     struct buffer *out)
{
	const struct board_container *container = &body->container;
	const char *service = own_service(snapshot) ?: body->service;
	char whose[WHOSE_BYTES];
	const struct otlp_attribute resource[] = {
		{"host.name", body->host},
		{"service.name", service},
		{"container.id", container->id},
		{"container.name", container->name},
		{"k8s.namespace.name", container->namespace},
		{"k8s.pod.name", container->pod},
		{"k8s.container.name", container->pod[0] ? container->name : ""}};
	const struct otlp_opts opts = {.resource = resource,
				       .resource_count = ARRAY_SIZE(resource)};
	_cleanup_(buffer_free) struct buffer plain = {0};
	int err = otlp_write(snapshot, &opts, &plain);

	whose_write(body, service, whose);
	return err ?: buffer_printf(out, OTLP_PATH " %s\nContent-Type: application/x-protobuf\n"
						   "Content-Encoding: gzip\n\n", whose)
			      ?: gzip_append(plain.data, plain.size, out);
}

static bool snapshot_is_empty(const struct snapshot *snapshot)
{
	size_t count = snapshot->trace_count;

	for (size_t i = 0; i < SNAPSHOT_LAYERS; i++)
		count += snapshot->layers[i].trace_count;
	return !count;
}

/*
 * A body for each receiver. -ESRCH: nothing that the process holds is known; receivers refuse a
 * profile without samples.
 */
static int bodies_make(const void *context, const struct buffer *profile, struct buffer *outs)
{
	struct infile file = infile_memory(profile->data, profile->size);
	const struct sender_body *body = context;
	struct snapshot *snapshot = NULL;
	int err = pprof_read(&file, &snapshot);

	if (err)
		return err;
	err = snapshot_is_empty(snapshot) ? -ESRCH : 0;
	for (size_t i = 0; !err && i < body->count; i++)
		err = body->receivers[i] == PUSH_OTLP
			      ? otlp_body(body, snapshot, &outs[i])
			      : pyroscope_body(body, snapshot, profile, &outs[i]);
	snapshot_free(snapshot);
	return err;
}

static void body_describe(struct sender *sender, const struct sender_process *process,
			  struct sender_body *out)
{
	struct memory_usage usage;

	board_find(sender->opts->board, process->pid, &out->container);
	if (!memory_usage_read(process->pid, &usage))
		figure_service(usage.path, out->service);
	/* A name that was cut has no suffix any more. */
	char *suffix = strstr(out->service, ".service");
	if (suffix && !suffix[strlen(".service")])
		*suffix = '\0';
	if (!out->service[0])
		memcpy(out->service, out->container.label, sizeof(out->service));
	if (!out->service[0])
		figure_text(process->name[0] ? process->name : "unknown", false, out->service);
	snprintf(out->pid, sizeof(out->pid), "%d", (int)process->pid);
	out->host = sender->host;
	out->interval = sender->opts->interval;
	out->ingest = sender->opts->ingest;
	for (enum push_receiver i = 0; i < PUSH_RECEIVERS; i++)
		if (sender->receivers[i].base[0])
			out->receivers[out->count++] = i;
}

/*
 * Bodies in place of sender->made, by their order in body, of one snapshot. 0; -ESRCH: the process
 * is not traced any more, or nothing that it holds is known; -errno.
 */
static int bodies_get(struct sender *sender, const struct sender_body *body)
{
	const struct profile_opts opts = {.session = sender->opts->session,
					  .pids = {(uint32_t)atoi(body->pid)},
					  .pid_count = 1,
					  .convert = bodies_make,
					  .convert_context = body,
					  .outs = body->count};
	struct profile profile = {.socket = -1};
	struct profile_end end = {0};
	int err = profile_begin(&profile, &opts);

	if (err)
		return err;
	struct pollfd wait = {.fd = profile.socket, .events = POLLIN};
	if (poll(&wait, 1, MAKE_MS) <= 0) {
		profile_kill(&profile);
		return error_set(-ETIMEDOUT, "the session has made no profile");
	}
	profile_finish(&profile, &end, sender->made, body->count);
	return end.status == 200 ? 0 : end.status == 404 ? -ESRCH : error_set(-EIO, "%s", end.text);
}

static void body_keep(struct sender *sender, enum push_receiver which, const struct buffer *made)
{
	int err = spool_put(&sender->spool, which, made);

	sender->opts->figures->of[which].made++;
	if (err && err != -EFBIG) {
		sender->opts->figures->of[which].dropped[PUSH_DROP_DISK]++;
		tell(sender, which, "a profile is dropped", error_reason(err));
	}
	figures_publish(sender);
}

static void process_make(struct sender *sender, const struct sender_process *process)
{
	struct sender_body body = {0};

	body_describe(sender, process, &body);
	whose_write(&body, body.service, sender->whose);
	int err = bodies_get(sender, &body);
	for (size_t i = 0; i < body.count; i++)
		if (!err)
			body_keep(sender, body.receivers[i], &sender->made[i]);
		else if (err != -ESRCH)
			tell(sender, body.receivers[i], "no profile was made", error_reason(err));
}

static int sums_ask(const struct sender *sender, struct buffer *out)
{
	const struct request request = {.kind = REQUEST_SUMS};
	_cleanup_(buffer_free) struct buffer answer = {0};
	_cleanup_close_ int memory = memfd_create("tracer-push", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	_cleanup_close_ int session = -1;

	if (memory < 0)
		return error_errno();
	session = session_socket_connect(SOCKET_DIRECTORY, sender->opts->session);
	if (session < 0)
		return session;
	return ask(session, &request, memory, ASK_TIMEOUT_MS, &answer)
		       ?: ask_memory_read(memory, LIST_BYTES, out);
}

/* Which processes are traced now. A session that does not answer has none this time. */
static void round_begin(struct sender *sender)
{
	_cleanup_(watch_model_end) struct watch_model model = {0};
	_cleanup_(buffer_free) struct buffer sums = {0};
	int err = watch_model_begin(&model) ?: sums_ask(sender, &sums)
						       ?: watch_model_sums(&model, sums.data,
									   sums.size);

	sender->process_count = sender->process_next = 0;
	for (size_t i = 0; !err && i < model.process_count; i++) {
		struct sender_process process = {.pid = (pid_t)model.processes[i].info.pid};

		snprintf(process.name, sizeof(process.name), "%.*s", SUMS_NAME_BYTES - 1,
			 model.processes[i].info.name);
		err = ARRAY_GROW(sender->processes, sender->process_capacity,
				 sender->process_count);
		if (!err)
			sender->processes[sender->process_count++] = process;
	}
	if (err)
		log_debug("push: the session: %s", error_reason(err));
}

/* --- sending ---------------------------------------------------------------------------------- */

uint64_t push_pause_ns(unsigned int failures, uint64_t retry_after, double random)
{
	uint64_t most = failures > 9 ? PAUSE_MAX : NS << (failures - 1);

	if (retry_after) {
		most = (retry_after < RETRY_MAX ? retry_after : RETRY_MAX) * NS;
		return most + (uint64_t)(random * (double)most / 10);
	}
	if (most > PAUSE_MAX)
		most = PAUSE_MAX;
	return most / 2 + (uint64_t)(random * (double)most / 2);
}

static double random_share(void)
{
	uint32_t number = 0;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return 1;
	return (double)number / UINT32_MAX;
}

static void attempt_failed(struct sender *sender, enum push_receiver which, const char *why)
{
	struct sender_receiver *receiver = &sender->receivers[which];

	sender->opts->figures->of[which].failed++;
	if (receiver->failures < UINT32_MAX)
		receiver->failures++;
	receiver->next_ns =
		clock_ns(CLOCK_MONOTONIC) +
		push_pause_ns(receiver->failures, sender->answer.retry_after, random_share());
	if (tell(sender, which, "it is tried again", why))
		receiver->is_told = true;
}

static void body_drop(struct sender *sender, enum push_receiver which,
		      const struct spool_item *item, enum push_drop drop, const char *why)
{
	spool_remove(&sender->spool, item);
	sender->opts->figures->of[which].dropped[drop]++;
	figures_publish(sender);
	tell(sender, which, "a profile is dropped", why);
}

static void body_sent(struct sender *sender, enum push_receiver which,
		      const struct spool_item *item)
{
	struct sender_receiver *receiver = &sender->receivers[which];

	spool_remove(&sender->spool, item);
	sender->opts->figures->of[which].sent++;
	sender->opts->figures->of[which].success = (uint64_t)time(NULL);
	figures_publish(sender);
	if (receiver->is_told)
		log_info("push: %s%s: it takes profiles again", receiver->base, receiver->path);
	receiver->is_told = false;
	receiver->failures = 0;
}

/* Says an acknowledgement of OTLP that profiles were refused? Then text is filled. */
static bool is_partial(const struct http_answer *answer, char text[160])
{
	long long rejected = 0;
	char message[100];

	if (answer->is_cut ||
	    otlp_answer_read(&answer->body, &rejected, message, sizeof(message)) || !rejected)
		return false;
	snprintf(text, 160, "%lld of its profiles are refused: %s", rejected, message);
	return true;
}

static void answer_take(struct sender *sender, enum push_receiver which,
			const struct spool_item *item)
{
	unsigned int status = sender->answer.status;
	char text[160];

	http_answer_text(&sender->answer, text, sizeof(text));
	if (status == 200 && which == PUSH_OTLP && is_partial(&sender->answer, text))
		body_drop(sender, which, item, PUSH_DROP_REFUSED, text);
	else if (status >= 200 && status < 300)
		body_sent(sender, which, item);
	else if (status >= 400 && status < 500 && status != 408 && status != 429)
		body_drop(sender, which, item, PUSH_DROP_REFUSED, text);
	else
		attempt_failed(sender, which, text);
}

/*
 * Its path, whose it is, and its headers behind the others in sender->headers; all in place. Where
 * what is sent begins; NULL: the file is damaged.
 */
static const char *body_split(struct sender *sender, const char **path, size_t *headers)
{
	char *end =
		memmem(sender->body.data,
		       sender->body.size < HEAD_BYTES ? sender->body.size : HEAD_BYTES, "\n\n", 2);
	char *at = (char *)sender->body.data, *line;

	*headers = sender->header_count;
	if (!end || at[0] != '/' || memchr(at, '\0', (size_t)(end - at)))
		return NULL;
	*end = '\0';
	*path = strsep(&at, "\n");
	char *space = strchr(*path, ' ');
	if (space)
		*space++ = '\0';
	/* A tracer before this one has not written it. */
	snprintf(sender->whose, sizeof(sender->whose), "%s", space ?: "a process");
	while ((line = strsep(&at, "\n"))) {
		if (*headers == sender->header_count + BODY_HEADERS)
			return NULL;
		sender->headers[(*headers)++] = line;
	}
	return end + 2;
}

static void body_send(struct sender *sender, enum push_receiver which,
		      const struct spool_item *item)
{
	char url[HEAD_BYTES + URL_BYTES];
	const char *path = "", *body = NULL;
	size_t headers = 0;
	int err = spool_read(&sender->spool, item, &sender->body);

	snprintf(sender->whose, sizeof(sender->whose), "a process");
	if (!err && !(body = body_split(sender, &path, &headers)))
		err = error_set(-EBADMSG, "its file in the spool is damaged");
	if (err) {
		body_drop(sender, which, item, PUSH_DROP_DISK, error_reason(err));
		return;
	}
	snprintf(url, sizeof(url), "%s%s", sender->receivers[which].base, path);
	const struct http_request request = {
		.url = url,
		.headers = sender->headers,
		.header_count = headers,
		.body = body,
		.body_bytes = sender->body.size - (size_t)(body - (char *)sender->body.data),
		.ca = sender->opts->ca[0] ? sender->opts->ca : NULL,
		.seconds = sender->opts->timeout,
		.answer_max = ANSWER_BYTES};
	err = http_ask(sender->client, &request, &sender->answer);
	if (err)
		attempt_failed(sender, which, error_reason(err));
	else
		answer_take(sender, which, item);
}

/* Sends one body to each receiver that waits for one. Was there one? */
static bool bodies_send(struct sender *sender)
{
	bool any = false;

	for (enum push_receiver i = 0; i < PUSH_RECEIVERS; i++) {
		struct sender_receiver *receiver = &sender->receivers[i];
		const struct spool_item *item =
			receiver->base[0] ? spool_oldest(&sender->spool, i) : NULL;

		if (!item || clock_ns(CLOCK_MONOTONIC) < receiver->next_ns)
			continue;
		body_send(sender, i, item);
		any = true;
	}
	return any;
}

/* --- the sender ------------------------------------------------------------------------------- */

_Noreturn static void sender_loop(struct sender *sender)
{
	for (;;) {
		uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
		bool any = false;

		/* One that takes longer than the interval is completed: all have their turn. */
		if (now_ns >= sender->round_ns && sender->process_next == sender->process_count) {
			round_begin(sender);
			sender->round_ns = now_ns + sender->opts->interval * NS;
		}
		if (sender->process_next < sender->process_count) {
			process_make(sender, &sender->processes[sender->process_next++]);
			any = true;
		}
		if (bodies_send(sender) || any)
			continue;
		/* One large profile is not to take memory for good. */
		buffer_free(&sender->body);
		for (size_t i = 0; i < PUSH_RECEIVERS; i++)
			buffer_free(&sender->made[i]);
		uint64_t until_ns = sender->round_ns;
		now_ns = clock_ns(CLOCK_MONOTONIC);
		for (enum push_receiver i = 0; i < PUSH_RECEIVERS; i++)
			if (sender->receivers[i].next_ns > now_ns &&
			    sender->receivers[i].next_ns < until_ns)
				until_ns = sender->receivers[i].next_ns;
		if (until_ns > now_ns)
			poll(NULL, 0, (int)((until_ns - now_ns) / 1000000 + 1));
	}
}

static bool header_is_valid(const char *line)
{
	const char *colon = strchr(line, ':');

	for (const char *at = line; colon && at < colon; at++)
		if (!isalnum((unsigned char)*at) && !strchr("-_", *at))
			return false;
	for (const char *at = line; *at; at++)
		if ((unsigned char)*at < ' ' && *at != '\t')
			return false;
	return colon && colon > line;
}

static int headers_parse(struct sender *sender, char *text)
{
	unsigned int number = 0;
	char *line;

	while ((line = strsep(&text, "\n"))) {
		number++;
		line[strcspn(line, "\r")] = '\0';
		if (!line[0] || line[0] == '#')
			continue;
		if (!header_is_valid(line))
			return error_set(-EINVAL, "line %u is no NAME: VALUE", number);
		if (sender->header_count == HEADERS_MAX)
			return error_set(-E2BIG, "it has more than %u headers", HEADERS_MAX);
		sender->headers[sender->header_count++] = line;
	}
	return 0;
}

static int headers_read(struct sender *sender, const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return error_errno();
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077)
		return error_set(-EPERM, "it must be a file that root alone can read");
	sender->headers_text = calloc(1, HEADERS_BYTES + 1);
	ssize_t got = sender->headers_text ? read(fd, sender->headers_text, HEADERS_BYTES + 1) : -1;
	if (got < 0)
		return error_errno();
	if (got > (ssize_t)HEADERS_BYTES)
		return error_set(-EFBIG, "it is larger than 16 KiB");
	return headers_parse(sender, sender->headers_text);
}

static void base_set(struct sender_receiver *receiver, const char *url, const char *ending)
{
	size_t bytes = strlen(url), end = strlen(ending);

	while (bytes && url[bytes - 1] == '/')
		bytes--;
	if (bytes > end && !strncmp(url + bytes - end, ending, end))
		bytes -= end;
	snprintf(receiver->base, URL_BYTES, "%.*s", (int)bytes, url);
	receiver->path = ending;
}

static int client_begin(struct sender *sender)
{
	int err = http_client_new(&sender->client);

	return err ? error_print(err, NULL, "push") : 0;
}

static int headers_begin(struct sender *sender)
{
	const char *path = sender->opts->headers_file;
	int err = path[0] ? headers_read(sender, path) : 0;

	return err ? error_print(err, "push.headers-file names it", "%s", path) : 0;
}

/* As libcurl reads it for each request, which then fails. */
static int ca_check(const char *path)
{
	gnutls_certificate_credentials_t credentials;
	int count = 0;

	if (!path[0])
		return 0;
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return error_print(error_errno(), "push.ca names it", "%s", path);
	if (!gnutls_certificate_allocate_credentials(&credentials)) {
		count = gnutls_certificate_set_x509_trust_file(credentials, path,
							       GNUTLS_X509_FMT_PEM);
		gnutls_certificate_free_credentials(credentials);
	}
	return count > 0 ? 0
			 : error_print(error_set(-EINVAL, "it is no file of certificates in PEM"),
				       "push.ca names it", "%s", path);
}

unsigned int push_check(const struct push_opts *opts)
{
	struct sender sender = {.opts = opts};
	bool client = client_begin(&sender), headers = headers_begin(&sender);
	/* Without libcurl there may be no TLS. */
	bool ca = !client && ca_check(opts->ca);

	http_client_free(sender.client);
	free(sender.headers_text);
	return client + headers + ca;
}

/* What needs rights, and what may fail. */
static int sender_begin(struct sender *sender)
{
	const struct push_opts *opts = sender->opts;
	char host[256] = "";
	int err = client_begin(sender) ?: headers_begin(sender);

	if (err)
		return err;
	err = spool_open(&sender->spool, opts->spool, opts->space);
	if (err)
		return error_print(err, "push.spool names it", "%s", opts->spool);
	gethostname(host, sizeof(host) - 1);
	figure_text(host[0] ? host : "unknown", false, sender->host);
	base_set(&sender->receivers[PUSH_OTLP], opts->url[PUSH_OTLP], OTLP_PATH);
	base_set(&sender->receivers[PUSH_PYROSCOPE], opts->url[PUSH_PYROSCOPE],
		 opts->ingest ? PYROSCOPE_INGEST : PYROSCOPE_PUSH);
	/* A session needs a while to attach. */
	sender->round_ns = clock_ns(CLOCK_MONOTONIC) + opts->interval * NS;
	err = privileges_drop_all();
	return err ? error_print(err, NULL, "push") : 0;
}

int push_run(const struct push_opts *opts)
{
	const struct rlimit no_core = {0, 0};
	struct sender sender = {.opts = opts, .spool.folder = -1};

	prctl(PR_SET_NAME, "tracer-push");
	setrlimit(RLIMIT_CORE, &no_core);
	signal(SIGPIPE, SIG_IGN);
	/* What the agent has open is not for it. */
	if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0))
		return error_print(error_errno(), NULL, "push");
	int err = sender_begin(&sender);
	if (err)
		return err;
	opts->figures->pid = (uint32_t)getpid();
	figures_publish(&sender);
	sender_loop(&sender);
}

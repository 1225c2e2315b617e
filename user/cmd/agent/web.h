/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The web server of `tracer agent`: docs/metrics.md has its endpoints. It is one process with one
 * thread, which reads only what any user may read in /proc, and asks the session by its socket as
 * any client of the same user does. Nothing that a request asks for makes another request wait:
 * a profile is made by a process of its own, and the session is asked without waiting for it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cmd/agent/push.h"
#include "proc/targets/target_set.h"

struct board;

#define WEB_PORT 9464
#define WEB_TOP  20

/* Borrowed until web_free(). */
struct web_opts {
	const char *address; /* "127.0.0.1", "::1", "0.0.0.0" */
	uint16_t port;
	/* each request but /healthz and /readyz must have it as its bearer token; NULL: none */
	const char *token;
	const char *certificate, *key;   /* PEM files: TLS; NULL: none */
	pid_t session;                   /* tracer's, reached by its socket; 0: nothing is traced */
	unsigned int top;                /* lines in /metrics, at most WEB_TOP_MAX; 0: WEB_TOP */
	const char *evidence;            /* folder of bundles; NULL: there is none */
	struct target_set *targets;      /* resolved: the processes that are shown */
	const struct push_figures *push; /* of the sender; NULL: nothing is pushed */
	const struct board *board;       /* names of containers (board.h) */
};
#define WEB_TOP_MAX 1000u

struct web;

/*
 * Reads the certificate and opens the listening socket, which needs privileges for ports below
 * 1024. 0; -EINVAL the address, certificate or key is none; -EADDRINUSE; -ENOTSUP this build has no
 * TLS; -errno (error_set).
 */
int web_open(struct web **out, const struct web_opts *opts);
/*
 * Only looks whether it could, whatever uses the port now: is the address this machine's, and do
 * the certificate and the key, if there are any, belong together? As web_open() does, it logs that
 * the certificate has expired or is not valid yet, which is no mistake. The number of mistakes,
 * each reported.
 */
unsigned int web_check(const struct web_opts *opts);
bool web_is_loopback(const char *address);
/* The session is another one now; for the next web_run(). */
void web_session(struct web *web, pid_t session);
/*
 * Serves until a signal asks for the end (SIGINT, SIGTERM, SIGHUP) or the process that has called
 * web_open() ends. Call it in that process or in a child of it, of one thread; it gives up all
 * capabilities. 0, -errno (error_set).
 */
int web_run(struct web *web);
/* Closes the socket in this process. NULL is legal. */
void web_free(struct web *web);

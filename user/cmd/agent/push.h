/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sender of `tracer agent`: docs/push.md. A process of one thread without capabilities, which
 * has a profile of each traced process made once in an interval, keeps it in a spool (spool.h) and
 * sends the oldest first. A profile stays in the spool until its receiver has answered for it, so
 * the sender may be killed at any time: at worst a profile is sent for a second time.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct board;

enum push_receiver { PUSH_OTLP, PUSH_PYROSCOPE, PUSH_RECEIVERS };
enum push_drop { PUSH_DROP_SPOOL, PUSH_DROP_REFUSED, PUSH_DROP_DISK, PUSH_DROPS };

extern const char *const push_receiver_names[PUSH_RECEIVERS];

/* In memory that the sender shares with the web server; zeros at first. */
struct push_figures {
	_Atomic uint32_t pid; /* of the sender */
	struct {
		_Atomic uint64_t made, sent, dropped[PUSH_DROPS];
		_Atomic uint64_t failed;       /* attempts */
		_Atomic uint64_t bytes, files; /* in the spool */
		_Atomic uint64_t success;      /* the last one, in seconds since 1970; 0: none */
	} of[PUSH_RECEIVERS];
	bool is_on[PUSH_RECEIVERS]; /* set before the processes are started */
};

struct push_opts {
	const char *url[PUSH_RECEIVERS]; /* "": none */
	bool ingest;                     /* Pyroscope's /ingest in place of its push */
	unsigned int interval, timeout;  /* seconds */
	const char *spool;               /* folder */
	uint64_t space;                  /* bytes of it */
	const char *headers_file, *ca;   /* "": none */
	pid_t session;
	struct push_figures *figures;
	const struct board *board; /* names of containers (board.h) */
};

/* Does not return unless it cannot begin: -errno, after it has printed why. Call it in a child. */
int push_run(const struct push_opts *opts);

/*
 * Could it begin? The headers' file, the authorities and libcurl are tried; the spool is not looked
 * at. The number of mistakes, each reported.
 */
unsigned int push_check(const struct push_opts *opts);

/*
 * How long to wait after so many attempts in a row (1 or more) have failed: a second, twice as long
 * each time, up to five minutes, of which random (0 to 1) decides the second half. A server's
 * Retry-After in seconds (0: none) is kept, up to ten minutes, with up to a tenth more.
 */
uint64_t push_pause_ns(unsigned int failures, uint64_t retry_after, double random);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to a session: one JSON object a line,
 *
 *   {"request": "status", "pid": 123}      also "snapshot", "blocks", "clear", "reset-peak", "stop"
 *   {"request": "lookup", "pid": 123, "address": 140012345678}
 *
 * pid is the traced process; it may be omitted if the session has only one. "snapshot" and "blocks"
 * (which line allocated each live block, trace/blocks/block_lines.h) are sent with the descriptor
 * to write to (SCM_RIGHTS); with "all": true the snapshot covers all processes of the session, with
 * "running": true beside it only those that have not ended, with "ages": true it tells ages.
 * "sums" and "stacks" are sent with a memfd, which gets what session/ctl/sums.h describes:
 *
 *   {"request": "sums", "layer": "native"}     of all running processes; layer may be omitted
 *   {"request": "sums", "threads": true}       by stack and thread; "tasks": by stack and task;
 *                                              "ages": by stack and age
 *   {"request": "sums", "since": 17}           what has changed since the answer of that number
 *   {"request": "sums", "older_ms": 60000}     of blocks of that age; "younger_ms": at most
 *   {"request": "stacks", "pid": 123, "first": 4096, "strings": 500}     from these on
 *
 * If the session has several processes, the answer gives the counts: {"snapshot":
 * true, "processes": 1, "of": 3}. Unknown targets are ignored. The answer is also one object on one
 * line; {"error": "..."} if the request failed.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define REQUEST_BYTES 4096u /* longest line, including the line end */

enum request_kind {
	REQUEST_STATUS,
	REQUEST_SNAPSHOT,
	REQUEST_CLEAR,
	REQUEST_RESET_PEAK,
	REQUEST_LOOKUP,
	REQUEST_STOP,
	REQUEST_BLOCKS,
	REQUEST_SUMS,
	REQUEST_STACKS,
};

/* What sums are told for. */
enum request_by { REQUEST_BY_STACK, REQUEST_BY_THREAD, REQUEST_BY_TASK, REQUEST_BY_AGE };

struct request {
	enum request_kind kind;
	uint32_t pid;           /* 0: not given */
	uint64_t address;       /* REQUEST_LOOKUP */
	int all, running, ages; /* REQUEST_SNAPSHOT */
	/* REQUEST_SUMS: 1 + enum event_layer; 0: the first layer of each process */
	uint32_t layer;
	enum request_by by; /* REQUEST_SUMS */
	/* REQUEST_SUMS: sums_header.number of what the client has of that layer; 0: nothing */
	uint32_t since;
	uint32_t older_ms, younger_ms; /* REQUEST_SUMS: 0: of any age; not by thread or task */
	uint32_t first, strings;       /* REQUEST_STACKS: what the client has already */
};

/*
 * Parses a line without its line end, from an untrusted peer. 0; -EBADMSG not a JSON object: the
 * peer does not speak this protocol; -EINVAL an object, but not a request (with error_set()).
 */
int request_parse(const char *line, size_t bytes, struct request *out);
/* The kind of that name: 0, -EINVAL. */
int request_kind_of(const char *name, enum request_kind *kind);
/* Writes the request's line with its line end into text, of REQUEST_BYTES. Returns the length. */
size_t request_print(char *text, const struct request *request);

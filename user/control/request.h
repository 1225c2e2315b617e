/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of a session: one JSON object a line,
 *
 *   {"request": "status", "pid": 123}      also "snapshot", "clear", "reset-peak", "stop"
 *   {"request": "lookup", "pid": 123, "address": 140012345678}
 *
 * pid names the traced process and may be left out when the session has one. With "snapshot" comes
 * the descriptor that it is written to (SCM_RIGHTS); with "all": true it is of all processes of the
 * session. Where the session has several, the answer says of how many it is: {"snapshot": true,
 * "processes": 1, "of": 3}. Members that are not known are passed over. The answer is one object on
 * one line, too; {"error": "..."} when it was not done.
 */
#ifndef TRACER_CONTROL_REQUEST_H
#define TRACER_CONTROL_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#define REQUEST_BYTES 4096u /* longest line, its end included */

enum request_kind {
	REQUEST_STATUS,
	REQUEST_SNAPSHOT,
	REQUEST_CLEAR,
	REQUEST_RESET_PEAK,
	REQUEST_LOOKUP,
	REQUEST_STOP,
};

struct request {
	enum request_kind kind;
	uint32_t pid;     /* 0: not named */
	uint64_t address; /* REQUEST_LOOKUP */
	int all;          /* REQUEST_SNAPSHOT */
};

/*
 * A line without its end; hostile. 0; -EBADMSG it is no JSON object: who sends that does not speak
 * this language; -EINVAL an object, but no request (error_set() says why).
 */
int request_parse(const char *line, size_t bytes, struct request *out);
/* The kind of that name: 0, -EINVAL. */
int request_kind_of(const char *name, enum request_kind *kind);
/* The line for it, its end included, into text of REQUEST_BYTES; its length. */
size_t request_print(char *text, const struct request *request);

#endif

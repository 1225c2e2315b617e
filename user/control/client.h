/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of a control: bounded lines in, one answer at a time out. Shared by control/ only.
 */
#ifndef TRACER_CONTROL_CLIENT_H
#define TRACER_CONTROL_CLIENT_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "control/request.h"

struct client;
struct trace;

/* Takes ownership of fd, which is non-blocking; pid is its peer's. 0, -ENOMEM. */
int client_new(struct client **out, int fd, pid_t pid);
void client_free(struct client *client); /* ends its saver; NULL is legal */
/* At most two. */
size_t client_poll_fds(const struct client *client, struct pollfd *fds);

/*
 * Sends what is still to be sent and reads what there is, never blocking. 1: *request is its next
 * one; 0: none yet; negative: it has gone, or was refused for what it sent, or for what it did not
 * within CONTROL_TIMEOUT_NS.
 */
int client_next(struct client *client, uint64_t now_ns, struct request *request);
/* 0, negative: it has gone. */
int client_flush(struct client *client);

/* The answer to its request: an object, or {"error": …}. */
void client_answer(struct client *client, const char *text, size_t bytes);
void client_error(struct client *client, const char *reason);
/*
 * Answers with an error out of turn, as far as it can be sent at once, and says so on stderr;
 * client_free() is next.
 */
void client_refuse(struct client *client, const char *reason);

/*
 * Begins to write a snapshot to the descriptor that came with the request, of a process or of all
 * (SAVER_ALL); of: how many the trace has. The answer follows when that is done. 0, -errno.
 */
int client_save(struct client *client, struct trace *trace, size_t process, size_t of);
int client_saves(const struct client *client);

/* Nothing begun, nothing owed; since when. */
int client_idle(const struct client *client);
uint64_t client_since_ns(const struct client *client);

#endif

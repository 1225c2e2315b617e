/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a session: bounded lines in, one answer at a time out. Internal to control/. */
#pragma once

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "session/ctl/request.h"
#include "session/ctl/saver.h"

struct client;
struct trace;

/* Takes ownership of fd, which must be non-blocking. pid is the peer's. 0, -ENOMEM. */
int client_new(struct client **out, int fd, pid_t pid);
void client_free(struct client *client); /* kills its saver; NULL is legal */
/* Fills at most two entries. */
size_t client_poll_fds(const struct client *client, struct pollfd *fds);

/*
 * Sends pending output and reads input, without blocking. 1: *request is the next request; 0: none
 * yet; negative: the client has closed, or was refused for an invalid line or for a timeout of
 * CONTROL_TIMEOUT_NS.
 */
int client_next(struct client *client, uint64_t now_ns, struct request *request);
/* 0; negative: the client has closed. */
int client_flush(struct client *client);

/* Answers the current request: an object, or {"error": …}. */
void client_answer(struct client *client, const char *text, size_t bytes);
void client_error(struct client *client, const char *reason);
/*
 * Sends an error outside the normal order, as far as possible without blocking, and logs it. Call
 * client_free() next.
 */
void client_refuse(struct client *client, const char *reason);

/*
 * Starts writing a snapshot or the blocks of a process, or of all (SAVER_ALL), to the descriptor
 * that came with the request. of: the number of processes in the trace. The answer is sent when the
 * file is complete. 0, -errno.
 */
int client_save(struct client *client, struct trace *trace, enum saver_what what, size_t process,
		size_t of);
int client_saves(const struct client *client);
/* The descriptor that came with the request, which the caller closes; -EINVAL: none (error_set). */
int client_take_passed(struct client *client);

/* No request begun and no output pending. client_since_ns() is the time since when. */
int client_idle(const struct client *client);
uint64_t client_since_ns(const struct client *client);

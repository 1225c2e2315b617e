/* SPDX-License-Identifier: Apache-2.0 */
/* Where the lines and ages of blocks come from. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/heap/heap_choice.h"
#include "session/ctl/ask.h"
#include "session/ctl/session_socket.h"
#include "util/error.h"

/* What the session says of a request that failed. */
static int answer_check(const struct buffer *answer)
{
	json_t *object = json_loads((const char *)answer->data, 0, NULL);
	const char *reason = json_string_value(json_object_get(object, "error"));
	int err = !json_is_object(object) ? error_set(-EBADMSG, "the session's answer is malformed")
		  : reason                ? error_set(-ENOTSUP, "%s", reason)
					  : 0;

	json_decref(object);
	return err;
}

/* A file in memory, into which the session writes. */
static int session_ask(pid_t pid, pid_t session, FILE **out)
{
	const struct request request = {.kind = REQUEST_BLOCKS, .pid = (uint32_t)pid};
	struct buffer answer = {0};
	int socket = ask_find(SOCKET_DIRECTORY, request.pid, session);

	if (socket < 0)
		return socket;
	int file = memfd_create("blocks", MFD_CLOEXEC);
	int err = file < 0 ? error_errno() : ask(socket, &request, file, ASK_FOREVER, &answer);
	close(socket);
	err = err ?: answer_check(&answer);
	if (!err && lseek(file, 0, SEEK_SET) < 0)
		err = error_errno();
	buffer_free(&answer);
	*out = err ? NULL : fdopen(file, "r");
	if (!*out && file >= 0)
		close(file);
	return err ?: *out ? 0 : error_errno();
}

int heap_lines_ask(pid_t pid, pid_t session, struct block_lines *out)
{
	FILE *file = NULL;
	int err = session_ask(pid, session, &file);

	if (err)
		return err;
	err = block_lines_read(out, file);
	fclose(file);
	return err;
}

static int lines_load(const char *path, struct block_lines *out)
{
	FILE *file = fopen(path, "re");

	if (!file)
		return error_errno();
	int err = block_lines_read(out, file);
	fclose(file);
	return err;
}

int heap_lines_open(const struct heap_choice *choice, struct block_lines *out)
{
	int err;

	error_clear();
	err = choice->trace ? lines_load(choice->trace, out)
			    : heap_lines_ask(choice->pid, (pid_t)choice->session, out);
	if (!err && choice->pid && out->pid != (uint32_t)choice->pid)
		err = error_set(-EINVAL, "it is of PID %u", out->pid);
	if (!err && choice->by_age && !out->taken_ms)
		err = error_set(-EINVAL, "it was written by an older version, without ages");
	if (!err)
		return 0;
	block_lines_free(out);
	if (choice->trace)
		return error_print(err, "tracer ctl PID blocks FILE writes such a file", "%s",
				   choice->trace);
	return error_print(err,
			   err == -EEXIST
				   ? "choose one with --session"
				   : "tracer -p PID starts a session; --trace takes what it has "
				     "written",
			   "PID %d", (int)choice->pid);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the worker and its owner: one per question and one per answer (SOCK_SEQPACKET).
 * Messages that send a file have no answer; later questions about the file return its errors.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "object/symbols/worker.h"

#define WORKER_FILES_MAX  3u            /* descriptors in a message */
#define WORKER_ANSWER_MAX (160u * 1024) /* outermost texts are left out if they do not fit */

enum worker_question_kind {
	WORKER_OPEN = 1,
	WORKER_FRAMES = 2,
	WORKER_OPEN_TABLES = 3,
	WORKER_SYMBOL = 4,
	WORKER_UNWIND = 5
};

struct worker_question {
	uint32_t kind; /* enum worker_question_kind */
	uint32_t file;
	uint64_t vaddr;
	uint64_t tables_max; /* WORKER_OPEN_TABLES */
	uint32_t rows;       /* WORKER_UNWIND: enum abi_unwind_rows */
	uint32_t pad;
	char symbol[]; /* with its NUL */
};

/*
 * result: the number of frames, or -errno. A struct worker_wire_frame per frame follows, then the
 * texts, each with NUL.
 */
struct worker_answer {
	int32_t result;
	uint32_t pad;
};

struct worker_wire_frame {
	uint32_t line;
	uint32_t function, filename; /* offsets in the message */
};

/* Main loop of the worker. Does not return. socket: its end. */
void worker_child_run(int socket, pid_t parent) __attribute__((noreturn));

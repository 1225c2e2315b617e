/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the worker and its owner say to each other: one message a question, one an answer
 * (SOCK_SEQPACKET). What hands over a file has no answer: what became of it, questions about the
 * file tell.
 */
#ifndef TRACER_SYMBOLS_WORKER_WIRE_H
#define TRACER_SYMBOLS_WORKER_WIRE_H

#include <stdint.h>
#include <sys/types.h>

#include "symbols/worker.h"

#define WORKER_FILES_MAX  2u            /* descriptors in a message */
#define WORKER_ANSWER_MAX (160u * 1024) /* texts beyond it are left out, outermost first */

enum worker_question_kind {
	WORKER_OPEN = 1,
	WORKER_FRAMES = 2,
	WORKER_OPEN_TABLES = 3,
	WORKER_SYMBOL = 4
};

struct worker_question {
	uint32_t kind; /* enum worker_question_kind */
	uint32_t file;
	uint64_t vaddr;
	uint64_t tables_max; /* WORKER_OPEN_TABLES */
	char symbol[];       /* with its NUL */
};

/*
 * result: 0 or the number of frames, or -errno. Behind it a struct worker_wire_frame each, then the
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

/* The child's life. Does not return. socket: its end. */
void worker_child_run(int socket, pid_t parent) __attribute__((noreturn));

#endif

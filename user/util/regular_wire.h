/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between regular.c and the process in regular_child.c (SOCK_SEQPACKET). */
#pragma once

#include <limits.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

enum regular_kind {
	REGULAR_FILE,   /* opened by a path below the descriptor */
	REGULAR_REOPEN, /* the descriptor, which was opened with O_PATH */
	REGULAR_FOLDER, /* a folder below the descriptor */
	REGULAR_NAMES,  /* the names in the descriptor's folder */
	REGULAR_LOCAL,  /* is the descriptor of a local file system? */
};

/* Comes with a descriptor, unless has_descriptor is 0: then the path begins where we are. */
struct regular_question {
	uint32_t kind, has_descriptor;
	uint64_t resolve;
	char path[PATH_MAX];
};

enum regular_result {
	REGULAR_DONE,   /* comes with a descriptor, but for REGULAR_LOCAL and _WORD */
	REGULAR_COPIED, /* with two: the copy, and the file itself (O_PATH) */
	REGULAR_GOES_ON /* no answer: a part was read */
};

struct regular_answer {
	int32_t result;   /* enum regular_result, -errno */
	int32_t cut;      /* REGULAR_NAMES: 1: there are more */
	int32_t is_local; /* REGULAR_LOCAL */
	struct stat stat; /* of the file */
};

/* Bytes of names, with their NULs. */
#define REGULAR_NAMES_MAX (16u << 20)

/* The process's main loop. Does not return. socket: its end. */
void regular_child_run(int socket, pid_t parent) __attribute__((noreturn));

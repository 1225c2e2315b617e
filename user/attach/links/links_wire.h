/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol between links_holder.c and the process in links_holder_child.c. */
#pragma once

#include <stdint.h>

#include "attach/links/links.h"

#define LINKS_SITES_MAX (1u << 20) /* per request */
#define LINKS_PATH_MAX  128        /* bytes of a path, including its NUL */

enum links_op { LINKS_ADD, LINKS_DROP, LINKS_CONFINE, LINKS_SWEEP, LINKS_END };

/*
 * LINKS_ADD comes with two descriptors, the program's and the file's, and is followed by count
 * offsets, count cookies and, with has_semaphores, count offsets of semaphores. LINKS_DROP
 * is followed by count group ids, LINKS_SWEEP by count bytes of a path. Each request is answered,
 * except LINKS_END.
 */
struct links_request {
	uint32_t op;
	uint32_t backend, kind; /* LINKS_ADD */
	int32_t pid;            /* LINKS_ADD */
	uint32_t group;         /* LINKS_ADD */
	uint32_t count;
	int32_t wait;            /* LINKS_DROP */
	int32_t attaches;        /* LINKS_CONFINE */
	uint32_t has_semaphores; /* LINKS_ADD */
	uint32_t pad;
};

struct links_answer {
	int32_t err;    /* 0, -errno */
	uint32_t made;  /* LINKS_ADD: descriptors */
	uint64_t where; /* LINKS_ADD: the offset that the kernel refused */
};

/* The main function of the process; never returns. owner: a pidfd of its creator, or -1. */
void links_holder_run(int socket, int owner) __attribute__((noreturn));

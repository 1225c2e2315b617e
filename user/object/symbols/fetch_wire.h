/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the process that fetches files and its owner (SOCK_SEQPACKET). */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "object/elf/elf_section.h"

struct fetch_question {
	uint32_t number;
	char build_id[ELF_BUILD_ID_HEX_MAX];
};

/* result: 0, with a descriptor; -errno. The first one, number 0, says whether it can begin. */
struct fetch_result {
	uint32_t number;
	int32_t result;
};

/* The process's main loop. Does not return. socket: its end. */
void fetch_child_run(int socket, pid_t parent, const char *urls) __attribute__((noreturn));

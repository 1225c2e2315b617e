/* SPDX-License-Identifier: Apache-2.0 */
/* --by task: does a member tell its asyncio tasks? */
#ifndef TRACER_SESSION_TASKS_CHOOSE_H
#define TRACER_SESSION_TASKS_CHOOSE_H

#include "member/member.h"

/*
 * Sets its target so that BPF tells them, if they are asked for. followed: nobody has asked for
 * this process by itself. Then, and under -a, one that does not tell them is traced without;
 * others are refused. 0; -ENOTSUP, as tasks_find() (error_set).
 */
int tasks_choose(struct session *session, struct member *member, int followed);

#endif

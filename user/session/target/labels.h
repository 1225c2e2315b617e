/* SPDX-License-Identifier: Apache-2.0 */
/* What is told with the blocks of targets: their asyncio task, or the value of a variable. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/events.h"

struct session;
struct target;

/*
 * To be called before the target is registered: sets its target so that BPF tells what is asked
 * for, if anything is. followed: nobody has asked for this process by itself. Then, and under -a,
 * one that does not tell it is traced without; others are refused. A variable that is not there yet
 * is looked for later. 0; -ENOTSUP, -EEXIST (error_set); -ESRCH; -EPERM; -ENOMEM.
 */
int target_label_choose(struct session *session, struct target *target, int followed);
/*
 * What is fed in place of a record of BPF's. With session_opts.hash_labels of an EVENT_TASK a copy
 * in *hashed, which has a keyed hash in place of the name or value; else the record.
 */
const void *session_label_hash(const struct session *session, const void *record, size_t size,
			       struct event_task *hashed);
/* Looks for variables of targets that did not have them yet. */
void session_labels_due(struct session *session, uint64_t now);

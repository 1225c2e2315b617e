/* SPDX-License-Identifier: Apache-2.0 */
/* Following processes that appear while a session runs. */
#pragma once

#include <stdint.h>

struct session;

/* 0, -ENOMEM. */
int follow_new(struct session *session);
void follow_free(struct session *session);
/*
 * Called with each record before the trace is fed; attaches nothing. 1: the record is consumed here
 * and not fed.
 */
int follow_takes(struct session *session, const void *record);
/* The same after the trace was fed. */
void follow_note(struct session *session, const void *record);
/* Does what those records ask for. Not to be called while records are drained. */
void follow_step(struct session *session);
/* lost: LOSS_PROCESS. If it has grown, looks for processes whose records were lost. */
void follow_lost(struct session *session, uint64_t lost);

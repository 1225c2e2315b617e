/* SPDX-License-Identifier: Apache-2.0 */
/* Processes in which a return probe does harm: attach/selftest/seccomp.h, bpf/returns.h. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct plan_target;
struct session;

/*
 * May this plan's probes be placed in the process? 0, always if it has no return probes; -ENOTSUP:
 * a return would end the process (error_set()); -ESRCH; -errno: not known.
 */
int returns_check(struct session *session, pid_t pid, const struct plan_target *plans);
/* missing: LOSS_RETURN. If it has grown because a thread bars returns by now, logs that once. */
void returns_watch(struct session *session, uint64_t missing);

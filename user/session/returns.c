/* SPDX-License-Identifier: Apache-2.0 */
#include "session/returns.h"

#include <errno.h>

#include "attach/attach.h"
#include "base/error.h"
#include "member/state.h"
#include "process_plan/plan_target.h"
#include "trial/seccomp.h"

#define DISPATCH "has its system calls sent to itself (syscall user dispatch, as under Wine)"

static int has_returns(const struct plan_target *target)
{
	int found = seccomp_concerns(&target->python);

	for (size_t i = 0; i < target->native_count; i++)
		found |= seccomp_concerns(target->native[i].plan);
	return found;
}

static int seccomp_allows(struct session *session, pid_t pid, const struct plan_target *target)
{
	int err = seccomp_check(&session->seccomp, &session->features, pid, &target->python);

	for (size_t i = 0; i < target->native_count && !err; i++)
		err = seccomp_check(&session->seccomp, &session->features, pid,
				    target->native[i].plan);
	return err;
}

static void barred_log(struct session *session, pid_t pid)
{
	if (session->barred_logs++ < SESSION_LOGS)
		log_info("PID %d " DISPATCH ": the returns of such threads are not probed, and "
			 "their requests are not seen",
			 (int)pid);
}

int returns_check(struct session *session, pid_t pid, const struct plan_target *target)
{
	uint32_t tgid = (uint32_t)pid;

	if (has_returns(target) && attach_barred_threads(session->attach, &tgid) > 0) {
		if (!attach_chooses_returns(session->attach))
			return error_set(-ENOTSUP, "it " DISPATCH ": the system call of a return "
						   "probe would end it");
		barred_log(session, pid);
	}
	return seccomp_allows(session, pid, target);
}

void returns_watch(struct session *session, uint64_t missing)
{
	uint32_t tgid = 0;

	if (missing == session->returns_missing)
		return;
	session->returns_missing = missing;
	if (!session->barred_logs && attach_barred_threads(session->attach, &tgid) > 0)
		barred_log(session, (pid_t)tgid);
}

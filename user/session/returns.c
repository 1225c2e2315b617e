/* SPDX-License-Identifier: Apache-2.0 */
#include "session/returns.h"

#include <errno.h>

#include "attach/attach.h"
#include "attach/selftest/seccomp.h"
#include "probe/process/plan_target.h"
#include "session/target/state.h"
#include "util/error.h"

#define DISPATCH "has its system calls sent to itself (syscall user dispatch, as under Wine)"

static bool has_returns(const struct plan_target *plans)
{
	int found = seccomp_concerns(&plans->python);

	for (size_t i = 0; i < plans->native_count; i++)
		found |= seccomp_concerns(plans->native[i].plan);
	return found;
}

static int seccomp_allows(struct session *session, pid_t pid, const struct plan_target *plans)
{
	int err = seccomp_check(&session->seccomp, &session->features, pid, &plans->python);

	for (size_t i = 0; i < plans->native_count && !err; i++)
		err = seccomp_check(&session->seccomp, &session->features, pid,
				    plans->native[i].plan);
	return err;
}

/*
 * Also where our programs decide at each entry whether the return is probed: the kernel makes the
 * system call if any probe at that place wants the return, and each link whose processes do not
 * include this one counts as one that does. Such are another tracer's, or our own of another
 * process, which may come at any time.
 */
static int threads_allow(struct session *session, pid_t pid)
{
	uint32_t tgid = (uint32_t)pid;
	int barred = attach_barred_threads(session->attach, &tgid);

	if (barred < 0)
		return error_set(barred, "it is not known whether it " DISPATCH);
	return barred ? error_set(-ENOTSUP, "it " DISPATCH ": the system call of a return probe "
					    "would end it")
		      : 0;
}

int returns_check(struct session *session, pid_t pid, const struct plan_target *plans)
{
	int err = has_returns(plans) ? threads_allow(session, pid) : 0;

	return err ?: seccomp_allows(session, pid, plans);
}

void returns_watch(struct session *session, uint64_t missing)
{
	uint32_t tgid = 0;

	if (missing == session->returns_missing)
		return;
	session->returns_missing = missing;
	if (session->barred_logged || attach_barred_threads(session->attach, &tgid) <= 0)
		return;
	session->barred_logged = 1;
	log_info("PID %d " DISPATCH ": the returns of such threads are not probed, and their "
		 "requests are not seen; if another trace probes the same functions, the kernel "
		 "ends it",
		 (int)tgid);
}

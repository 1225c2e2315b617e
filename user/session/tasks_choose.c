/* SPDX-License-Identifier: Apache-2.0 */
#include "session/tasks_choose.h"

#include <errno.h>

#include "base/error.h"
#include "member/state.h"
#include "python/tasks.h"

int tasks_choose(struct session *session, struct member *member, int followed)
{
	int err = session->opts.tasks && member->runtime.version_hex ? tasks_find(&member->runtime)
								     : 0;

	if (err != -ENOTSUP || !(followed || session->opts.everywhere))
		return err;
	member->tasks_untold = 1;
	member->runtime.target.offsets.tstate_task = 0;
	if (session->tasks_logs++ < SESSION_LOGS)
		log_info("PID %d is traced without its tasks: %s", member->pid, error_reason(err));
	if (session->tasks_logs == SESSION_LOGS)
		log_info("further processes that do not tell their tasks are not logged");
	return 0;
}

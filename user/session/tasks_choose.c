/* SPDX-License-Identifier: Apache-2.0 */
#include "session/tasks_choose.h"

#include <errno.h>

#include "base/error.h"
#include "member/probe.h"
#include "member/state.h"
#include "python/tasks.h"

/* Places the probe at Task.set_name(). Without it BPF reads the task's name more often. */
static int setter_probe(struct session *session, struct member *member, struct elf_file *file,
			uint64_t vaddr)
{
	struct plan_site site = {.symbol = "Task.set_name",
				 .vaddr = vaddr,
				 .cookie = ABI_COOKIE(ABI_OP_RENAME, EVENT_API_OBJ, ABI_ARGUMENT_1,
						      ABI_ARGUMENT_2, ABI_REG_COUNT),
				 .op = ABI_OP_RENAME};
	const struct plan plan = {.sites = &site, .count = 1};
	pid_t scope = probe_scope(session, member, file);
	int err = elf_file_offset(file, vaddr, &site.offset);

	if (!err)
		err = attach_groups(session->attach, &plan, file, scope, ATTACH_LAST);
	if (!err)
		member->runtime.target.renames =
			scope < 0 ? ABI_RENAMES_EVERYWHERE : ABI_RENAMES_HERE;
	return err;
}

static void setter_watch(struct session *session, struct member *member)
{
	struct elf_file *file;
	uint64_t vaddr;
	int err = tasks_setter_find(&member->runtime, &file, &vaddr);

	if (!err) {
		err = setter_probe(session, member, file, vaddr);
		elf_file_close(file);
	}
	if (err)
		log_debug("PID %d: Task.set_name() has no probe: %s", member->pid,
			  error_reason(err));
	error_clear();
}

int tasks_choose(struct session *session, struct member *member, int followed)
{
	int err = session->opts.tasks && member->runtime.version_hex ? tasks_find(&member->runtime)
								     : 0;

	if (!err && member->runtime.target.offsets.tstate_task && session->opts.tasks)
		setter_watch(session, member);
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "member/provider.h"

#include "base/clock.h"
#include "base/error.h"
#include "member/member.h"
#include "member/state.h"
#include "native/plan_provider.h"

/* What was traced so far is dropped: the frees of these blocks are not seen from here on. */
static void table_log(const struct session *session, const struct member *member, const char *path)
{
	const struct trace_process *process = trace_process_at(session->trace, member->index);
	uint64_t blocks = process ? process->tables[EVENT_LAYER_NATIVE].live_blocks : 0;

	if (blocks)
		log_info("PID %d samples its native allocations itself from here on (" PLAN_PROVIDER
			 " in %s): %llu blocks that were traced before are dropped",
			 member->pid, path, (unsigned long long)blocks);
}

int member_provider_begin(struct session *session, struct member *member,
			  const struct plan_target *target)
{
	struct event_mark record = {.header = {.type = EVENT_SELF_SAMPLED,
					       .size = sizeof(record),
					       .tgid = (uint32_t)member->pid,
					       .tid = (uint32_t)member->pid}};

	if (member->self_sampled || !(member->layers & 1u << EVENT_LAYER_NATIVE) ||
	    !plan_native_is_self_sampled(target->native, target->native_count))
		return 0;
	session_pull(session);
	if (member->ended)
		return 0;
	table_log(session, member, elf_file_path(target->native[0].file));
	member->self_sampled = 1;
	attach_drop(session->attach, member->pid, ATTACH_MALLOC, 0);
	record.header.time_ns = clock_ns(CLOCK_MONOTONIC);
	return session_feed(session, &record, sizeof(record));
}

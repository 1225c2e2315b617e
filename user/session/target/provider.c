/* SPDX-License-Identifier: Apache-2.0 */
#include "session/target/provider.h"

#include "probe/malloc/plan_provider.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "util/clock.h"
#include "util/error.h"

/* What was traced so far is dropped: the frees of these blocks are not seen from here on. */
static void table_log(const struct session *session, const struct target *target, const char *path)
{
	const struct trace_process *process = trace_process_at(session->trace, target->index);
	uint64_t blocks = process ? process->tables[EVENT_LAYER_NATIVE].live_blocks : 0;

	if (blocks)
		log_info("PID %d samples its native allocations itself from here on (" PLAN_PROVIDER
			 " in %s): %llu blocks that were traced before are dropped",
			 target->pid, path, (unsigned long long)blocks);
}

int target_provider_begin(struct session *session, struct target *target,
			  const struct plan_target *plans)
{
	struct event_mark record = {.header = {.type = EVENT_SELF_SAMPLED,
					       .size = sizeof(record),
					       .tgid = (uint32_t)target->pid,
					       .tid = (uint32_t)target->pid}};

	if (target->self_sampled || !(target->layers & 1u << EVENT_LAYER_NATIVE) ||
	    !plan_native_is_self_sampled(plans->native, plans->native_count))
		return 0;
	session_pull(session);
	if (target->ended)
		return 0;
	table_log(session, target, elf_file_path(plans->native[0].file));
	target->self_sampled = 1;
	attach_drop(session->attach, target->pid, ATTACH_MALLOC, 0);
	record.header.time_ns = clock_ns(CLOCK_MONOTONIC);
	return session_feed(session, &record, sizeof(record));
}

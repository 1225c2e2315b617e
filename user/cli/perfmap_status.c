/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/perfmap_status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "text/text.h"

static const char *file_state(const struct perfmap_process *process)
{
	switch (process->file) {
	case PERFMAP_FILE_OPEN:
		return "open";
	case PERFMAP_FILE_CLOSED:
		return "closed";
	default:
		return "not known";
	}
}

void perfmap_status_print(const struct perfmap_member *member)
{
	const struct perfmap_process *process = member->process;
	size_t jitdumps = 0;

	printf("PID %d (", member->pid);
	text_print(stdout, member->name);
	printf(")%s\n", process->exited ? ", which has ended" : "");
	printf("  map file: /tmp/perf-%d.map in its own root, %s\n", member->ns_pid,
	       file_state(process));
	printf("  entries: %zu\n", perfmap_table_count(process->table));
	printf("  persistence after fork: %s\n",
	       process->persist < 0 ? "not set since the trace began (default: off)"
	       : process->persist   ? "on"
				    : "off");
	printf("  calls: Init %" PRIu64 " (%" PRIu64 " failed", process->inits,
	       process->init_failures);
	if (process->inits)
		printf(", the last returned %d", process->init_result);
	printf("), WritePerfMapEntry %" PRIu64 ", Fini %" PRIu64 ", CopyPerfMapFile %" PRIu64
	       ", CompileCode %" PRIu64 ", SetPersistAfterFork %" PRIu64 "\n",
	       process->writes, process->finis, process->copies, process->compiles,
	       process->persists);
	for (size_t i = 0; i < member->follow_count; i++)
		jitdumps += member->follows[i]->is_jitdump;
	printf("  JIT images: %zu registered; files followed: %zu, %zu of them jitdumps\n",
	       process->image_count, member->follow_count, jitdumps);
	printf("  entries whose memory was unmapped: %" PRIu64 "\n", process->expired);
}

static void remark(const struct perfmap_member *member, uint64_t count, const char *what)
{
	if (count)
		log_info("PID %d: %" PRIu64 " %s", member->pid, count, what);
}

static void member_remarks(const struct perfmap_member *member)
{
	const struct perfmap_process *process = member->process;
	uint64_t refused = 0, cut = process->cut, failed = 0;

	for (size_t i = 0; i < member->follow_count; i++) {
		const struct perfmap_follow *follow = member->follows[i];

		refused += follow->is_jitdump ? follow->jitdump.refused : follow->text.refused;
		cut += follow->is_jitdump ? follow->jitdump.cut : follow->text.cut;
		failed += follow->failed || (follow->is_jitdump && follow->jitdump.lost);
	}
	remark(member, process->missed, "entries are missing: their names could not be read");
	remark(member, process->refused,
	       "entries were refused: no size, no name, beyond the address space, or too many");
	remark(member, process->dropped,
	       "entries are missing: there was no memory for them (--budget)");
	remark(member, refused, "lines or records of its files are not valid entries");
	remark(member, cut, "names were cut at 4096 bytes");
	remark(member, failed, "of its files could not be read to the end");
	remark(member, member->follows_dropped, "more files of it are not read");
	remark(member, process->files_failed, "map files that it copied could not be read");
	remark(member, process->images_unreadable, "JIT images could not be read");
	for (int i = 0; i < 2; i++)
		if (member->places.at[i].conflicts)
			log_info("PID %d: %zu entries are not in %s: the process's own lines name "
				 "other code at their addresses, and stay as they are",
				 member->pid, member->places.at[i].conflicts,
				 member->places.at[i].shown);
	if (member->stale)
		log_info("PID %d: what is in its map file was written before it began, by an "
			 "earlier process with its id, and is left out",
			 member->pid);
	if (member->older)
		log_info("PID %d: its map file is older than the process: of the lines that were "
			 "there, those for memory that is not mapped are left out",
			 member->pid);
	if (member->orphaned)
		log_info("PID %d: it was forked by a process that has ended: functions from before "
			 "that may have no names",
			 member->pid);
	if (member->files_refused)
		log_info("PID %d: its map file was not read: %s", member->pid, member->file_reason);
}

static int is_blind(const struct perfmap_session *session)
{
	for (size_t i = 0; i < perfmap_session_count(session); i++) {
		const struct perfmap_process *process = perfmap_session_at(session, i)->process;

		if (perfmap_table_count(process->table) || process->expired || process->refused ||
		    process->missed)
			return 0;
	}
	return 1;
}

int perfmap_blind_check(const struct perfmap_session *session)
{
	__u64 counts[LOSS_COUNT];
	int err = perfmap_session_loss(session, counts);

	if (err || !counts[LOSS_MAP_ENTRY] || !is_blind(session))
		return err;
	return error_set(-ENODATA, "not one entry was seen: the ring buffer was full (lost: %llu)",
			 counts[LOSS_MAP_ENTRY]);
}

void perfmap_not_seen_print(const struct perfmap_session *session)
{
	__u64 counts[LOSS_COUNT];
	size_t let_go = 0;

	for (size_t i = 0; i < perfmap_session_count(session); i++) {
		const struct perfmap_member *member = perfmap_session_at(session, i);

		member_remarks(member);
		if (member->named)
			perfmap_session_advise(perfmap_session_at(session, i));
		let_go += member->process->evicted != 0;
	}
	if (let_go)
		log_info("maps of ended processes that were dropped to free memory (--budget): %zu",
			 let_go);
	if (perfmap_session_loss(session, counts))
		return;
	if (counts[LOSS_MAP_ENTRY] && !is_blind(session))
		log_info(
			"%llu entries were lost: the ring buffer was full; a larger one (--buffer) "
			"helps",
			counts[LOSS_MAP_ENTRY]);
	if (counts[LOSS_MAP_CALL] + counts[LOSS_PROCESS])
		log_info("%llu other events were lost",
			 counts[LOSS_MAP_CALL] + counts[LOSS_PROCESS]);
}

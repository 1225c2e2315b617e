/* SPDX-License-Identifier: Apache-2.0 */
#include "session/target/labels.h"

#include <errno.h>
#include <string.h>

#include "runtime/cpython/labels.h"
#include "runtime/cpython/tasks.h"
#include "session/target/place.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "util/clock.h"
#include "util/error.h"

/*
 * For what is not there yet: after a second and for a twentieth of the time. Where no heap is read,
 * soon, and then each time after twice as long: with -a there are many that never have it.
 */
#define LOOK_AGAIN_NS 1000000000ull
#define LOOK_SOON_NS  50000000ull
#define LOOKS_LONGER  6u
#define LOOK_SHARE    20

/* Places the probe at Task.set_name(). Without it BPF reads the task's name more often. */
static int setter_probe(struct session *session, struct target *target, struct elf_file *file,
			uint64_t vaddr)
{
	struct plan_site site = {.symbol = "Task.set_name",
				 .vaddr = vaddr,
				 .cookie = ABI_COOKIE(ABI_OP_RENAME, EVENT_API_OBJ, ABI_ARGUMENT_1,
						      ABI_ARGUMENT_2, ABI_REG_COUNT),
				 .op = ABI_OP_RENAME};
	const struct plan plan = {.sites = &site, .count = 1};
	pid_t scope = probe_scope(session, target, file);
	int err = elf_file_offset(file, vaddr, &site.offset)
			  ?: attach_groups(session->attach, &plan, file, scope, ATTACH_LAST);

	if (!err)
		target->runtime.target.renames =
			scope < 0 ? ABI_RENAMES_EVERYWHERE : ABI_RENAMES_HERE;
	return err;
}

static void setter_watch(struct session *session, struct target *target)
{
	struct elf_file *file;
	uint64_t vaddr;
	int err = tasks_setter_find(&target->runtime, &file, &vaddr);

	if (!err) {
		err = setter_probe(session, target, file, vaddr);
		elf_file_close(file);
	}
	if (err)
		log_debug("PID %d: Task.set_name() has no probe: %s", target->pid,
			  error_reason(err));
	error_clear();
}

/* How long after a look that took so long there is another one. */
static uint64_t look_wait_ns(const struct session *session, struct target *target, uint64_t took_ns)
{
	uint64_t wait_ns = LOOK_AGAIN_NS;

	if (!labels_reads_heap(&session->opts.label)) {
		wait_ns = LOOK_SOON_NS << target->label_looks;
		if (target->label_looks < LOOKS_LONGER)
			target->label_looks++;
	}
	return wait_ns + LOOK_SHARE * took_ns;
}

/* Passes on to BPF where the variable is; with -EAGAIN it is looked for later. 0, -errno. */
static int label_find(struct session *session, struct target *target)
{
	uint64_t begun_ns = clock_ns(CLOCK_MONOTONIC), now_ns;
	struct label_found found;
	int err = labels_find(&target->runtime, &session->opts.label, &found);

	now_ns = clock_ns(CLOCK_MONOTONIC);
	target->label_ns = 0;
	if (!err && found.dropped)
		log_info("PID %d: %zu functions or types beyond %u are not looked at for --by",
			 target->pid, found.dropped, LABEL_CODES);
	if (err == -EAGAIN)
		target->label_ns = now_ns + look_wait_ns(session, target, now_ns - begun_ns);
	return err
		       ?: attach_label(session->attach, (uint32_t)target->pid, &found.label,
				       found.keys, found.codes, found.code_count);
}

static int target_label_find(struct session *session, struct target *target)
{
	int err;

	if (session->opts.label.source == ABI_LABEL_TASK) {
		err = tasks_find(&target->runtime);
		if (err)
			return err;
		setter_watch(session, target);
		if (target->runtime.target.offsets.tstate_task)
			return 0;
	}
	err = label_find(session, target);
	if (err != -EAGAIN)
		return err;
	if (session->label_logs++ < SESSION_LOGS)
		log_info("PID %d: %s; it is looked for from time to time", target->pid,
			 error_reason(err));
	error_clear();
	return 0;
}

int target_label_choose(struct session *session, struct target *target, int followed)
{
	int err = session->opts.label.source && target->runtime.version_hex
			  ? target_label_find(session, target)
			  : 0;

	if ((err != -ENOTSUP && err != -EEXIST) || !(followed || session->opts.everywhere))
		return err;
	target->tasks_unreported = 1;
	target->runtime.target.offsets.task_name = 0;
	if (session->label_logs++ < SESSION_LOGS)
		log_info("PID %d is traced without what --by asks for: %s", target->pid,
			 error_reason(err));
	if (session->label_logs == SESSION_LOGS)
		log_info("further processes that do not tell it are not logged");
	return 0;
}

const void *session_label_hash(const struct session *session, const void *record, size_t size,
			       struct event_task *hashed)
{
	const struct event_header *header = record;

	if (!session->opts.hash_labels || header->type != EVENT_TASK || size < EVENT_TASK_MIN)
		return record;
	*hashed = (struct event_task){0};
	memcpy(hashed, record, size < sizeof(*hashed) ? size : sizeof(*hashed));
	if (hashed->how == EVENT_TASK_NONE || hashed->how == EVENT_TASK_UNKNOWN ||
	    hashed->how == EVENT_TASK_NUMBERED || hashed->how == EVENT_TASK_OTHER)
		return hashed;
	/* Behind a text are pieces of others. */
	size_t start = offsetof(struct event_task, number),
	       used = hashed->how == EVENT_TASK_NAMED || hashed->how == EVENT_TASK_RAW
			      ? hashed->bytes
			      : sizeof(uint64_t);
	if (used < sizeof(hashed->name))
		memset(hashed->name + used, 0, sizeof(hashed->name) - used);
	uint64_t hash = siphash(&session->label_key, (const uint8_t *)hashed + start,
				sizeof(*hashed) - start);
	*hashed = (struct event_task){
		.header = hashed->header, .number = hash, .how = EVENT_TASK_HASHED};
	return hashed;
}

/* It was traced before it was known that it does not tell: from now on its blocks say so. */
static void label_unknown(struct session *session, struct target *target, int err)
{
	const struct abi_label unknown = {.variable = ABI_LABEL_UNKNOWN};

	log_info("PID %d is traced without what --by asks for: %s", target->pid, error_reason(err));
	if (attach_label(session->attach, (uint32_t)target->pid, &unknown, NULL, NULL, 0))
		log_debug("PID %d: its blocks do not say so", target->pid);
}

void session_labels_due(struct session *session, uint64_t now)
{
	for (size_t i = 0; i < session->count; i++) {
		struct target *target = session->targets[i];

		if (!target->label_ns || now < target->label_ns || target->ended)
			continue;
		int err = label_find(session, target);
		/* The types that BPF compares with are in the target. */
		if (!err && target->begun)
			err = attach_target(session->attach, (uint32_t)target->pid,
					    &target->runtime.target);
		if (!err)
			log_debug("PID %d: found what --by asks for", target->pid);
		else if (err != -EAGAIN)
			label_unknown(session, target, err);
		error_clear();
	}
}

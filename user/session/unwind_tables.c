/* SPDX-License-Identifier: Apache-2.0 */
#include "session/unwind_tables.h"

#include <errno.h>
#include <sys/stat.h>

#include "session/session.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/regular.h"

/* Between two drains: the tables of about ten files of usual size. */
#define UNWIND_STEP_NS 10000000ull
/* Before a process is traced, for the files that it has mapped, and for those that it may map. */
#define UNWIND_WAIT_NS     1000000000ull
#define UNWIND_EXPECTED_NS 100000000ull

static void unwind_publish(void *context, const struct abi_unwind_key *key, uint32_t number)
{
	attach_unwind_publish(((struct session *)context)->attach, key, number);
}

void session_unwind_begin(struct session *session)
{
	struct unwind_loader_opts opts = {.publish = unwind_publish, .context = session};
	int err = attach_unwind_areas(session->attach, &opts.areas)
			  ?: unwind_loader_new(&session->unwind, &opts);

	if (!err)
		attach_unwind_begin(session->attach);
	else if (err != -EOPNOTSUPP)
		log_info("no unwind tables: %s", error_reason(err));
}

void session_unwind_tell(const struct session *session)
{
	struct unwind_loader_use use;

	if (!session->unwind)
		return;
	unwind_loader_use(session->unwind, &use);
	log_debug("unwind tables: %u files in %.1f KiB (%u rows, %u rules), made in %.0f ms; "
		  "files without one: %llu, unreadable: %llu, given way: %llu",
		  use.store.tables,
		  (use.store.rows * sizeof(struct abi_unwind_row) +
		   use.store.pages * sizeof(uint32_t) +
		   use.store.rules * sizeof(struct abi_unwind_rule)) /
			  1024.0,
		  use.store.rows, use.store.rules, (double)use.took_ns / 1e6,
		  (unsigned long long)use.absent, (unsigned long long)use.failed,
		  (unsigned long long)use.store.dropped);
}

void session_unwind_prepare(struct session *session, const struct target *target)
{
	const struct python_runtime *runtime = &target->runtime;
	int expects = 0;
	struct stat file;

	if (!session->unwind || !(target->layers & ~(1u << EVENT_LAYER_PYTHON)))
		return;
	unwind_loader_prepare(session->unwind, target->pid, ABI_UNWIND_ROWS_CALLS);
	/* A page fault interrupts any instruction. */
	if (target_is_pages(target))
		unwind_loader_prepare(session->unwind, target->pid, ABI_UNWIND_ROWS_ALL);
	if (runtime->version_hex && !regular_stat(elf_file_fd(runtime->file), &file))
		expects = unwind_loader_expect(session->unwind, target->pid, &file,
					       runtime->version_hex);
	unwind_loader_hurry(session->unwind, clock_ns(CLOCK_MONOTONIC) + UNWIND_WAIT_NS);
	if (expects)
		unwind_loader_hurry_expected(session->unwind,
					     clock_ns(CLOCK_MONOTONIC) + UNWIND_EXPECTED_NS);
}

static void file_wanted(void *context, const struct event_unwind_file *file)
{
	unwind_loader_want(((struct session *)context)->unwind, file);
}

void session_unwind_step(struct session *session)
{
	if (!session->unwind)
		return;
	attach_unwind_wanted(session->attach, file_wanted, session);
	unwind_loader_step(session->unwind, clock_ns(CLOCK_MONOTONIC) + UNWIND_STEP_NS);
}

int session_unwind_fd(const struct session *session)
{
	return session->unwind ? attach_unwind_fd(session->attach) : -1;
}

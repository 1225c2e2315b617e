/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/sandbox/privileges.h"

#include <errno.h>
#include <sys/capability.h>
#include <sys/prctl.h>

#include "util/array.h"
#include "util/error.h"

static bool is_held(cap_t caps, cap_value_t value)
{
	cap_flag_value_t held = CAP_CLEAR;

	cap_get_flag(caps, value, CAP_PERMITTED, &held);
	return held == CAP_SET;
}

bool privileges_hold(int capability)
{
	cap_t caps = cap_get_proc();
	bool held = caps && is_held(caps, capability);

	cap_free(caps);
	return held;
}

int privileges_drop(int writes_files, int attaches)
{
	cap_t held = cap_get_proc(), kept = cap_init();
	int err = held && kept ? 0 : -ENOMEM;
	/* Docker 20.10 knows only CAP_SYS_ADMIN, which has the others in it. */
	bool in_admin =
		!err && attaches > 0 && !(is_held(held, CAP_BPF) && is_held(held, CAP_PERFMON));
	const struct {
		cap_value_t value;
		int wanted;
	} wanted[] = {
		{CAP_SYS_PTRACE, 1},
		{CAP_BPF, attaches >= 0},
		{CAP_DAC_READ_SEARCH, 1},
		{CAP_DAC_OVERRIDE, writes_files > 0},
		{CAP_FOWNER, writes_files > 1},
		{CAP_CHOWN, writes_files > 1},
		{CAP_PERFMON, attaches > 0},
		{CAP_CHECKPOINT_RESTORE, attaches != 0},
		{CAP_SYS_NICE, attaches < 0},
		{CAP_SYS_ADMIN, attaches > 1 || in_admin},
	};

	for (size_t i = 0; !err && i < ARRAY_SIZE(wanted); i++) {
		/* Request only capabilities that we hold: requesting others fails as a whole. */
		if (!wanted[i].wanted || !is_held(held, wanted[i].value))
			continue;
		cap_set_flag(kept, CAP_PERMITTED, 1, &wanted[i].value, CAP_SET);
		cap_set_flag(kept, CAP_EFFECTIVE, 1, &wanted[i].value, CAP_SET);
	}
	if (!err && cap_set_proc(kept))
		err = error_errno();
	if (!err && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		err = error_errno();
	cap_free(held);
	cap_free(kept);
	return err;
}

int privileges_drop_all(void)
{
	cap_t none = cap_init();
	int err = !none ? -ENOMEM : cap_set_proc(none) ? error_errno() : 0;

	cap_free(none);
	return err ?: prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? error_errno() : 0;
}

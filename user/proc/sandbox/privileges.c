/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/sandbox/privileges.h"

#include <errno.h>
#include <sys/capability.h>
#include <sys/prctl.h>

#include "util/array.h"

int privileges_drop(int writes_files, int attaches)
{
	const struct {
		cap_value_t value;
		int wanted;
	} wanted[] = {
		{CAP_SYS_PTRACE, 1},
		{CAP_BPF, 1},
		{CAP_DAC_READ_SEARCH, 1},
		{CAP_DAC_OVERRIDE, writes_files > 0},
		{CAP_FOWNER, writes_files > 1},
		{CAP_CHOWN, writes_files > 1},
		{CAP_PERFMON, attaches > 0},
		{CAP_CHECKPOINT_RESTORE, attaches > 0},
		{CAP_SYS_ADMIN, attaches > 1},
	};
	cap_t held = cap_get_proc(), kept = cap_init();
	int err = held && kept ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < ARRAY_SIZE(wanted); i++) {
		cap_flag_value_t value = CAP_CLEAR;

		/* Request only capabilities that we hold: requesting others fails as a whole. */
		cap_get_flag(held, wanted[i].value, CAP_PERMITTED, &value);
		if (wanted[i].wanted && value == CAP_SET) {
			cap_set_flag(kept, CAP_PERMITTED, 1, &wanted[i].value, CAP_SET);
			cap_set_flag(kept, CAP_EFFECTIVE, 1, &wanted[i].value, CAP_SET);
		}
	}
	if (!err && cap_set_proc(kept))
		err = -errno;
	if (!err && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		err = -errno;
	cap_free(held);
	cap_free(kept);
	return err;
}

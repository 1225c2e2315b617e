/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/privileges.h"

#include <errno.h>
#include <sys/capability.h>
#include <sys/prctl.h>

/* Only what we have: asking for more fails as a whole. */
static void keep(cap_t held, cap_t kept, const cap_value_t *wanted, int count)
{
	for (int i = 0; i < count; i++) {
		cap_flag_value_t value = CAP_CLEAR;

		cap_get_flag(held, wanted[i], CAP_PERMITTED, &value);
		if (value == CAP_SET) {
			cap_set_flag(kept, CAP_PERMITTED, 1, &wanted[i], CAP_SET);
			cap_set_flag(kept, CAP_EFFECTIVE, 1, &wanted[i], CAP_SET);
		}
	}
}

int privileges_drop(int writes_files, int attaches)
{
	static const cap_value_t wanted[] = {CAP_SYS_PTRACE, CAP_BPF, CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE,
					     CAP_FOWNER};
	static const cap_value_t attaching[] = {CAP_SYS_ADMIN, CAP_PERFMON};
	cap_t held = cap_get_proc(), kept = cap_init();
	int err = held && kept ? 0 : -ENOMEM;

	if (!err)
		keep(held, kept, wanted, 3 + writes_files);
	if (!err && attaches)
		keep(held, kept, attaching, 2);
	if (!err && cap_set_proc(kept))
		err = -errno;
	if (!err && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		err = -errno;
	cap_free(held);
	cap_free(kept);
	return err;
}

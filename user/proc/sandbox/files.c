/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/sandbox/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/error.h"

/* What the first version knows. What came later are changes of what can be written. */
#define HANDLED ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1)

static int rule_add(int rules, const struct files_rule *rule)
{
	static const unsigned long long rights[] = {
		[FILES_LIST] = LANDLOCK_ACCESS_FS_READ_DIR,
		[FILES_READ] = LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_READ_FILE,
		[FILES_WRITE] = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE,
	};
	_cleanup_close_ int fd = rule->path ? open(rule->path, O_PATH | O_CLOEXEC) : -1;
	const struct landlock_path_beneath_attr beneath = {.allowed_access = rights[rule->right],
							   .parent_fd = fd};

	return fd < 0 || !syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH,
				  &beneath, 0)
		       ? 0
		       : error_errno();
}

int files_limit(const struct files_rule *rules, size_t count)
{
	const struct landlock_ruleset_attr handled = {.handled_access_fs = HANDLED};
	_cleanup_close_ int made = (int)syscall(SYS_landlock_create_ruleset, &handled,
						sizeof(handled.handled_access_fs), 0);
	int err = 0;

	if (made < 0)
		return errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM ? -ENOTSUP
										: error_errno();
	for (size_t i = 0; !err && i < count; i++)
		err = rule_add(made, &rules[i]);
	return err ?: syscall(SYS_landlock_restrict_self, made, 0) ? error_errno() : 0;
}

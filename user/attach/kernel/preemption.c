/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/kernel/preemption.h"

#include <fcntl.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "util/descriptor.h"

#define LINE_MAX_BYTES 4096 /* a command line has at most 2,048 */

bool preemption_is_full(const char *version, const char *models, const char *command_line)
{
	/* A model that is chosen at boot, or later. Otherwise it is the one that was built. */
	if (!strstr(version, "PREEMPT_DYNAMIC"))
		return strstr(version, "PREEMPT") != NULL;
	if (models && strchr(models, '('))
		return !strstr(models, "(none)") && !strstr(models, "(voluntary)");
	return !command_line ||
	       !(strstr(command_line, "preempt=none") || strstr(command_line, "preempt=voluntary"));
}

/* The text of a small file of the kernel's; NULL: it cannot be read. */
static const char *text_read(const char *path, char text[LINE_MAX_BYTES])
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = file < 0 ? -1 : read(file, text, LINE_MAX_BYTES - 1);

	descriptor_close(file);
	text[bytes > 0 ? bytes : 0] = 0;
	return bytes > 0 ? text : NULL;
}

bool kernel_is_preempted(void)
{
	char models[LINE_MAX_BYTES], command_line[LINE_MAX_BYTES];
	struct utsname name;

	return uname(&name) ||
	       preemption_is_full(name.version,
				  text_read("/sys/kernel/debug/sched/preempt", models),
				  text_read("/proc/cmdline", command_line));
}

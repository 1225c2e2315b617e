/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/features_missing.h"

#include <stdio.h>

size_t features_missing(const struct features *features, char *out, size_t room)
{
	/* Without links for many probes there are none for sessions: the first says it. */
	const struct {
		int missing;
		const char *what;
	} rows[] = {
		{!features->uprobe_multi,
		 "uprobe_multi (6.6): attaching, detaching and every return take longer, and each "
		 "probe takes file descriptors"},
		{features->uprobe_multi && !features->uprobe_session,
		 "uprobe sessions (6.13): returns cost more"},
		{!features->bpf_loop,
		 "BPF loops (5.17): what lives when an interpreter ends is known by events alone"},
		{!features->prepare_exec,
		 "tracepoint before an exec (6.10): what a program held that calls exec is as last "
		 "read"},
	};
	size_t count = 0, at = 0;

	if (room)
		out[0] = '\0';
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!rows[i].missing)
			continue;
		if (!count++)
			at += snprintf(out + at, at < room ? room - at : 0, "kernel %s has ",
				       features->kernel);
		at += snprintf(at < room ? out + at : NULL, at < room ? room - at : 0, "%sno %s",
			       count > 1 ? "; " : "", rows[i].what);
	}
	return count;
}

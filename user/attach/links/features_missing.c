/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/links/features_missing.h"

#include <stdio.h>

#include "util/array.h"

size_t features_missing(const struct features *features, char *out, size_t capacity)
{
	/* A kernel without uprobe_multi has no sessions either: report only the former. */
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
		 "BPF loops (5.17): blocks that are live when an interpreter ends are known from "
		 "events only"},
		{!features->prepare_exec,
		 "tracepoint before an exec (6.10): what a program held that calls exec is as of "
		 "the last heap walk"},
	};
	size_t count = 0, at = 0;

	if (capacity)
		out[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (!rows[i].missing)
			continue;
		if (!count++)
			at += snprintf(at < capacity ? out + at : NULL,
				       at < capacity ? capacity - at : 0, "kernel %s has ",
				       features->kernel);
		at += snprintf(at < capacity ? out + at : NULL, at < capacity ? capacity - at : 0,
			       "%sno %s", count > 1 ? "; " : "", rows[i].what);
	}
	return count;
}

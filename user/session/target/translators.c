/* SPDX-License-Identifier: Apache-2.0 */
#include "session/target/translators.h"

#include <errno.h>
#include <stdlib.h>

#include "attach/attach.h"
#include "probe/process/translator.h"
#include "proc/process.h"
#include "session/target/state.h"
#include "util/clock.h"
#include "util/error.h"

int translators_run(struct session *session)
{
	pid_t *pids = NULL;
	size_t count = 0;

	if (session->translators_looked)
		return session->translators > 0;
	session->translators_looked = 1;
	if (process_list(&pids, &count))
		return 0;
	for (size_t i = 0; i < count; i++) {
		int err = translator_check(pids[i]);

		if (err && session->translators++ < SESSION_LOGS)
			log_info("PID %d is not traced: %s; probes are placed in each process "
				 "alone, not in files",
				 (int)pids[i], error_reason(err));
	}
	free(pids);
	return session->translators > 0;
}

void translator_appears(struct session *session, pid_t pid, const char *name)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (!attach_is_in_files(session->attach))
		return;
	session->translators++;
	attach_drop(session->attach, -1, ATTACH_ALL, 0);
	if (!session->limit_ns || session->limit_ns > now)
		session->limit_ns = now;
	log_info(
		"PID %d has begun to run under %s, which would be killed by probes in files: these "
		"are removed, and the trace ends here; another one places probes in each process "
		"alone while %s runs",
		(int)pid, name, name);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/cli.h"
#include "probe/features.h"
#include "probe/links.h"
#include "probe/seccomp.h"
#include "probe/session.h"
#include "python/offsets.h"

static void line_print(int ok, const char *what, const char *meaning)
{
	printf("  %-4s %-22s %s\n", ok ? "yes" : "NO", what, meaning);
}

/* The proof of the pudding: load the programs. */
static int session_try(void)
{
	struct session_opts opts = {.nframe = 1, .ring_bytes = 1 << 16};
	struct session *session;
	const char *remedy;
	int err = session_new(&session, &opts, &remedy);

	if (err) {
		printf("\nA session cannot run here: %s%s%s.\n", error_reason(err), remedy ? "; " : "",
		       remedy ? remedy : "");
		return EXIT_FAILED;
	}
	session_free(session);
	printf("\nA session can run here (the BPF programs load).\n");
	return EXIT_DONE;
}

int cli_doctor(int argc, char **argv)
{
	static const struct argp argp = {
		.doc = "What this kernel and these privileges allow, and how to get the rest.",
	};
	struct capability capabilities[8];
	struct features features;
	size_t count;
	int status, err;

	status = cli_parse(&argp, argc, argv, 0, NULL);
	if (status)
		return status < 0 ? EXIT_DONE : status;
	links_silence_libbpf();
	err = features_probe(&features);
	if (!err)
		err = features_capabilities(capabilities, &count);
	if (err) {
		error_print(err, NULL, "doctor");
		return EXIT_FAILED;
	}
	printf("Kernel %s\n", features.kernel);
	line_print(features.btf, "BTF",
		   "needed; CONFIG_DEBUG_INFO_BTF (every distribution's kernel since 2021)");
	line_print(features.ring_buffer, "BPF ring buffer", "needed; kernel 5.8+");
	line_print(features.task_storage, "BPF task storage", "needed; kernel 5.11+");
	line_print(features.attach_cookie, "attach cookies", "needed; kernel 5.15+");
	line_print(features.bpf_loop, "BPF loops",
		   "without them census mode does not know what a target's end leaves");
	line_print(features.perf_uprobe, "perf-event uprobes", "needed where there is no uprobe_multi");
	line_print(features.uprobe_multi, "uprobe_multi", "one link for all probes of a file; kernel 6.6+");
	line_print(features.uprobe_session, "uprobe.session",
		   "no return probe for nested requests; kernel 6.13+");
	line_print(!features.seccomp_uretprobe_risk || seccomp_kills_returns() != 1, "seccomp and returns",
		   "needed for targets with a filter (containers); not in some kernels from 6.11 to 6.13");
	line_print(features.root_user_ns, "initial user namespace",
		   "needed: another's root has no rights here");
	line_print(features.root_pid_ns, "initial PID namespace", "needed; in a container: --pid=host");
	printf("Privileges\n");
	for (size_t i = 0; i < count; i++)
		line_print(capabilities[i].held, capabilities[i].name, capabilities[i].why);
	printf("CPython versions known: %s\n", offsets_known());
	return session_try();
}

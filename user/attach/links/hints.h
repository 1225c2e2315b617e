/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What prevents a session on this machine, and the remedy. The kernel refuses with an errno that
 * may have many causes; the machine's settings show which one it is. All callers share one table.
 */
#pragma once

#include "attach/links/features.h"

enum hint_lockdown { LOCKDOWN_NONE, LOCKDOWN_INTEGRITY, LOCKDOWN_CONFIDENTIALITY };

#define HINT_UNKNOWN (-100) /* the number cannot be read */

/* The relevant settings of the machine. */
struct hint_facts {
	int root;                      /* our user id is 0 */
	int filtered;                  /* we run under a seccomp filter */
	int btf_error;                 /* error of opening /sys/kernel/btf/vmlinux: 0, -errno */
	int perf_uprobe;               /* the uprobe PMU is visible */
	int sys_mounted;               /* /sys is a sysfs */
	int perf_event_paranoid;       /* or HINT_UNKNOWN */
	int unprivileged_bpf_disabled; /* or HINT_UNKNOWN */
	/* from /sys/kernel/security/lockdown, which may not be mounted */
	enum hint_lockdown lockdown;
};

/* Reads the settings that are available; never fails. */
void hint_facts_read(struct hint_facts *out);
/* Parses /sys/kernel/security/lockdown: "none [integrity] confidentiality". Pure. */
enum hint_lockdown hint_lockdown_parse(const char *text);

/* The end of a remedy where only probes are impossible: these commands place none. */
#define HINT_WITHOUT_PROBES "tracer leaks, heap and memory work without"

/* The step that the kernel refused. */
enum hint_step {
	HINT_BTF = 1,   /* reading its types */
	HINT_LOAD = 2,  /* loading maps and programs */
	HINT_PROBE = 4, /* placing a probe in a file */
	HINT_EVENT = 8, /* opening a perf event that is not a probe's */
};

struct hint {
	const char *what;   /* "a seccomp filter refuses bpf(2)": static */
	const char *remedy; /* static */
};

/*
 * Finds the reason for the error with which the kernel refused a step (for HINT_BTF the error
 * is in the facts). Pure. NULL: unknown.
 */
const struct hint *hint_find(const struct hint_facts *facts, enum hint_step step, int err);

/*
 * Appends the reason to error_set()'s text, for this machine, and sets *remedy (unchanged if the
 * reason is unknown). Returns err.
 */
int hint_explain(enum hint_step step, int err, const char **remedy);

/*
 * For callers that pass on only an error: also appends the remedy to error_set()'s text and returns
 * -EIO, since the generic remedies for err do not apply. Returns err if the reason is unknown.
 */
int hint_tell(enum hint_step step, int err);

/* The remedy for a missing capability: sudo, or the options of a container. Static. */
const char *hint_capability_remedy(void);

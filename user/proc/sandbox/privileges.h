/* SPDX-License-Identifier: Apache-2.0 */
/* The privileges of the tracer. Once the probes are in place, it drops what it needs no more. */
#pragma once

#include <stdbool.h>

/* Does this thread hold a capability (CAP_…)? */
bool privileges_hold(int capability);

/*
 * Keeps only the capabilities that a running session uses: CAP_SYS_PTRACE (reading code objects and
 * the heap), CAP_DAC_READ_SEARCH, CAP_BPF (reading counters on kernels before 5.19). With
 * writes_files, also CAP_DAC_OVERRIDE (the output goes to the invoking user's directory); if it is
 * 2, also CAP_FOWNER (files are replaced in other users' sticky directories) and CAP_CHOWN (perf
 * ignores the maps of other users). With attaches, further processes will be traced: also
 * CAP_PERFMON (probes) and CAP_CHECKPOINT_RESTORE (opening the files that a process has mapped); if
 * it is 2 (session_attach_rights()), or CAP_BPF or CAP_PERFMON is not held, also CAP_SYS_ADMIN. If
 * it is -1, further processes will be read, but not traced: CAP_CHECKPOINT_RESTORE, CAP_SYS_NICE
 * (those that are about to end are read first) and no CAP_BPF.
 * Sets no_new_privs. 0, -errno.
 */
int privileges_drop(int writes_files, int attaches);
/* Drops all capabilities, so that none can be had again. Sets no_new_privs. 0, -errno. */
int privileges_drop_all(void);

/* SPDX-License-Identifier: Apache-2.0 */
/* Drops the privileges that are not needed once the probes are in place. */
#pragma once

/*
 * Keeps only the capabilities that a running session uses: CAP_SYS_PTRACE (reading code objects and
 * the heap), CAP_DAC_READ_SEARCH, CAP_BPF (reading counters on kernels before 5.19). With
 * writes_files, also CAP_DAC_OVERRIDE (the output goes to the invoking user's directory); if it is
 * 2, also CAP_FOWNER (files are replaced in other users' sticky directories) and CAP_CHOWN (perf
 * ignores the maps of other users). With attaches, further processes will be traced: also
 * CAP_PERFMON (probes) and CAP_CHECKPOINT_RESTORE (opening the files that a process has mapped); if
 * it is 2, also CAP_SYS_ADMIN (session_attach_rights()). Sets no_new_privs. 0, -errno.
 */
int privileges_drop(int writes_files, int attaches);

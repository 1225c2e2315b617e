/* SPDX-License-Identifier: Apache-2.0 */
/* Giving up what is no longer needed once the probes are in place. */
#ifndef TRACER_ATTACH_PRIVILEGES_H
#define TRACER_ATTACH_PRIVILEGES_H

/*
 * Keeps only the capabilities that a running session uses: CAP_SYS_PTRACE (reading code objects and
 * the heap), CAP_DAC_READ_SEARCH, CAP_BPF (reading counters on kernels before 5.19); with
 * writes_files also CAP_DAC_OVERRIDE (the output goes to the invoking user's directory); if that is
 * 2 also CAP_FOWNER (files are replaced in the sticky directories of others). attaches: further
 * processes will come under trace, for which CAP_PERFMON (probes) and CAP_CHECKPOINT_RESTORE
 * (opening the files that a process has mapped) are kept, too; if it is 2 also CAP_SYS_ADMIN
 * (session_attach_rights()). Sets no_new_privs. 0, -errno.
 */
int privileges_drop(int writes_files, int attaches);

#endif

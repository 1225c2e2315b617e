/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc tells of a process. Everything read here is the target's word: names are bytes, paths
 * are hints. A mapped file is opened through /proc/PID/map_files (the inode that is mapped, even if
 * the name has since been replaced or lies in another mount namespace); where privileges do not
 * reach so far, by its name in the target's root, and of a process that is gone in ours, if device
 * and inode are still those of the map.
 */
#ifndef TRACER_PROCESS_PROCESS_H
#define TRACER_PROCESS_PROCESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"

#define PROCESS_NS_MAX 33 /* levels of PID namespaces: the kernel's 32 below the first */

struct process_map {
	uint64_t start, end; /* addresses */
	uint64_t offset;     /* in the file */
	uint64_t inode;
	uint32_t device_major, device_minor;
	unsigned executable : 1, readable : 1, writable : 1;
	char *path; /* as the kernel shows it, "" for anonymous memory; owned by the maps */
};

struct process_maps {
	struct process_map *entries; /* in address order */
	size_t count;
};

struct process_info {
	pid_t pid;
	pid_t tgid;                    /* differs from pid when pid names a thread */
	pid_t ppid;                    /* its parent's; 0: none that we can see */
	pid_t ns_pid;                  /* in its innermost PID namespace */
	pid_t ns_pids[PROCESS_NS_MAX]; /* in each, from ours inwards */
	unsigned int ns_count;         /* of them */
	/* field 22 of stat: with the pid, names a process for good */
	uint64_t start_ticks;
	uint32_t uid;      /* effective */
	int uids_differ;   /* 1: its real or saved one is another: it has come by it */
	int seccomp;       /* 0 none, 1 strict, 2 filter */
	int kernel_thread; /* 1: no address space */
	/* 1: it has ended, or its first thread ends: nothing of it is to be seen any more */
	int zombie;
	int threads;
	char name[64];     /* comm, control bytes as they are; NUL-terminated */
	char command[256]; /* command line, spaces between the arguments, cut */
};

/* 0; -ESRCH no such process; -EPERM; -errno. */
int process_info_read(pid_t pid, struct process_info *out);
/*
 * A file of /proc/PID ("cgroup", "cmdline"), at most max bytes of it, NUL-terminated (the NUL is
 * not counted). 0; -ESRCH; -EPERM; -errno. Caller frees the buffer, on failure too.
 */
int process_file_read(pid_t pid, const char *name, size_t max, struct buffer *out);
/*
 * Bytes that it has in memory, and those of them that are no file's (may be NULL): 0 of a kernel's
 * thread, and of one that is ending. 0; -ESRCH; -EPERM; -errno.
 */
int process_rss_read(pid_t pid, uint64_t *bytes, uint64_t *anonymous);
/* 0; -ESRCH; -EPERM; -E2BIG beyond 65,536 maps. Caller frees with process_maps_free(). */
int process_maps_read(pid_t pid, struct process_maps *out);
void process_maps_free(struct process_maps *maps);
/*
 * Opens the file behind a map, O_RDONLY|O_CLOEXEC, regular files only. Returns a descriptor;
 * -EINVAL no regular file; -ESTALE the name is another file's by now; -errno.
 */
int process_map_open(pid_t pid, const struct process_map *map);
/*
 * A descriptor that stands for the program that a process runs now, by its memory: every exec
 * begins with another. Caller closes it. -errno.
 */
int process_program_open(pid_t pid);
/* 1: the process has called the next program since; 0 also if it has ended. */
int process_program_is_past(pid_t pid, int fd);
/* Every process id in /proc. Caller frees *pids. */
int process_list(pid_t **pids, size_t *count);

#endif

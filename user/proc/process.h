/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads /proc. Everything read here is under the target's control: names are bytes, paths are
 * hints. A mapped file is opened through /proc/PID/map_files (the mapped inode, even if the name
 * has been replaced or lies in another mount namespace). Without the privilege for that, it is
 * opened by its name in the target's root, or in our root if the process has ended, provided that
 * device and inode still match the map.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "util/buffer.h"

/* levels of PID namespaces: the initial one and the kernel's 32 below it */
#define PROCESS_NS_MAX    33
#define PROCESS_BOOT_TEXT 40

struct process_map {
	uint64_t start, end; /* addresses */
	uint64_t offset;     /* in the file */
	uint64_t inode;
	uint32_t device_major, device_minor;
	unsigned executable : 1, readable : 1, writable : 1, shared : 1;
	/*
	 * Resident bytes, and those of them that others have mapped, too, or that are of huge
	 * pages; only from process_smaps_read()
	 */
	uint64_t rss, rss_shared, rss_huge;
	char *path; /* as the kernel shows it, "" for anonymous memory; owned by the maps */
};

struct process_maps {
	struct process_map *entries; /* in address order */
	size_t count;
};

struct process_info {
	pid_t pid;
	pid_t tgid;                    /* differs from pid if pid is a thread */
	pid_t ppid;                    /* its parent; 0: none that we can see */
	pid_t ns_pid;                  /* in its innermost PID namespace */
	pid_t ns_pids[PROCESS_NS_MAX]; /* in each, from ours to the innermost */
	unsigned int ns_count;         /* entries of ns_pids */
	/* field 22 of stat: together with the pid it identifies a process */
	uint64_t start_ticks;
	uint64_t mapped;   /* bytes of address space */
	uint32_t uid;      /* effective */
	int uids_differ;   /* 1: real or saved uid differs from the effective one */
	pid_t debugger;    /* that traces it by ptrace; 0: none, or this process */
	int seccomp;       /* 0 none, 1 strict, 2 filter */
	int kernel_thread; /* 1: no address space */
	int forked;        /* 1: it has the memory of its parent: no exec since it was forked */
	int zombie;        /* 1: it has ended */
	/*
	 * 1: its first thread has ended or is exiting, others have not: its memory is not visible
	 * as that of its pid, and the kernel finds no memory to place a process's probes in
	 */
	int headless;
	int threads;
	char name[64];     /* comm, control bytes unescaped; NUL-terminated */
	char command[256]; /* command line, arguments separated by spaces, truncated */
};

/*
 * What a root directory is. A mount namespace of its own has other mounts below the same directory:
 * each namespace's mount of it has an id of its own.
 */
struct process_root {
	uint64_t mount, inode;
	uint32_t device_major, device_minor;
};

/* 0, -errno. */
int process_root_identify(int directory, struct process_root *out);
bool process_root_is(const struct process_root *a, const struct process_root *b);
/* Its root directory; -1: it is the same as ours, or cannot be opened. The caller closes it. */
int process_root_open(pid_t pid);
/* 0; -ESRCH no such process; -EPERM; -errno. */
int process_info_read(pid_t pid, struct process_info *out);
/*
 * The same with what its stat tells alone, which waits for no lock of its memory: ppid, its start,
 * mapped, flags of its state, threads, name. pid, tgid and ns_pid are the argument.
 */
int process_stat_read(pid_t pid, struct process_info *out);
/* Who else traces it by ptrace; 0: nobody, or it is not known. */
pid_t process_debugger(pid_t pid);
/*
 * Is it a process with memory that can be read and probed? 0, or with its reason (error_set()):
 * -EINVAL a thread; -ENOTSUP a kernel thread, headless; -ESRCH a zombie.
 */
int process_info_check(const struct process_info *info);
/* The machine's boot ID as text, which tells boots of all machines apart. 0, -errno. */
int process_boot_read(char out[PROCESS_BOOT_TEXT]);
/* Since it began; 0: not known. */
uint64_t process_age_ns(pid_t pid);
/*
 * Reads a file of /proc/PID ("cgroup", "cmdline"), at most max bytes, NUL-terminated (the NUL is
 * not counted). 0; -ESRCH; -EPERM; -errno. The caller frees the buffer, also on failure.
 */
int process_file_read(pid_t pid, const char *name, size_t max, struct buffer *out);
/*
 * Resident bytes, and those of them that do not belong to files (anonymous may be NULL). 0 bytes
 * for a kernel thread and for a process that is exiting. 0; -ESRCH; -EPERM; -errno.
 */
int process_rss_read(pid_t pid, uint64_t *bytes, uint64_t *anonymous);
/*
 * Bytes of its own that it has: anonymous pages, resident or swapped out, and huge pages. What its
 * allocators manage is not more. 0; -ESRCH; -EPERM; -errno.
 */
int process_own_bytes_read(pid_t pid, uint64_t *bytes);
/* 0; -ESRCH; -EPERM; -E2BIG beyond 65,536 maps. Caller frees with process_maps_free(). */
int process_maps_read(pid_t pid, struct process_maps *out);
/*
 * The same of a process that keeps its lock taken (proc/patience.h): waits up to wait_ms, then
 * -ETIMEDOUT.
 */
int process_maps_await(pid_t pid, unsigned int wait_ms, struct process_maps *out);
/* "Key:     123 kB", a line of smaps or status: 1 if it has this key, and *bytes. */
bool process_line_bytes(const char *line, const char *key, uint64_t *bytes);
/* process_maps_read() with what is resident: the kernel walks all of its page tables for it. */
int process_smaps_read(pid_t pid, struct process_maps *out);
void process_maps_free(struct process_maps *maps);
/* Is it code of that file? */
bool process_map_is_code(const struct process_map *map, const struct stat *file);
/*
 * Is it code of the C library, by its file's name: "libc.so.6", "libc-2.31.so",
 * "ld-musl-x86_64.so.1"?
 */
bool process_map_is_libc(const struct process_map *map);
/*
 * From the start of the file's first executable mapping to the end of its last one. Neither is
 * changed if there is none or the maps cannot be read.
 */
void process_code_range(pid_t pid, const struct stat *file, uint64_t *start, uint64_t *end);
/*
 * Opens the file behind a map, O_RDONLY|O_CLOEXEC, regular files only; on a file system that others
 * serve it is a copy (util/regular.h: regular_stat(), regular_origin()). Returns a descriptor;
 * -EINVAL not a regular file; -ETIMEDOUT its file system does not answer; -ESTALE the name now
 * belongs to another file; -errno.
 */
int process_map_open(pid_t pid, const struct process_map *map);
/*
 * The path of the program that it runs, as the kernel shows it. It is not followed: it may be on a
 * file system of the target's own. 0; -ESRCH; -ENAMETOOLONG; -errno.
 */
int process_program_path(pid_t pid, char path[PATH_MAX]);
/*
 * Returns a descriptor that identifies the program that a process runs now, through its memory: an
 * exec replaces the memory. The caller closes it. -errno.
 */
int process_program_open(pid_t pid);
/* 1: the process has exec'd another program since; 0 also if it has ended. */
bool process_program_is_past(pid_t pid, int fd);
/* Lists every process id in /proc. The caller frees *pids. */
int process_list(pid_t **pids, size_t *count);

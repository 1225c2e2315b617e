/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Core files of x86-64 processes, as the kernel and gdb's gcore write them: what was mapped where,
 * and the memory that is in the core. What a core leaves out because a file has it, code and
 * constants, is read from that file, if it is still the one that was mapped: the first page of each
 * is in the core and is compared.
 *
 * A core is hostile, and may be cut short: every count and position is checked against the file.
 */
#pragma once

#include "proc/process.h"

#define CORE_NAME 64u

/* Where the contents of a map are in the core. */
struct core_content {
	uint64_t at;     /* position in the core */
	uint64_t stored; /* bytes from the map's start on that are there */
	uint64_t meant;  /* that should be there: more if the core was cut short */
	int guessed;     /* 1: only the list of files has it, which does not say what is code */
};

/* A text that is known to have been at an address, whose file is not at hand. */
#define CORE_TEXT 64u
struct core_text {
	uint64_t address;
	char text[CORE_TEXT];
};

struct core_file {
	int fd;
	uint64_t disk_bytes; /* that the core takes on the disk */
	/* in order; each path of a file has an inode number of its own, from 1 on */
	struct process_maps maps;
	struct core_content *contents; /* by map */
	size_t executable;             /* a map of it; maps.count: not known */
	uint64_t bytes_cut;            /* meant and not stored, of all maps */
	uint32_t pid;                  /* 0: not known */
	char name[CORE_NAME];          /* of the process; "" */
	/* path of the first file that core_map_open() did not find, and why; owned */
	char *absent;
	int absent_err;
	/* private */
	size_t capacity;
	struct core_text *texts; /* by address */
	size_t text_count, text_capacity;
	uint64_t entry, random; /* addresses in the executable and on the stack; 0: not known */
	char *sysroot;
	const struct process_map *last; /* whose file is open as last_fd */
	int last_fd;
};

/*
 * sysroot: the folder in which the mapped files are sought by their paths; NULL: "/". 0; -EINVAL:
 * it is no core of x86-64, or its headers are corrupt or cut (error_set); -ENOMEM; -errno. *out is
 * the caller's to core_close(), untouched on failure; it must not move.
 */
int core_open(struct core_file *out, const char *path, const char *sysroot);
/* The same of an open file. Takes ownership of fd only on success. */
int core_open_fd(struct core_file *out, int fd, const char *sysroot);
void core_close(struct core_file *core);

/* The number of the map that address is in; maps.count: none. */
size_t core_map_find(const struct core_file *core, uint64_t address);
/*
 * Opens the file behind a map of the core, O_RDONLY|O_CLOEXEC, regular files only. A descriptor;
 * -ENOENT: it is not there; -ESTALE: it is another file now; -errno (error_set).
 */
int core_map_open(struct core_file *core, const struct process_map *map);
/*
 * Adds a text, cut at CORE_TEXT - 1 bytes. core_read() gives it where neither the core nor a file
 * has the memory, with zeros in the rest of its pages. 0, -ENOMEM.
 */
int core_put(struct core_file *core, uint64_t address, const char *text);
/*
 * Reads exactly bytes at address. 0; -EFAULT: it was not mapped, or is neither in the core nor in a
 * file that is at hand.
 */
int core_read(struct core_file *core, uint64_t address, void *out, size_t bytes);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that processes map, each once however many map it. A file is known by device and inode,
 * which cannot be given to another as long as it is held open here, and by size and time of change,
 * since it may be written anew in place. It is opened when it is first seen, since its process may
 * be gone when it is needed, and read when it is needed.
 */
#ifndef TRACER_SYMBOLS_FILES_H
#define TRACER_SYMBOLS_FILES_H

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "elf/elf_file.h"
#include "process/process.h"

/*
 * Held open, or a quarter of the process's limit of descriptors if that is less; those that no
 * process maps go first.
 */
#define FILES_MAX 4096u

struct file {
	uint32_t number; /* never 0, never given again */
	uint32_t users;
	uint64_t used; /* a count that grows: when it was last asked for */

	uint32_t device_major, device_minor;
	uint64_t inode;
	off_t bytes;
	struct timespec changed;

	int fd; /* -1 once elf has it */
	char *path;
	struct elf_file *elf;
	int elf_err; /* 1: not tried yet; 0; why it is none */
	/* For symbols.c: what the worker has of it. */
	enum { FILE_DWARF_UNKNOWN, FILE_DWARF_THERE, FILE_DWARF_NONE } dwarf;
	uint64_t generation; /* of the worker that was given it; 0: none */
	uint64_t spent_ns;   /* worker_spent_ns() for answers about it */
	int plain_names;     /* its names are not demangled: the worker has ended over one */
	/*
	 * The same of its symbols. READ: to ask again is cheap, mostly; LARGE: not all of them are
	 * read.
	 */
	enum {
		FILE_TABLES_UNKNOWN,
		FILE_TABLES_READ,
		FILE_TABLES_LARGE,
		FILE_TABLES_GIVEN_UP
	} tables;
	uint64_t tables_generation, tables_ns;

	struct file *next; /* with the same hash */
};

struct files;

int files_new(struct files **out); /* 0, -ENOMEM */
void files_free(struct files *files);
/*
 * The file behind a map of a process, opened if it is new; for its caller until files_put(). root:
 * descriptor of the process's root directory if that is not ours, where a new file's debug file is
 * looked for first; else -1. 0; -EINVAL no regular file; -EMFILE as many are in use as are held;
 * -ESTALE, -errno (process_map_open()).
 */
int files_get(struct files *files, struct file **out, pid_t pid, const struct process_map *map,
	      int root);
/* Another user of one that is in use. */
void files_share(struct file *file);
void files_put(struct files *files, struct file *file);
/* Reads its headers if that was not done. 0; -ENOEXEC; -errno: the same at every call. */
int file_read(struct file *file);
uint32_t files_count(const struct files *files);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that processes map, each held once. A file is identified by device and inode, which are
 * not reused while it is open here, and by size and modification time, since it may be rewritten in
 * place. It is opened when first seen, because the process may have ended by the time it is needed,
 * and read when needed.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "object/elf/elf_file.h"
#include "proc/process.h"

/*
 * Limit of open files; a quarter of the descriptor limit if that is less. Of those that no process
 * maps any more the last FILES_IDLE are held, in case that another one maps them: the descriptors
 * of a session do not grow with the number of programs that have run in it.
 */
#define FILES_MAX  4096u
#define FILES_IDLE 32u

struct file {
	uint32_t number; /* never 0, never reused */
	uint32_t users;
	uint64_t used; /* value of a growing counter when it was last used */

	uint32_t device_major, device_minor;
	uint64_t inode;
	off_t bytes;
	struct timespec changed;

	int fd; /* -1 once elf has it */
	char *path;
	struct elf_file *elf;
	int elf_err; /* 1: not tried yet; 0; negative: the error */
	/* For symbols.c: state of its DWARF in the worker. */
	enum { FILE_DWARF_UNKNOWN, FILE_DWARF_THERE, FILE_DWARF_NONE } dwarf;
	uint64_t generation; /* of the worker that has it; 0: none */
	uint64_t spent_ns;   /* worker_spent_ns() for answers about it */
	int plain_names;     /* its names are not demangled: one has ended the worker */
	/*
	 * The same for its symbol tables. READ: further questions are usually cheap; LARGE: not all
	 * tables are read.
	 */
	enum {
		FILE_TABLES_UNKNOWN,
		FILE_TABLES_READ,
		FILE_TABLES_LARGE,
		FILE_TABLES_GIVEN_UP
	} tables;
	uint64_t tables_generation, tables_ns;

	/* For symbols.c: is its debug file asked for? */
	enum { FILE_FETCH_UNKNOWN, FILE_FETCH_ASKED, FILE_FETCH_DONE } fetch;
	uint32_t fetches; /* questions */

	struct file *next; /* with the same hash */
};

struct files;

int files_new(struct files **out); /* 0, -ENOMEM */
void files_free(struct files *files);
/*
 * The file behind a map of a process, opened if it is new; the caller uses it until files_put().
 * root: descriptor of the process's root directory if it is not ours, where the debug file of a new
 * file is searched first; else -1. 0; -EINVAL: not a regular file; -EMFILE: all files that are held
 * are in use; -ESTALE, -errno (process_map_open()).
 */
int files_get(struct files *files, struct file **out, pid_t pid, const struct process_map *map,
	      int root);
/* The file with that number; NULL: it is not held any more. */
struct file *files_find(const struct files *files, uint32_t number);
/* Its debug file has come: it gets another number, and the workers read it again. */
void files_renew(struct files *files, struct file *file);
/* Adds a user to a file that is in use. */
void files_share(struct file *file);
void files_put(struct files *files, struct file *file);
/* Reads its headers, once. 0; -ENOEXEC; -errno. Later calls return the same result. */
int file_read(struct file *file);
uint32_t files_count(const struct files *files);

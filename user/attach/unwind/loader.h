/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads unwind tables: those of a process's files before it is traced, and each that a walk in the
 * kernel asks for (EVENT_UNWIND_FILE). A table is loaded once for all processes. The files are
 * hostile: a confined process compiles them (object/symbols/worker.h), one after the other, while
 * the caller does other work. The tables of large files, which take up to a tenth of a second each,
 * are compiled by a process of their own: nobody waits for them. Another one compiles those of
 * files that a process has not mapped yet, but probably will.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "abi/events.h"
#include "attach/unwind/store.h"
#include "proc/process.h"

/* Files that wait for their turn; others are asked for again. */
#define UNWIND_QUEUE_MAX 4096u

/* Files that are expected, and wait for their turn. Others are asked for once they are mapped. */
#define UNWIND_EXPECTED_MAX 128u

/*
 * Of code that is mapped: LLVM's and browsers' libraries. The program itself is never one of them.
 */
#define UNWIND_LARGE_BYTES (8ull << 20)

struct unwind_loader_opts {
	struct unwind_areas areas;
	/*
	 * Tells the walks a file's table: its number, ABI_UNWIND_ABSENT, or ABI_UNWIND_WANTED: it
	 * is to be asked for again.
	 */
	void (*publish)(void *context, const struct abi_unwind_key *key, uint32_t number);
	void *context;
};

struct unwind_loader_use {
	struct unwind_store_use store;
	uint64_t absent;  /* files without a table */
	uint64_t failed;  /* files whose table could not be made */
	uint64_t took_ns; /* CPU time of the process that compiles */
};

struct unwind_loader;

int unwind_loader_new(struct unwind_loader **out, const struct unwind_loader_opts *opts);
void unwind_loader_free(struct unwind_loader *loader); /* NULL is legal */
/* Queues a file that a walk asked for. */
void unwind_loader_want(struct unwind_loader *loader, const struct event_unwind_file *file);
/*
 * Queues these tables of the files that a process has mapped as code. On a file system that shows
 * other device numbers to stat() than the kernel has (btrfs, overlayfs) walks ask for them.
 */
void unwind_loader_prepare(struct unwind_loader *loader, pid_t pid, enum abi_unwind_rows rows);
/*
 * The same for one file, for an event of a mapping. The process may have ended: the next one that
 * runs the program finds its table.
 */
void unwind_loader_map(struct unwind_loader *loader, pid_t pid, const struct process_map *map);
/*
 * Queues the extension modules in the standard library of a Python interpreter, once for a folder:
 * their first functions run, and allocate, in the moment in which they are mapped. interpreter: of
 * the file that the process maps as such. A module that is mapped meanwhile is compiled next. 1: it
 * has queued some.
 */
int unwind_loader_expect(struct unwind_loader *loader, pid_t pid, const struct stat *interpreter,
			 uint32_t version_hex);
/*
 * Works until no file waits that is mapped and not large, or a program's own, or until_ns
 * (CLOCK_MONOTONIC; 0: does not wait). 1: none waits.
 */
int unwind_loader_hurry(struct unwind_loader *loader, uint64_t until_ns);
/* The same for the files that are expected. */
int unwind_loader_hurry_expected(struct unwind_loader *loader, uint64_t until_ns);
/*
 * As unwind_loader_hurry(), and takes what is there of the other files without waiting. 1: no file
 * waits.
 */
int unwind_loader_step(struct unwind_loader *loader, uint64_t until_ns);
/* Is this a process that compiles? */
bool unwind_loader_is_worker(const struct unwind_loader *loader, pid_t pid);
/* Reads the table that worker_unwind() wrote. 0: the caller frees *out; -EPROTO, -errno. */
int unwind_loader_read(int fd, struct unwind_table **out);
void unwind_loader_use(const struct unwind_loader *loader, struct unwind_loader_use *out);

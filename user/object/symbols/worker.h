/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process that reads DWARF, symbol tables or .eh_frame and demangles names. Files and names
 * are hostile, libdw and libiberty limit neither time nor memory, and large tables take a second.
 * The worker has only its socket and the descriptors that it is sent, few system calls (seccomp; it
 * opens no file that DWARF names) and WORKER_MEMORY_BYTES of memory. The kernel kills it when a
 * question takes more than WORKER_CPU_SECONDS. It ends with its owner. When it fails, the caller
 * gets -ETIMEDOUT or -EIO, and a new worker is started for the next question.
 *
 * Callers need not wait for an answer: they do other work and ask the same question again.
 *
 * The worker is forked, so start it while the process is small. A fork of its owner starts its own.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#define WORKER_MEMORY_BYTES (2ull << 30) /* beyond what the process had when it was forked */
#define WORKER_FILE_BYTES   (96u << 20)  /* of each file in memory that it writes */
#define WORKER_CPU_SECONDS  5
#define WORKER_WALL_SECONDS 20 /* limit for slow disks */
#define WORKER_FRAMES_MAX   64u
/* bytes of a name, with the NUL; a longer symbol is not demangled */
#define WORKER_NAME_MAX 16384u

struct worker;

struct worker_frame {
	const char *function; /* demangled; "" not known */
	const char *filename; /* "" not known */
	uint32_t line;        /* 0 not known */
};

int worker_new(struct worker **out); /* starts it, too. 0; -ENOMEM; -errno */
void worker_free(struct worker *worker);
/*
 * A number that changes with every start: files must be sent again after a change. Starts a worker
 * if none runs. 0, -errno.
 */
int worker_generation(struct worker *worker, uint64_t *generation);
/*
 * Sends the DWARF of a file, under a number that the caller chooses (not 0), for this generation.
 * alternate_fd: -1 for none. Both stay the caller's. Does not wait. 0; -errno: the worker has
 * ended.
 */
int worker_open(struct worker *worker, uint32_t file, int fd, int alternate_fd);
/*
 * The frames at an instruction of a file, innermost first; file 0: demangles symbol only. symbol
 * names the outermost frame if the DWARF has no function there or less of its name; "" for none.
 * Texts are borrowed until the next call. Returns the number of frames, at most WORKER_FRAMES_MAX;
 * 0: nothing is known; -ENOENT, -ENOEXEC: the file has no readable DWARF; -ENOMEM: the worker is
 * out of memory, restart it; -ETIMEDOUT, -EIO: it has ended; -EAGAIN: no answer by until_ns
 * (CLOCK_MONOTONIC; 0: do not wait), and the next call must be the same.
 */
int worker_frames(struct worker *worker, uint32_t file, uint64_t vaddr, const char *symbol,
		  uint64_t until_ns, struct worker_frame frames[WORKER_FRAMES_MAX]);
/*
 * Sends a file for worker_symbol(), in the same way; debug_fd: its debug file, -1 for none. The
 * least recently used tables are freed, and read again when needed, until the others take at most
 * tables_max bytes, not counting the last used file.
 */
int worker_open_tables(struct worker *worker, uint32_t file, int fd, int debug_fd,
		       uint64_t tables_max);
/*
 * The name of the function at an address of such a file, as in its tables; "" for none. 0;
 * -ENOEXEC: not found, and not all tables can be read; other errors as worker_frames(). *name is
 * borrowed until the next call.
 */
int worker_symbol(struct worker *worker, uint32_t file, uint64_t vaddr, uint64_t until_ns,
		  const char **name);
/*
 * Compiles the unwind table of a file and its debug file (-1: none; rows: enum abi_unwind_rows) and
 * writes it into table_fd, a new file in memory, as unwind_table_pack() makes it: its content is
 * not to be trusted. The descriptors stay the caller's. 0; -ENOENT: it has none; other errors as
 * unwind_table_build() and worker_frames().
 */
int worker_unwind(struct worker *worker, int fd, int debug_fd, int table_fd, uint32_t rows,
		  uint64_t until_ns);
/*
 * CPU time of this worker and its predecessors; for one that did not answer in time, the time
 * waited.
 */
uint64_t worker_spent_ns(const struct worker *worker);
/* Anonymous memory allocated since it was started; 0: unknown. */
uint64_t worker_held_bytes(const struct worker *worker);
/* Its process id; 0: none. */
pid_t worker_pid(const struct worker *worker);
/* Ends the worker; the next call starts another. */
void worker_stop(struct worker *worker);

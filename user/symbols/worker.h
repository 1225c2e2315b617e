/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process of ours that reads DWARF or symbol tables and demangles names, since files and names
 * are hostile, neither libdw nor libiberty can be held to a time or a size, and large tables take a
 * second. It has nothing but its socket and the descriptors that it is handed, may use few system
 * calls (seccomp; so it opens no file that DWARF names) and WORKER_MEMORY_BYTES of memory, and is
 * killed by the kernel when a question costs it more than WORKER_CPU_SECONDS. It ends with whoever
 * started it. Who asks sees -ETIMEDOUT or -EIO then, and a fresh one is started for the next
 * question.
 *
 * Who asks need not wait for the answer: it has other work meanwhile, and asks for the same again.
 *
 * The child is a fork: the smaller the process when the worker is started, the better. A process
 * that was forked from the one that started it starts its own.
 */
#ifndef TRACER_SYMBOLS_WORKER_H
#define TRACER_SYMBOLS_WORKER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WORKER_MEMORY_BYTES (2ull << 30) /* beyond what the process had when it was forked */
#define WORKER_CPU_SECONDS  5
#define WORKER_WALL_SECONDS 20 /* where the disk is slow; then it is given up, too */
#define WORKER_FRAMES_MAX   64u
/* bytes of a name, with the NUL; a longer symbol is not demangled */
#define WORKER_NAME_MAX 16384u

struct worker;

struct worker_frame {
	const char *function; /* demangled; "" not known */
	const char *filename; /* "" not known */
	uint32_t line;        /* 0 not known */
};

int worker_new(struct worker **out); /* and starts it. 0; -ENOMEM; -errno */
void worker_free(struct worker *worker);
/*
 * A number that changes with every start: files that were handed over before are to be handed over
 * again. Starts one if none is there. 0, -errno.
 */
int worker_generation(struct worker *worker, uint64_t *generation);
/*
 * Hands over the DWARF of a file, by a number that the caller chooses (not 0), for this generation.
 * alternate_fd: -1 for none. Both stay the caller's. Nothing is waited for. 0; -errno: it has
 * ended.
 */
int worker_open(struct worker *worker, uint32_t file, int fd, int alternate_fd);
/*
 * The frames at an instruction of a file, innermost first; file 0: of none. The outermost is called
 * by symbol where the DWARF knows no function or less of its name; "" for none. Texts are borrowed
 * until the next call. Their number, at most WORKER_FRAMES_MAX, 0: nothing is known; -ENOENT,
 * -ENOEXEC: the file that was handed over has no DWARF that can be read; -ENOMEM the worker is
 * full: start it anew; -ETIMEDOUT, -EIO it has ended; -EAGAIN: no answer has come until until_ns
 * (CLOCK_MONOTONIC; 0: not to wait at all), and the next call is to be the same.
 */
int worker_frames(struct worker *worker, uint32_t file, uint64_t vaddr, const char *symbol,
		  uint64_t until_ns, struct worker_frame frames[WORKER_FRAMES_MAX]);
/*
 * Hands over a file for worker_symbol(), in the same way; debug_fd: its debug file, -1 for none. Of
 * the tables of all such files those that were not asked for the longest time are let go of, and
 * read again when they are, until the others take no more than tables_max bytes beside the one that
 * was asked for last.
 */
int worker_open_tables(struct worker *worker, uint32_t file, int fd, int debug_fd,
		       uint64_t tables_max);
/*
 * The name of the function at an address of a file that was so handed over, as it stands there; ""
 * for none. 0; -ENOEXEC: not found, but not all of its tables can be read; else as worker_frames(),
 * *name borrowed likewise.
 */
int worker_symbol(struct worker *worker, uint32_t file, uint64_t vaddr, uint64_t until_ns,
		  const char **name);
/*
 * CPU time of this worker and of those before it; of one that was given up for its silence the time
 * of that.
 */
uint64_t worker_spent_ns(const struct worker *worker);
/* Anonymous memory that it has got since it was started; 0 where that is not known. */
uint64_t worker_held_bytes(const struct worker *worker);
/* Its process; 0: there is none. */
pid_t worker_pid(const struct worker *worker);
/* Ends it; the next call starts another. */
void worker_stop(struct worker *worker);

#endif

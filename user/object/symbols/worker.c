/* SPDX-License-Identifier: Apache-2.0 */
/* A compromised worker may answer anything: every offset in an answer is checked. */
#include "object/symbols/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "object/elf/elf_file.h"
#include "object/symbols/demangle.h"
#include "object/symbols/dwarf.h"
#include "object/unwind/unwind_table.h"
#include "proc/child.h"
#include "proc/process.h"
#include "util/arch.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/message.h"

/*
 * Messages between the worker and its owner: one per question and one per answer (SOCK_SEQPACKET).
 * Messages that send a file have no answer; later questions about the file return its errors.
 */
#define WORKER_FILES_MAX  MESSAGE_FDS_MAX
#define WORKER_ANSWER_MAX (160u * 1024) /* outermost texts are left out if they do not fit */

enum worker_question_kind {
	WORKER_OPEN = 1,
	WORKER_FRAMES = 2,
	WORKER_OPEN_TABLES = 3,
	WORKER_SYMBOL = 4,
	WORKER_UNWIND = 5
};

struct worker_question {
	uint32_t kind; /* enum worker_question_kind */
	uint32_t file;
	uint64_t vaddr;
	uint64_t tables_max; /* WORKER_OPEN_TABLES */
	uint32_t rows;       /* WORKER_UNWIND: enum abi_unwind_rows */
	uint32_t pad;
	char symbol[]; /* with its NUL */
};

/*
 * result: the number of frames, or -errno. A struct worker_wire_frame per frame follows, then the
 * texts, each with NUL.
 */
struct worker_answer {
	int32_t result;
	uint32_t pad;
};

struct worker_wire_frame {
	uint32_t line;
	uint32_t function, filename; /* offsets in the message */
};

struct child_file {
	uint32_t number;
	int fds[WORKER_FILES_MAX]; /* -1: none */
	struct dwarf_file *dwarf;
	int err;                 /* why it has no DWARF */
	struct elf_file *tables; /* NULL: not read, or freed */
	uint64_t tables_used;    /* value of a growing counter */
};

struct child {
	struct child_file *files;
	size_t count, capacity;
	uint64_t tables_max, tables_clock;
	char bytes[sizeof(struct worker_question) + WORKER_NAME_MAX] __attribute__((aligned(8)));
	size_t answer_bytes;
	char answer[WORKER_ANSWER_MAX] __attribute__((aligned(8)));
};

#define ALLOW(name)                                                                                \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1),                                     \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/*
 * Allows what reading descriptors, memory and this loop need. Everything else fails with EPERM,
 * including opening files that DWARF names.
 */
static int calls_limit(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH_AUDIT, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(read),
		ALLOW(pread64),
		ALLOW(lseek),
		ALLOW(fstat),
		/* glibc's fstat(); with a path it reads attributes but opens nothing */
		ALLOW(newfstatat),
		ALLOW(fcntl),
		ALLOW(close),
		ALLOW(write),
		ALLOW(memfd_create), /* symbols that a file carries packed */
		ALLOW(recvmsg),
		ALLOW(sendto),
		ALLOW(brk),
		ALLOW(mmap),
		ALLOW(munmap),
		ALLOW(mremap),
		ALLOW(mprotect),
		ALLOW(madvise),
		ALLOW(futex),
		ALLOW(setitimer),
		ALLOW(clock_gettime),
		ALLOW(getpid),
		ALLOW(gettid),
		ALLOW(sched_yield),
		ALLOW(rt_sigaction),
		ALLOW(rt_sigprocmask),
		ALLOW(rt_sigreturn),
		ALLOW(exit),
		ALLOW(exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	};
	struct sock_fprog program = {.len = ARRAY_SIZE(filter), .filter = filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return error_errno();
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? error_errno() : 0;
}

static int memory_limit(void)
{
	struct rlimit limit;
	unsigned long long pages;
	FILE *file = fopen("/proc/self/statm", "re");
	int got = file ? fscanf(file, "%llu", &pages) : 0;

	if (file)
		fclose(file);
	if (got != 1)
		return -EIO;
	limit.rlim_cur = pages * (unsigned long long)sysconf(_SC_PAGESIZE) + WORKER_MEMORY_BYTES;
	limit.rlim_max = limit.rlim_cur;
	return setrlimit(RLIMIT_AS, &limit) ? error_errno() : 0;
}

/* Limits what it writes, its memory, its calls, and (SIGPROF) the time of a question. */
static int child_limit(void)
{
	const struct rlimit written = {WORKER_FILE_BYTES, WORKER_FILE_BYTES};

	signal(SIGPROF, SIG_DFL);
	setrlimit(RLIMIT_FSIZE, &written);
	return memory_limit() ?: calls_limit();
}

static const struct worker_question *question_of(const struct child *child)
{
	return (const void *)child->bytes;
}

static struct child_file *file_find(struct child *child, uint32_t number)
{
	for (size_t i = 0; i < child->count; i++)
		if (child->files[i].number == number)
			return &child->files[i];
	return NULL;
}

static void fds_close(const int fds[WORKER_FILES_MAX])
{
	for (size_t i = 0; i < WORKER_FILES_MAX; i++)
		descriptor_close(fds[i]);
}

static struct child_file *file_add(struct child *child, const int fds[WORKER_FILES_MAX])
{
	/* Without memory for this the worker is useless. */
	if (ARRAY_GROW(child->files, child->capacity, child->count))
		_exit(1);
	struct child_file *file = &child->files[child->count++];
	*file = (struct child_file){.number = question_of(child)->file};
	memcpy(file->fds, fds, sizeof(file->fds));
	return file;
}

static void question_open(struct child *child, const int fds[WORKER_FILES_MAX])
{
	struct child_file *file = file_add(child, fds);

	file->err = dwarf_file_open(&file->dwarf, fds[0], fds[1]);
	if (file->err)
		fds_close(fds);
}

/* Appends a text, cut, to the answer and sets its offset. 0; -E2BIG. */
static int text_put(struct child *child, const char *text, uint32_t *offset)
{
	size_t bytes = strlen(text);

	if (bytes >= WORKER_NAME_MAX)
		bytes = WORKER_NAME_MAX - 1;
	if (bytes + 1 > sizeof(child->answer) - child->answer_bytes)
		return -E2BIG;
	*offset = (uint32_t)child->answer_bytes;
	memcpy(child->answer + child->answer_bytes, text, bytes);
	child->answer[child->answer_bytes + bytes] = '\0';
	child->answer_bytes += bytes + 1;
	return 0;
}

static int frame_put(struct child *child, const struct dwarf_frame *frame,
		     struct worker_wire_frame *wire)
{
	const char *filename = frame->filename ? frame->filename : "";
	char name[DEMANGLE_MAX], path[WORKER_NAME_MAX];

	demangle(frame->function ? frame->function : "", name);
	int err = text_put(child, name, &wire->function);
	if (err)
		return err;
	if (frame->directory) {
		snprintf(path, sizeof(path), "%s/%s", frame->directory,
			 filename + (strncmp(filename, "./", 2) ? 0 : 2));
		filename = path;
	}
	wire->line = frame->line;
	return text_put(child, filename, &wire->filename);
}

/*
 * DWARF has neither namespace nor arguments of a static C++ function; its mangled symbol has both.
 */
static void outermost_name(struct dwarf_frame *frame, const char *symbol)
{
	if (!frame->function || (demangle_wanted(symbol) && !demangle_wanted(frame->function)))
		frame->function = symbol;
}

static int question_frames(struct child *child)
{
	struct child_file *file = file_find(child, question_of(child)->file);
	struct worker_wire_frame *wire = (void *)(child->answer + sizeof(struct worker_answer));
	struct dwarf_frame frames[WORKER_FRAMES_MAX] = {0};
	int count = 0;

	if (file && file->err)
		return file->err;
	if (file)
		count = dwarf_file_frames(file->dwarf, question_of(child)->vaddr, frames,
					  WORKER_FRAMES_MAX);
	if (count < 0)
		return count;
	if (!count && question_of(child)->symbol[0])
		count = 1;
	if (count)
		outermost_name(&frames[count - 1], question_of(child)->symbol);
	child->answer_bytes += (size_t)count * sizeof(*wire);
	for (int i = 0; i < count; i++)
		if (frame_put(child, &frames[i], &wire[i]))
			return i;
	return count;
}

/* Duplicates the descriptors, so that freed tables can be opened again. 0; -errno. */
static int tables_open(struct child_file *file)
{
	int fds[WORKER_FILES_MAX], err;

	for (size_t i = 0; i < WORKER_FILES_MAX; i++)
		fds[i] = file->fds[i] < 0 ? -1 : fcntl(file->fds[i], F_DUPFD_CLOEXEC, 0);
	err = elf_file_open_apart(&file->tables, fds[0], fds[1]);
	if (err)
		fds_close(fds);
	return err;
}

/* Frees the least recently used tables of all files except one until the rest fits tables_max. */
static void tables_trim(struct child *child, const struct child_file *except)
{
	for (;;) {
		struct child_file *oldest = NULL;
		uint64_t bytes = 0;

		for (size_t i = 0; i < child->count; i++) {
			struct child_file *file = &child->files[i];

			if (!file->tables || file == except)
				continue;
			bytes += elf_file_symbol_memory(file->tables);
			if (!oldest || file->tables_used < oldest->tables_used)
				oldest = file;
		}
		if (bytes <= child->tables_max)
			return;
		elf_file_close(oldest->tables);
		oldest->tables = NULL;
	}
}

static int question_symbol(struct child *child)
{
	struct child_file *file = file_find(child, question_of(child)->file);
	struct worker_wire_frame *wire = (void *)(child->answer + sizeof(struct worker_answer));
	struct elf_symbol symbol;

	if (!file)
		return 0;
	file->tables_used = ++child->tables_clock;
	tables_trim(child, file);
	int err = (file->tables ? 0 : tables_open(file))
			  ?: elf_file_symbol_at(file->tables, question_of(child)->vaddr, &symbol);
	if (err)
		return err == -ENOENT ? 0 : err;
	child->answer_bytes += sizeof(*wire);
	*wire = (struct worker_wire_frame){0};
	return text_put(child, symbol.name, &wire->function)
		?: text_put(child, "", &wire->filename)
		?: 1;
}

static int question_unwind(uint32_t rows, const int fds[WORKER_FILES_MAX])
{
	struct unwind_table *table;
	size_t size;
	int err = unwind_table_build(&table, fds[0], fds[2], rows);

	if (!err) {
		const void *bytes = unwind_table_pack(table, &size);
		err = descriptor_write(fds[1], bytes, size);
		unwind_table_free(table);
	}
	fds_close(fds);
	return err;
}

static int question_answer(struct child *child, const int fds[WORKER_FILES_MAX])
{
	switch (question_of(child)->kind) {
	case WORKER_SYMBOL:
		return question_symbol(child);
	case WORKER_UNWIND:
		return question_unwind(question_of(child)->rows, fds);
	default:
		return question_frames(child);
	}
}

/* Receives the next question and its descriptors. 0: the end. */
static int question_receive(struct child *child, int fds[WORKER_FILES_MAX])
{
	ssize_t bytes = message_receive(CHILD_SOCKET, child->bytes, sizeof(child->bytes) - 1, fds,
					WORKER_FILES_MAX, NULL);

	if (bytes < (ssize_t)sizeof(struct worker_question))
		return 0;
	child->bytes[bytes] = '\0';
	return 1;
}

/* Main loop of the worker. Does not return. socket: its end. */
static void worker_child_run(void *context, int socket, pid_t parent)
{
	const struct itimerval limit = {.it_value.tv_sec = WORKER_CPU_SECONDS};
	struct child *child = calloc(1, sizeof(*child));
	int fds[WORKER_FILES_MAX];

	(void)context;
	if (!child || child_confine("tracer-symbols", socket, parent) || child_limit())
		_exit(1);
	while (question_receive(child, fds)) {
		struct worker_answer *answer = (void *)child->answer;

		setitimer(ITIMER_PROF, &limit, NULL);
		if (question_of(child)->kind == WORKER_OPEN) {
			question_open(child, fds);
			continue;
		}
		if (question_of(child)->kind == WORKER_OPEN_TABLES) {
			child->tables_max = question_of(child)->tables_max;
			file_add(child, fds);
			continue;
		}
		child->answer_bytes = sizeof(*answer);
		answer->result = question_answer(child, fds);
		if (send(CHILD_SOCKET, child->answer, child->answer_bytes, MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

#define SECOND_NS 1000000000ull
#define WALL_NS   (WORKER_WALL_SECONDS * SECOND_NS)

struct worker {
	pid_t pid; /* 0: none */
	/* process that started it: after a fork the worker belongs to the parent */
	pid_t owner;
	int socket;
	uint64_t generation;
	/* when the unanswered question was sent; 0: none */
	uint64_t asked_ns;
	uint64_t past_ns;      /* CPU time of workers that have ended */
	uint64_t forked_bytes; /* anonymous memory inherited by the fork */
	char answer[WORKER_ANSWER_MAX + 1] __attribute__((aligned(8))); /* plus a NUL */
};

/* Anonymous memory of a process; 0: unknown. */
static uint64_t anonymous_bytes(pid_t pid)
{
	uint64_t bytes, anonymous;

	return process_rss_read(pid, &bytes, &anonymous) ? 0 : anonymous;
}

static int worker_start(struct worker *worker)
{
	int end = message_child(&worker->pid, SOCK_SEQPACKET, worker_child_run, NULL);

	if (end < 0) {
		worker->pid = 0;
		return end;
	}
	worker->owner = getpid();
	worker->socket = end;
	worker->generation++;
	worker->forked_bytes = anonymous_bytes(worker->pid);
	return 0;
}

static uint64_t timeval_ns(const struct timeval *time)
{
	return (uint64_t)time->tv_sec * SECOND_NS + (uint64_t)time->tv_usec * 1000;
}

/* Ends the worker. Returns its wait status, 0 if unknown. */
static int worker_end(struct worker *worker)
{
	struct rusage usage = {0};
	int status = 0;

	if (!worker->pid)
		return 0;
	if (worker->owner == getpid()) {
		close(worker->socket);
		kill(worker->pid, SIGKILL);
		while (wait4(worker->pid, &status, 0, &usage) < 0)
			if (errno != EINTR) {
				status = 0;
				break;
			}
		worker->past_ns += timeval_ns(&usage.ru_utime) + timeval_ns(&usage.ru_stime);
	}
	worker->pid = 0;
	worker->asked_ns = 0;
	return status;
}

uint64_t worker_held_bytes(const struct worker *worker)
{
	uint64_t bytes = worker->pid ? anonymous_bytes(worker->pid) : 0;

	return bytes > worker->forked_bytes ? bytes - worker->forked_bytes : 0;
}

pid_t worker_pid(const struct worker *worker)
{
	return worker->pid;
}

void worker_stop(struct worker *worker)
{
	worker_end(worker);
}

/*
 * After a fork the parent's worker is not touched; the number of its socket may have been reused.
 */
static int worker_ensure(struct worker *worker)
{
	if (worker->pid && worker->owner != getpid())
		worker->pid = worker->asked_ns = 0;
	return worker->pid ? 0 : worker_start(worker);
}

int worker_new(struct worker **out)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	int err = worker ? worker_start(worker) : -ENOMEM;

	if (err)
		free(worker);
	else
		*out = worker;
	return err;
}

void worker_free(struct worker *worker)
{
	if (!worker)
		return;
	worker_end(worker);
	free(worker);
}

int worker_generation(struct worker *worker, uint64_t *generation)
{
	int err = worker_ensure(worker);

	*generation = worker->generation;
	return err;
}

static int lost_reason(int status, int answer_came)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
		return error_set(-ETIMEDOUT, "more than %d s to read it", WORKER_CPU_SECONDS);
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
		return error_set(-EIO, "the process that reads it was killed by signal %d",
				 WTERMSIG(status));
	return error_set(-EIO, answer_came ? "the process that reads it gave a wrong answer"
					   : "the process that reads it has ended");
}

/* Ends the worker and returns the reason of its failure. */
static int worker_lost(struct worker *worker, int answer_came)
{
	uint64_t took_ns = worker->asked_ns ? clock_ns(CLOCK_MONOTONIC) - worker->asked_ns : 0;
	int status = worker_end(worker);

	if (took_ns < WALL_NS || WIFSIGNALED(status) != 1 || WTERMSIG(status) != SIGKILL)
		return lost_reason(status, answer_came);
	worker->past_ns += took_ns;
	return error_set(-ETIMEDOUT, "no answer in %d s", WORKER_WALL_SECONDS);
}

static int question_send(struct worker *worker, const struct worker_question *question,
			 const char *symbol, const int fds[], size_t fd_count)
{
	const struct iovec parts[] = {{(void *)(uintptr_t)question, sizeof(*question)},
				      {(void *)(uintptr_t)symbol, strlen(symbol) + 1}};
	ssize_t sent = message_send(worker->socket, parts, 2, fds, fd_count);

	return sent < 0 ? (int)sent : 0;
}

/* Receives the answer and its size. 0; -EAGAIN; -ETIMEDOUT, -EIO. */
static int answer_receive(struct worker *worker, uint64_t until_ns, size_t *bytes)
{
	uint64_t end_ns = worker->asked_ns + WALL_NS;
	ssize_t got;

	if (!descriptor_wait(worker->socket, until_ns < end_ns ? until_ns : end_ns))
		return clock_ns(CLOCK_MONOTONIC) < end_ns ? -EAGAIN : worker_lost(worker, 0);
	do
		got = recv(worker->socket, worker->answer, sizeof(worker->answer) - 1, 0);
	while (got < 0 && errno == EINTR);
	if (got < (ssize_t)sizeof(struct worker_answer))
		return worker_lost(worker, got > 0);
	worker->asked_ns = 0;
	worker->answer[got] = '\0'; /* terminates the last text */
	*bytes = (size_t)got;
	return 0;
}

uint64_t worker_spent_ns(const struct worker *worker)
{
	struct timespec now = {0};
	clockid_t clock;

	if (worker->pid && worker->owner == getpid() && !clock_getcpuclockid(worker->pid, &clock))
		clock_gettime(clock, &now);
	return worker->past_ns + timespec_ns(now);
}

/* other_fd: -1 for none. */
static int file_hand(struct worker *worker, const struct worker_question *question, int fd,
		     int other_fd)
{
	const int fds[] = {fd, other_fd};
	int err = worker_ensure(worker);

	if (err)
		return err;
	return question_send(worker, question, "", fds, other_fd >= 0 ? 2 : 1)
		       ? worker_lost(worker, 0)
		       : 0;
}

int worker_open(struct worker *worker, uint32_t file, int fd, int alternate_fd)
{
	const struct worker_question question = {.kind = WORKER_OPEN, .file = file};

	return file_hand(worker, &question, fd, alternate_fd);
}

int worker_open_tables(struct worker *worker, uint32_t file, int fd, int debug_fd,
		       uint64_t tables_max)
{
	const struct worker_question question = {
		.kind = WORKER_OPEN_TABLES, .file = file, .tables_max = tables_max};

	return file_hand(worker, &question, fd, debug_fd);
}

/*
 * Asks, or waits for the answer of a question that was asked before. Returns the answer's result,
 * and its size.
 */
static int question_ask(struct worker *worker, const struct worker_question *question,
			const char *symbol, const int fds[], size_t fd_count, uint64_t until_ns,
			size_t *bytes)
{
	int err = worker_ensure(worker);

	if (!err && !worker->asked_ns) {
		worker->asked_ns = clock_ns(CLOCK_MONOTONIC);
		err = question_send(worker, question,
				    strlen(symbol) < WORKER_NAME_MAX ? symbol : "", fds, fd_count);
		if (err)
			return worker_lost(worker, 0);
	}
	return err
		?: answer_receive(worker, until_ns, bytes)
		?: ((const struct worker_answer *)worker->answer)->result;
}

static int frames_ask(struct worker *worker, const struct worker_question *question,
		      const char *symbol, uint64_t until_ns,
		      struct worker_frame frames[WORKER_FRAMES_MAX])
{
	const struct worker_wire_frame *wire =
		(void *)(worker->answer + sizeof(struct worker_answer));
	size_t bytes = 0, texts;
	int count = question_ask(worker, question, symbol, NULL, 0, until_ns, &bytes);

	if (count <= 0)
		return count;
	texts = sizeof(struct worker_answer) + (size_t)count * sizeof(*wire);
	if (count > (int)WORKER_FRAMES_MAX || texts > bytes)
		return worker_lost(worker, 1);
	for (int i = 0; i < count; i++) {
		if (wire[i].function >= bytes || wire[i].filename >= bytes)
			return worker_lost(worker, 1);
		frames[i] = (struct worker_frame){.function = worker->answer + wire[i].function,
						  .filename = worker->answer + wire[i].filename,
						  .line = wire[i].line};
	}
	return count;
}

int worker_frames(struct worker *worker, uint32_t file, uint64_t vaddr, const char *symbol,
		  uint64_t until_ns, struct worker_frame frames[WORKER_FRAMES_MAX])
{
	const struct worker_question question = {
		.kind = WORKER_FRAMES, .file = file, .vaddr = vaddr};

	return frames_ask(worker, &question, symbol, until_ns, frames);
}

int worker_symbol(struct worker *worker, uint32_t file, uint64_t vaddr, uint64_t until_ns,
		  const char **name)
{
	const struct worker_question question = {
		.kind = WORKER_SYMBOL, .file = file, .vaddr = vaddr};
	struct worker_frame frames[WORKER_FRAMES_MAX];
	int count = frames_ask(worker, &question, "", until_ns, frames);

	*name = count > 0 ? frames[0].function : "";
	return count < 0 ? count : 0;
}

int worker_unwind(struct worker *worker, int fd, int debug_fd, int table_fd, uint32_t rows,
		  uint64_t until_ns)
{
	const struct worker_question question = {.kind = WORKER_UNWIND, .rows = rows};
	const int fds[] = {fd, table_fd, debug_fd};
	size_t bytes;
	int result =
		question_ask(worker, &question, "", fds, debug_fd >= 0 ? 3 : 2, until_ns, &bytes);

	return result > 0 ? worker_lost(worker, 1) : result;
}

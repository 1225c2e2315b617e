/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "object/elf/elf_file.h"
#include "object/symbols/demangle.h"
#include "object/symbols/dwarf.h"
#include "object/symbols/worker_wire.h"
#include "object/unwind/unwind_table.h"
#include "proc/child.h"
#include "util/arch.h"
#include "util/array.h"
#include "util/descriptor.h"

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
		return -errno;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? -errno : 0;
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
	return setrlimit(RLIMIT_AS, &limit) ? -errno : 0;
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
		if (fds[i] >= 0)
			close(fds[i]);
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
	const void *bytes;
	size_t size;
	int err = unwind_table_build(&table, fds[0], fds[2], rows);

	if (!err) {
		bytes = unwind_table_pack(table, &size);
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

/* Receives the next question and its descriptors. Returns its bytes; 0 at the end. */
static ssize_t question_receive(struct child *child, int fds[WORKER_FILES_MAX])
{
	char control[CMSG_SPACE(sizeof(int) * WORKER_FILES_MAX)] __attribute__((aligned(8)));
	struct iovec iov = {.iov_base = child->bytes, .iov_len = sizeof(child->bytes) - 1};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	ssize_t bytes;

	for (size_t i = 0; i < WORKER_FILES_MAX; i++)
		fds[i] = -1;
	do
		bytes = recvmsg(CHILD_SOCKET, &message, MSG_CMSG_CLOEXEC);
	while (bytes < 0 && errno == EINTR);
	if (bytes < (ssize_t)sizeof(struct worker_question))
		return 0;
	child->bytes[bytes] = '\0';
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
	return bytes;
}

void worker_child_run(int socket, pid_t parent)
{
	const struct itimerval limit = {.it_value.tv_sec = WORKER_CPU_SECONDS};
	struct child *child = calloc(1, sizeof(*child));
	int fds[WORKER_FILES_MAX];

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

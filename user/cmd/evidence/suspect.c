/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/evidence/suspect.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/heap/heap_choice.h"
#include "cmd/memory.h"
#include "inspect/dump/dump_file.h"
#include "inspect/rss/memory.h"
#include "proc/priority.h"
#include "proc/process.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"

#define TEXT_MOST    (64u * 1024) /* of a command line, and of an environment */
#define WORKER_S     60u          /* seconds for a copy, and for what RSS is */
#define HURRIED_S    15u
#define SWAPPED_PART 8u /* of a copy */

void suspect_file(const struct suspect *suspect, const char *what, char name[64])
{
	snprintf(name, 64, "%u.%s", suspect->number, what);
}

/* Of an environment, in place: "NAME=VALUE" becomes "NAME". Values may be secrets. */
static void names_keep(struct buffer *text)
{
	size_t at = 0, kept = 0;

	while (at < text->size) {
		const char *word = (const char *)text->data + at;
		size_t bytes = strnlen(word, text->size - at), name = 0;

		while (name < bytes && word[name] != '=')
			name++;
		/* A word without a name is what the process has written over it. */
		if (name && name < bytes) {
			memmove(text->data + kept, word, name);
			kept += name;
			text->data[kept++] = '\0';
		}
		at += bytes + 1;
	}
	memset(text->data + kept, 0, text->size - kept);
	text->size = kept;
}

int suspect_new(struct suspect **out, pid_t pid)
{
	struct suspect *suspect = calloc(1, sizeof(*suspect));
	static unsigned int numbers;
	struct process_info info;

	if (!suspect)
		return -ENOMEM;
	suspect->pid = pid;
	suspect->number = ++numbers;
	suspect->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	int err = suspect->pidfd < 0 ? error_errno() : process_info_read(pid, &info);
	if (!err) {
		snprintf(suspect->name, sizeof(suspect->name), "%s", info.name);
		/* What cannot be read is missing in the evidence. */
		if (process_file_read(pid, "cmdline", TEXT_MOST, &suspect->command))
			suspect->command.size = 0;
		if (process_file_read(pid, "environ", TEXT_MOST, &suspect->names))
			suspect->names.size = 0;
		names_keep(&suspect->names);
		*out = suspect;
		return 0;
	}
	suspect_free(suspect, -1);
	return err;
}

void suspect_inherit(struct suspect *suspect, const struct suspect *parent, int folder)
{
	struct process_info info;
	char from[64], to[64];

	if (suspect->count || !parent->count || process_info_read(suspect->pid, &info) ||
	    !info.forked)
		return;
	suspect_file(parent, "1.dump", from);
	suspect_file(suspect, "1.dump", to);
	if (linkat(folder, from, folder, to, 0))
		return;
	suspect->copies[0] = parent->copies[0];
	suspect->count = 1;
}

static void file_remove(const struct suspect *suspect, int folder, const char *what)
{
	char name[64];

	suspect_file(suspect, what, name);
	unlinkat(folder, name, 0);
}

static void process_kill(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

void suspect_copy_abort(struct suspect *suspect)
{
	process_kill(suspect->worker);
	process_kill(suspect->reader);
	suspect->worker = suspect->reader = 0;
}

void suspect_drop(struct suspect *suspect, int folder)
{
	static const char *const files[] = {"1.dump", "2.dump", "3.dump"};

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		file_remove(suspect, folder, files[i]);
	suspect->count = 0;
}

void suspect_free(struct suspect *suspect, int folder)
{
	static const char *const files[] = {"1.dump",   "2.dump",      "3.dump",
					    "new.dump", "memory.json", "memory.txt",
					    "reason",   "new.json",    "new.txt"};

	if (!suspect)
		return;
	process_kill(suspect->worker);
	process_kill(suspect->reader);
	for (size_t i = 0; folder >= 0 && i < ARRAY_SIZE(files); i++)
		file_remove(suspect, folder, files[i]);
	descriptor_close(suspect->pidfd);
	buffer_free(&suspect->command);
	buffer_free(&suspect->names);
	free(suspect);
}

static int file_new(const struct suspect *suspect, int folder, const char *what)
{
	char name[64];

	suspect_file(suspect, what, name);
	unlinkat(folder, name, 0);
	int fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? error_errno() : fd;
}

/* A copy that lacks what is swapped out tells less than the one before: reading brings it back. */
static int swap_check(const struct suspect *suspect, const struct image *image)
{
	return suspect->count && image->bytes_swapped > image->resident_bytes / SWAPPED_PART
		       ? error_set(-ENODATA, "%" PRIu64 " MiB of it are swapped out",
				   image->bytes_swapped >> 20)
		       : 0;
}

#define TORN_MOST 2 /* copies in a row that are left out */
#define COPY_CUT  2 /* exit status: suspect_copy.cut */

/* Copies the heap to fd. COPY_CUT; 0, -errno. */
static int heap_save(const struct suspect *suspect, const struct heap_source *source, int fd)
{
	struct capture capture;
	struct outfile *file;
	int err = heap_source_copy(source, &capture);

	if (err)
		return err;
	err = swap_check(suspect, &capture.image);
	if (err) {
		capture_free(&capture);
		return err;
	}
	err = outfile_on(&file, fd, "copy");
	if (!err)
		err = outfile_end(file, dump_write(file, &capture));
	bool torn = capture.torn;
	capture_free(&capture);
	return err ?: torn ? COPY_CUT : 0;
}

/* Once it is opened: is it the process that was meant, whose pid may be another's by now? */
static int identity_check(const struct suspect *suspect)
{
	struct pollfd fd = {.fd = suspect->pidfd, .events = POLLIN};

	return poll(&fd, 1, 0) > 0 ? -ESRCH : 0;
}

/* The process that makes a copy: it opens all files first, and then drops its rights. */
static int worker_run(const struct suspect *suspect, int folder, bool hurried)
{
	struct heap_source source;
	int dump = file_new(suspect, folder, "new.dump");
	int reason = file_new(suspect, folder, "reason");

	if (dump < 0 || reason < 0)
		return -EIO;
	error_clear();
	int err = heap_source_open(&source, suspect->pid, 0);
	source.hurried = hurried;
	err = err                         ?: identity_check(suspect)
	      ?: privileges_drop(0, 0) ?: calls_limit(0) ?: heap_save(suspect, &source, dump);
	/* The reason may need the room of what was written. That it has ended is known. */
	if (err < 0 && !ftruncate(dump, 0) && err != -ESRCH)
		dprintf(reason, "%s", error_reason(err));
	return err;
}

/* The one that reads what RSS consists of. */
static int reader_run(const struct suspect *suspect, int folder, bool hurried)
{
	struct memory_reading *reading;
	int text = file_new(suspect, folder, "new.txt");
	int json = file_new(suspect, folder, "new.json");

	(void)hurried;
	if (text < 0 || json < 0)
		return -EIO;
	return memory_open(&reading, suspect->pid, 0)
	       ?: identity_check(suspect)
	       ?: privileges_drop(0, 0)
	       ?: calls_limit(0)
	       ?: memory_save(reading, text, json);
}

void suspect_yield_memory(void)
{
	_cleanup_close_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		dprintf(fd, "1000");
}

/* The process's id; -errno. */
static pid_t process_start(const struct suspect *suspect, int folder, bool hurried,
			   int (*run)(const struct suspect *suspect, int folder, bool hurried))
{
	pid_t parent = getpid(), pid = fork();

	if (pid)
		return pid < 0 ? error_errno() : pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	suspect_yield_memory();
	/* What does not answer is given up: the signal ends it. */
	alarm(hurried ? HURRIED_S : WORKER_S);
	priority_set(hurried ? SUSPECT_NICE_HURRIED : SUSPECT_NICE);
	int status = run(suspect, folder, hurried);
	_exit(status < 0 ? 1 : status);
}

int suspect_copy_begin(struct suspect *suspect, int folder, double share, bool hurried)
{
	if (suspect->worker > 0 || suspect->ended)
		return -EBUSY;
	suspect->next = (struct suspect_copy){.time_ns = clock_ns(CLOCK_REALTIME), .share = share};
	/* One that ends has no memory any more. */
	if (process_rss_read(suspect->pid, &suspect->next.rss, NULL) || !suspect->next.rss)
		return -ESRCH;
	suspect->worker_ns = clock_ns(CLOCK_MONOTONIC);
	suspect->worker = process_start(suspect, folder, hurried, worker_run);
	/* It would take the lock of its memory for longer, which the copy waits for. */
	if (suspect->worker > 0 && suspect->reader <= 0 && !hurried) {
		suspect->reader = process_start(suspect, folder, 0, reader_run);
		suspect->reader_time_ns = suspect->next.time_ns;
	}
	return suspect->worker < 0 ? suspect->worker : 0;
}

static void reason_take(struct suspect *suspect, int folder)
{
	char name[64];

	suspect_file(suspect, "reason", name);
	_cleanup_close_ int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? 0 : read(fd, suspect->reason, sizeof(suspect->reason) - 1);
	suspect->reason[bytes > 0 ? bytes : 0] = '\0';
}

/* Gives a new file its name; an empty one replaces nothing. */
static bool file_keep(const struct suspect *suspect, int folder, const char *from, const char *to)
{
	char old[64], name[64];
	struct stat st;

	suspect_file(suspect, from, old);
	suspect_file(suspect, to, name);
	return !fstatat(folder, old, &st, AT_SYMLINK_NOFOLLOW) && st.st_size &&
	       !renameat(folder, old, folder, name);
}

static void reader_end(struct suspect *suspect, int folder, bool wait)
{
	int status;

	if (suspect->reader <= 0 ||
	    waitpid(suspect->reader, &status, wait ? 0 : WNOHANG) != suspect->reader)
		return;
	suspect->reader = 0;
	if (WIFEXITED(status) && !WEXITSTATUS(status) &&
	    file_keep(suspect, folder, "new.txt", "memory.txt")) {
		file_keep(suspect, folder, "new.json", "memory.json");
		suspect->memory_time_ns = suspect->reader_time_ns;
	}
}

bool suspect_copy_end(struct suspect *suspect, int folder, bool wait)
{
	unsigned int last = suspect->count < SUSPECT_COPIES ? suspect->count : SUSPECT_COPIES - 1;
	char to[16];
	int status;

	reader_end(suspect, folder, wait);
	if (suspect->worker <= 0 ||
	    waitpid(suspect->worker, &status, wait ? 0 : WNOHANG) != suspect->worker)
		return 0;
	suspect->worker = 0;
	suspect->done_ns = clock_ns(CLOCK_MONOTONIC);
	suspect->took_ns = suspect->done_ns - suspect->worker_ns;
	/* A copy that was not made to its end is none. */
	reason_take(suspect, folder);
	snprintf(to, sizeof(to), "%u.dump", last + 1);
	if (!WIFEXITED(status))
		snprintf(suspect->reason, sizeof(suspect->reason), "reading it failed (signal %d)",
			 WTERMSIG(status));
	bool made = WIFEXITED(status) && (!WEXITSTATUS(status) || WEXITSTATUS(status) == COPY_CUT);
	/* One that does not fit together replaces none, unless there are no others any more. */
	suspect->next.cut = WIFEXITED(status) && WEXITSTATUS(status) == COPY_CUT;
	if (!made || (suspect->next.cut && suspect->count > 1 && suspect->failures < TORN_MOST) ||
	    !file_keep(suspect, folder, "new.dump", to)) {
		suspect->failures++;
		file_remove(suspect, folder, "new.dump"); /* it may have taken all the room */
		return 1;
	}
	suspect->failures = 0;
	suspect->copies[last] = suspect->next;
	suspect->count = last + 1;
	return 1;
}

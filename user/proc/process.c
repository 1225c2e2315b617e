/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All files of a process are read through one descriptor of /proc/PID. The descriptor keeps naming
 * the process for which it was opened, and yields ESRCH once that process has ended, even if the
 * pid is reused.
 */
#include "proc/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc/patience.h"
#include "util/array.h"
#include "util/buffer.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/sorted.h"

#define FILE_MAX_BYTES (1u << 20) /* status with 65,536 groups; stat */
#define PF_EXITING     0x00000004u
#define PF_KTHREAD     0x00200000u
#define PF_FORKNOEXEC  0x00000040u

/* Maps /proc's errors: for a process that has ended or is hidden, and for one of another user. */
static int proc_error(int err)
{
	if (err == ENOENT || err == ENOTDIR)
		return -ESRCH;
	return err == EACCES ? -EPERM : -err;
}

static int open_process(pid_t pid)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", pid);
	int fd = pid > 0 ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	if (fd >= 0)
		return fd;
	return pid > 0 ? proc_error(errno) : -ESRCH;
}

/* Reads the first max bytes of a file of /proc/PID, NUL-terminated (the NUL is not counted). */
static int read_file(int directory, const char *name, size_t max, struct buffer *out)
{
	int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = 1;
	int err = 0;

	if (fd < 0)
		return proc_error(errno);
	out->size = 0;
	while (n > 0 && out->size < max) {
		err = buffer_reserve(out, 4096);
		if (err)
			break;
		n = read(fd, out->data + out->size, 4095);
		if (n > 0)
			out->size += (size_t)n;
		else if (n < 0)
			err = proc_error(errno);
	}
	close(fd);
	if (err)
		return err;
	if (out->size > max)
		out->size = max;
	out->data[out->size] = '\0';
	return 0;
}

/*
 * "PID (NAME) STATE …": the name may contain anything, even ") R 1", but no later field contains a
 * parenthesis.
 */
static int parse_stat(const char *text, struct process_info *out)
{
	const char *open = strchr(text, '(');
	const char *close = strrchr(text, ')');
	unsigned long long field[24] = {0};

	if (!open || !close || close < open)
		return -EPROTO;
	size_t bytes = (size_t)(close - open) - 1;
	if (bytes >= sizeof(out->name))
		bytes = sizeof(out->name) - 1;
	memcpy(out->name, open + 1, bytes);
	out->name[bytes] = '\0';

	const char *next = close + 1;
	while (*next == ' ')
		next++;
	char state = *next;
	if (*next)
		next++;
	for (int i = 4; i <= 23; i++) {
		char *end;

		field[i] = strtoull(next, &end, 10);
		if (end == next)
			return -EPROTO;
		next = end;
	}
	out->ppid = (pid_t)field[4];
	out->kernel_thread = (field[9] & PF_KTHREAD) != 0;
	out->forked = (field[9] & PF_FORKNOEXEC) != 0;
	out->zombie = state == 'Z' || state == 'X' || field[9] & PF_EXITING;
	out->threads = (int)field[20];
	out->headless = out->zombie && out->threads > 1;
	out->zombie &= !out->headless;
	out->start_ticks = field[22];
	out->mapped = field[23];
	return 0;
}

int process_info_check(const struct process_info *info)
{
	if (info->tgid != info->pid)
		return error_set(-EINVAL, "it is a thread of process %d", (int)info->tgid);
	if (info->kernel_thread)
		return error_set(-ENOTSUP, "it is a kernel thread, and has no memory of its own");
	if (info->zombie)
		return error_set(-ESRCH, "it is a zombie, it has ended");
	if (info->headless)
		return error_set(
			-ENOTSUP,
			"its first thread has ended while others run (%d threads): the "
			"kernel shows no memory of such a process and places no probe in it",
			info->threads);
	return 0;
}

/* The value after "KEY:" at the start of a line. The kernel escapes line ends within the name. */
static const char *status_value(const char *text, const char *key)
{
	size_t length = strlen(key);

	while (text) {
		if (!strncmp(text, key, length) && text[length] == ':')
			return text + length + 1;
		text = strchr(text, '\n');
		if (text)
			text++;
	}
	return NULL;
}

static void parse_status(const char *text, struct process_info *out)
{
	char *end;

	const char *value = status_value(text, "Tgid");
	if (value)
		out->tgid = (pid_t)strtol(value, NULL, 10);
	value = status_value(text, "Uid"); /* real, effective, saved, file system */
	if (value) {
		uint32_t real = (uint32_t)strtoul(value, &end, 10);

		out->uid = (uint32_t)strtoul(end, &end, 10);
		out->uids_differ = real != out->uid || strtoul(end, NULL, 10) != out->uid;
	}
	value = status_value(text, "TracerPid");
	if (value) {
		out->debugger = (pid_t)strtol(value, NULL, 10);
		if (out->debugger == getpid()) /* it is being launched */
			out->debugger = 0;
	}
	value = status_value(text, "Seccomp");
	if (value)
		out->seccomp = (int)strtol(value, NULL, 10);
	value = status_value(text, "NSpid"); /* from our namespace to the innermost */
	while (value && out->ns_count < PROCESS_NS_MAX) {
		long pid = strtol(value, &end, 10);

		if (end == value || pid <= 0)
			break;
		out->ns_pid = out->ns_pids[out->ns_count++] = (pid_t)pid;
		value = *end == '\n' ? NULL : end;
	}
}

static void parse_command(const char *text, size_t bytes, struct process_info *out)
{
	if (bytes >= sizeof(out->command))
		bytes = sizeof(out->command) - 1;
	while (bytes && !text[bytes - 1])
		bytes--;
	for (size_t i = 0; i < bytes; i++)
		out->command[i] = text[i] ? text[i] : ' ';
	out->command[bytes] = '\0';
}

int process_file_read(pid_t pid, const char *name, size_t max, struct buffer *out)
{
	_cleanup_close_ int directory = open_process(pid);
	struct patience patience;

	if (directory < 0)
		return directory;
	int err = patience_begin(&patience, pid);
	if (!err) {
		err = read_file(directory, name, max, out);
		patience_end(&patience);
	}
	return err;
}

/* The kernel reads it from the process's memory. What takes too long is left out. */
static int read_command(int directory, struct buffer *text, struct process_info *info)
{
	struct patience patience;

	if (patience_begin(&patience, info->pid))
		return 0;
	int err = read_file(directory, "cmdline", sizeof(info->command), text);
	patience_end(&patience);
	if (!err)
		parse_command((const char *)text->data, text->size, info);
	return err;
}

int process_info_read(pid_t pid, struct process_info *out)
{
	struct process_info info = {.pid = pid, .tgid = pid, .ns_pid = pid};
	struct buffer text = {0};
	_cleanup_close_ int directory = open_process(pid);

	if (directory < 0)
		return directory;
	int err = read_file(directory, "stat", FILE_MAX_BYTES, &text)
		  ?: parse_stat((const char *)text.data, &info)
		  ?: read_file(directory, "status", FILE_MAX_BYTES, &text);
	if (!err) {
		parse_status((const char *)text.data, &info);
		err = read_command(directory, &text, &info);
	}
	if (!err)
		*out = info;
	buffer_free(&text);
	return err;
}

int process_stat_read(pid_t pid, struct process_info *out)
{
	_cleanup_(buffer_free) struct buffer text = {0};

	*out = (struct process_info){.pid = pid, .tgid = pid, .ns_pid = pid};
	return process_file_read(pid, "stat", FILE_MAX_BYTES, &text)
		       ?: parse_stat((const char *)text.data, out);
}

pid_t process_debugger(pid_t pid)
{
	struct process_info info = {0};
	_cleanup_(buffer_free) struct buffer text = {0};

	if (!process_file_read(pid, "status", FILE_MAX_BYTES, &text))
		parse_status((const char *)text.data, &info);
	return info.debugger;
}

int process_boot_read(char out[PROCESS_BOOT_TEXT])
{
	_cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, out, PROCESS_BOOT_TEXT - 1);

	if (got <= 0)
		return got ? error_errno() : -EIO;
	out[got] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return 0;
}

uint64_t process_age_ns(pid_t pid)
{
	long ticks = sysconf(_SC_CLK_TCK);
	uint64_t now_ns = clock_ns(CLOCK_BOOTTIME), begun_ns;
	struct process_info info;

	if (ticks <= 0 || process_stat_read(pid, &info) ||
	    info.start_ticks > now_ns / 1000000000 * (uint64_t)ticks + (uint64_t)ticks)
		return 0;
	begun_ns = info.start_ticks * (1000000000 / (uint64_t)ticks);
	return begun_ns < now_ns ? now_ns - begun_ns : 0;
}

static int compare_pid(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return CMP(x, y);
}

int process_program_open(pid_t pid)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? error_errno() : fd;
}

/*
 * fs/proc/base.c, mem_rw(): a read from an address space without users returns 0 (end of file) at
 * any offset; a read from a live one fails where nothing is mapped.
 */
static bool is_used(int fd)
{
	char byte;

	return pread(fd, &byte, 1, 0) != 0;
}

bool process_program_is_past(pid_t pid, int fd)
{
	struct patience patience;

	if (patience_begin(&patience, pid))
		return 0;
	int past = !is_used(fd);
	patience_end(&patience);
	if (!past)
		return 0;
	_cleanup_close_ int now = process_program_open(pid);
	return now >= 0 && is_used(now);
}

int process_list(pid_t **pids, size_t *count)
{
	DIR *directory = opendir("/proc");
	struct buffer list = {0};
	struct dirent *entry;
	int err = 0;

	if (!directory)
		return error_errno();
	while (!err && (entry = readdir(directory))) {
		char *end;
		long number = strtol(entry->d_name, &end, 10);
		pid_t pid = (pid_t)number;

		if (number > 0 && !*end && pid == number)
			err = buffer_append(&list, &pid, sizeof(pid));
	}
	closedir(directory);
	if (!err)
		err = buffer_reserve(&list, 1); /* never return NULL */
	if (err) {
		buffer_free(&list);
		return err;
	}
	*pids = (pid_t *)(void *)list.data;
	*count = list.size / sizeof(pid_t);
	qsort(*pids, *count, sizeof(pid_t), compare_pid);
	return 0;
}

int process_program_path(pid_t pid, char path[PATH_MAX])
{
	char link[40];

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	ssize_t bytes = readlink(link, path, PATH_MAX);
	if (bytes < 0)
		return errno == ENOENT ? -ESRCH : error_errno();
	if (bytes == PATH_MAX)
		return -ENAMETOOLONG;
	path[bytes] = '\0';
	return 0;
}

int process_own_bytes_read(pid_t pid, uint64_t *bytes)
{
	static const char *const keys[] = {"RssAnon", "VmSwap", "HugetlbPages"};
	_cleanup_(buffer_free) struct buffer text = {0};
	int err = process_file_read(pid, "status", FILE_MAX_BYTES, &text);

	*bytes = 0;
	for (size_t i = 0; !err && i < ARRAY_SIZE(keys); i++) {
		const char *value = status_value((const char *)text.data, keys[i]);

		if (value)
			*bytes += strtoull(value, NULL, 10) * 1024; /* "kB" */
	}
	return err;
}

int process_rss_read(pid_t pid, uint64_t *bytes, uint64_t *anonymous)
{
	unsigned long long pages = 0, shared = 0;
	struct buffer text = {0};
	_cleanup_close_ int directory = open_process(pid);
	/* The kernel takes no lock of the process's memory for it: there is nothing to wait for. */
	int err = directory < 0 ? directory : read_file(directory, "statm", FILE_MAX_BYTES, &text);

	/* Total size (skipped), resident pages, and resident pages of files or shared memory. */
	if (!err && sscanf((const char *)text.data, "%*u %llu %llu", &pages, &shared) != 2)
		err = -EBADMSG;
	buffer_free(&text);
	*bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
	/* The two counters are not read atomically. */
	if (anonymous)
		*anonymous =
			pages > shared ? (pages - shared) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
	return err;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/links/perf_uprobe.h"
#include "util/error.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PMU "/sys/bus/event_source/devices/uprobe/"

/* Reads one number that follows a prefix. 0, -errno. */
static int number_read(const char *path, const char *format, unsigned int *out)
{
	FILE *file = fopen(path, "re");

	if (!file)
		return error_errno();
	int got = fscanf(file, format, out);
	fclose(file);
	return got == 1 ? 0 : -ENOSYS;
}

/* Kernel constants, cached because a session needs them a thousand times. */
static int pmu_read(unsigned int *type, unsigned int *return_bit, unsigned int *semaphore_bit)
{
	static __thread unsigned int known_type, known_bit, known_semaphore;
	int err = 0;

	if (!known_type) {
		err = number_read(PMU "format/retprobe", "config:%u", &known_bit)
		      ?: number_read(PMU "format/ref_ctr_offset", "config:%u-", &known_semaphore)
		      ?: number_read(PMU "type", "%u", &known_type);
	}
	*semaphore_bit = known_semaphore;
	*type = known_type;
	*return_bit = known_bit;
	return err;
}

/* semaphore: its offset; 0: none. */
static int event_open(const char *path, uint64_t offset, pid_t pid, enum links_kind kind,
		      uint64_t semaphore)
{
	struct perf_event_attr attr = {.size = sizeof(attr)};
	unsigned int type, return_bit, semaphore_bit;
	int fd, err = pmu_read(&type, &return_bit, &semaphore_bit);

	if (err)
		return err;
	/* The rest of the word is the offset. */
	if (semaphore_bit > 63 || semaphore << semaphore_bit >> semaphore_bit != semaphore)
		return -EOVERFLOW;
	attr.type = type;
	attr.config = kind == LINKS_RETURN ? 1ull << (return_bit & 63) : 0;
	attr.config |= semaphore << semaphore_bit;
	attr.config1 = (uintptr_t)path;
	attr.config2 = offset;
	/*
	 * For all processes: the event names one processor, but a program at a uprobe runs on all
	 * of them.
	 */
	fd = (int)syscall(SYS_perf_event_open, &attr, pid < 0 ? -1 : pid, pid < 0 ? 0 : -1, -1,
			  PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? error_errno() : fd;
}

int perf_uprobe_open(const char *path, uint64_t offset, pid_t pid, enum links_kind kind)
{
	return event_open(path, offset, pid, kind, 0);
}

int perf_uprobe_link(int program, const char *path, pid_t pid, enum links_kind kind,
		     const struct links_sites *sites, size_t index)
{
	struct bpf_link_create_opts opts = {.sz = sizeof(opts),
					    .perf_event.bpf_cookie = sites->cookies[index]};
	uint64_t semaphore = sites->semaphores ? sites->semaphores[index] : 0;
	int link, event = event_open(path, sites->offsets[index], pid, kind, semaphore);

	if (event < 0)
		return event;
	link = bpf_link_create(program, event, BPF_PERF_EVENT, &opts);
	if (link < 0)
		link = error_errno();
	close(event);
	return link;
}

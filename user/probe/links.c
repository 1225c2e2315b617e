/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/links.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

/* Numbers of the kernel's UAPI that older headers lack (include/uapi/linux/bpf.h, 6.6 and 6.13). */
#define ATTACH_TYPE_UPROBE_MULTI   48
#define ATTACH_TYPE_UPROBE_SESSION 57
#define UPROBE_MULTI_RETURN        1u

static int libbpf_print(enum libbpf_print_level level, const char *format, va_list arguments)
{
	if (level == LIBBPF_DEBUG || log_level < 2)
		return 0;
	return vfprintf(stderr, format, arguments);
}

void links_silence_libbpf(void)
{
	libbpf_set_print(libbpf_print);
}

enum links_backend links_choose(const struct features *features, int no_session, int no_multi)
{
	return !features->uprobe_multi || no_multi       ? LINKS_PERF
	       : !features->uprobe_session || no_session ? LINKS_MULTI
							 : LINKS_SESSION;
}

static uint32_t attach_type(enum links_kind kind)
{
	return kind == LINKS_BOTH ? ATTACH_TYPE_UPROBE_SESSION : ATTACH_TYPE_UPROBE_MULTI;
}

void links_prepare(const struct links *links, struct bpf_program *program, enum links_kind kind)
{
	if (links->backend != LINKS_PERF)
		bpf_program__set_expected_attach_type(program, (enum bpf_attach_type)attach_type(kind));
}

/* The link_create arguments of uprobe_multi; libbpf 1.1 has no call for them. */
struct multi_link_attr {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t count, multi_flags, pid, pad;
};

static int multi_add(struct links *links, const struct bpf_program *program, enum links_kind kind,
		     const char *path, pid_t pid, const uint64_t *offsets, const uint64_t *cookies,
		     size_t count)
{
	struct multi_link_attr attr = {
		.prog_fd = bpf_program__fd(program),
		.attach_type = attach_type(kind),
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.count = count,
		.multi_flags = kind == LINKS_RETURN ? UPROBE_MULTI_RETURN : 0,
		.pid = pid < 0 ? 0 : pid,
	};
	int *multi = realloc(links->multi, (links->multi_count + 1) * sizeof(*multi));
	int fd;

	if (!multi)
		return -ENOMEM;
	links->multi = multi;
	fd = syscall(__NR_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));
	if (fd < 0)
		return error_set(-errno, "uprobe_multi link of %zu sites: %s", count, strerror(errno));
	links->multi[links->multi_count++] = fd;
	return 0;
}

static int perf_add(struct links *links, const struct bpf_program *program, enum links_kind kind,
		    const char *path, pid_t pid, uint64_t offset, uint64_t cookie)
{
	struct bpf_uprobe_opts opts = {
		.sz = sizeof(opts), .bpf_cookie = cookie, .retprobe = kind == LINKS_RETURN};
	struct bpf_link **perf = realloc(links->perf, (links->perf_count + 1) * sizeof(*perf)), *link;

	if (!perf)
		return -ENOMEM;
	links->perf = perf;
	link = bpf_program__attach_uprobe_opts(program, pid, path, offset, &opts);
	if (!link)
		return error_set(-errno, "uprobe at offset 0x%llx: %s", (unsigned long long)offset,
				 strerror(errno));
	links->perf[links->perf_count++] = link;
	return 0;
}

int links_add(struct links *links, const struct bpf_program *program, enum links_kind kind, const char *path,
	      pid_t pid, const uint64_t *offsets, const uint64_t *cookies, size_t count)
{
	int err = 0;

	if (links->backend != LINKS_PERF)
		return count ? multi_add(links, program, kind, path, pid, offsets, cookies, count) : 0;
	for (size_t i = 0; i < count && !err; i++)
		err = perf_add(links, program, kind, path, pid, offsets[i], cookies[i]);
	return err;
}

void links_free(struct links *links)
{
	for (size_t i = 0; i < links->multi_count; i++)
		close(links->multi[i]);
	for (size_t i = 0; i < links->perf_count; i++)
		bpf_link__destroy(links->perf[i]);
	free(links->multi);
	free(links->perf);
	*links = (struct links){.backend = links->backend};
}

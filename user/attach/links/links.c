/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/links/links.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attach/links/link_keeper.h"
#include "util/array.h"
#include "util/error.h"
#include "util/regular.h"

/* UAPI constants that older headers lack (include/uapi/linux/bpf.h, 6.6 and 6.13). */
#define ATTACH_TYPE_UPROBE_MULTI   48
#define ATTACH_TYPE_UPROBE_SESSION 57
#define UPROBE_MULTI_RETURN        1u

#define DESCRIPTORS_ELSE 32u /* reserved for descriptors other than probes */

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

const char *links_libbpf_version(void)
{
	return libbpf_version_string();
}

enum links_backend links_choose(const struct features *features, int no_session, int no_multi)
{
	return !features->uprobe_multi || no_multi       ? LINKS_PERF
	       : !features->uprobe_session || no_session ? LINKS_MULTI
							 : LINKS_SESSION;
}

uint32_t links_attach_type(enum links_kind kind)
{
	return kind == LINKS_BOTH ? ATTACH_TYPE_UPROBE_SESSION : ATTACH_TYPE_UPROBE_MULTI;
}

void links_prepare(const struct links *links, struct bpf_program *program, enum links_kind kind)
{
	if (links->backend != LINKS_PERF)
		bpf_program__set_expected_attach_type(
			program, (enum bpf_attach_type)links_attach_type(kind));
}

/* The link_create arguments of uprobe_multi, which libbpf 1.1 does not support. */
struct multi_link_attr {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t count, multi_flags, pid, pad;
};

int links_multi_create(int program, enum links_kind kind, const char *path, pid_t pid,
		       const struct links_sites *sites)
{
	struct multi_link_attr attr = {
		.prog_fd = program,
		.attach_type = links_attach_type(kind),
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)sites->offsets,
		.ref_ctr_offsets = (uintptr_t)sites->semaphores,
		.cookies = (uintptr_t)sites->cookies,
		.count = sites->count,
		.multi_flags = kind == LINKS_RETURN ? UPROBE_MULTI_RETURN : 0,
		.pid = pid < 0 ? 0 : pid,
	};
	int fd = (int)syscall(__NR_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

	return fd < 0 ? error_errno() : fd;
}

size_t links_probes_left(const struct links *links)
{
	struct rlimit limit;
	size_t used = link_keeper_count(links->holder) + DESCRIPTORS_ELSE;

	if (links->backend != LINKS_PERF || getrlimit(RLIMIT_NOFILE, &limit) ||
	    limit.rlim_max == RLIM_INFINITY)
		return SIZE_MAX;
	return limit.rlim_max > used ? limit.rlim_max - used : 0;
}

int links_add(struct links *links, const struct bpf_program *program, enum links_kind kind,
	      int file, pid_t pid, const struct links_sites *sites)
{
	struct links_spec spec = {
		.backend = links->backend,
		.kind = kind,
		.program = bpf_program__fd(program),
		.pid = pid,
		.sites = *sites,
	};
	int err = ARRAY_GROW(links->groups, links->capacity, links->group_count);
	size_t made;

	if (err || !sites->count)
		return err;
	spec.file = regular_origin(file);
	if (spec.file < 0)
		return spec.file;
	err = link_keeper_add(links->holder, &spec, &links->groups[links->group_count], &made);
	links->group_count += made > 0;
	links->count += made;
	return err;
}

int links_move(struct links *links, struct links *other)
{
	int err = array_reserve(&links->groups, &links->capacity, links->group_count,
				other->group_count, sizeof(*links->groups));

	if (err)
		return err;
	for (size_t i = 0; i < other->group_count; i++)
		links->groups[links->group_count++] = other->groups[i];
	links->count += other->count;
	free(other->groups);
	*other = (struct links){.backend = other->backend, .holder = other->holder};
	return 0;
}

void links_free(struct links *links, int wait)
{
	link_keeper_drop(links->holder, links->groups, links->group_count, links->count, wait);
	free(links->groups);
	*links = (struct links){.backend = links->backend, .holder = links->holder};
}

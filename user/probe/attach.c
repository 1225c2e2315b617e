/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/attach.h"

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
#include "probe/alloc.skel.h"

/* Numbers of the kernel's UAPI that older headers lack (include/uapi/linux/bpf.h, 6.6 and 6.13). */
#define ATTACH_TYPE_UPROBE_MULTI   48
#define ATTACH_TYPE_UPROBE_SESSION 57
#define UPROBE_MULTI_RETURN        1u

enum backend { BACKEND_SESSION, BACKEND_MULTI, BACKEND_PERF };

struct attach {
	struct alloc_bpf *skeleton;
	struct ring_buffer *ring;
	enum backend backend;
	struct attach_opts opts;
	size_t drained, drain_limit;
	int *links; /* descriptors of uprobe_multi links */
	size_t link_count;
	struct bpf_link **perf_links;
	size_t perf_link_count;
};

/* Draining stops here once enough was handed over; any value that no callback returns. */
#define DRAIN_ENOUGH (-4095)

static int record_handle(void *context, void *record, size_t size)
{
	struct attach *attach = context;
	int err = attach->opts.record(attach->opts.context, record, size);

	if (err)
		return err;
	return ++attach->drained >= attach->drain_limit ? DRAIN_ENOUGH : 0;
}

/* libbpf's own messages, the verifier's among them, are for -v. */
static int libbpf_print(enum libbpf_print_level level, const char *format, va_list arguments)
{
	if (level == LIBBPF_DEBUG || log_level < 2)
		return 0;
	return vfprintf(stderr, format, arguments);
}

static void programs_select(struct attach *attach)
{
	struct alloc_bpf *skeleton = attach->skeleton;
	int session = attach->backend == BACKEND_SESSION, empty = attach->opts.empty;
	struct program {
		struct bpf_program *program;
		int wanted, session;
	} programs[] = {
		{skeleton->progs.request_session, session && !empty, 1},
		{skeleton->progs.request_entry, !session && !empty, 0},
		{skeleton->progs.request_return, !session && !empty, 0},
		{skeleton->progs.request_once, !empty, 0},
		{skeleton->progs.inline_site, !empty, 0},
		{skeleton->progs.mapping, !empty, 0},
		{skeleton->progs.object_begin, !empty, 0},
		{skeleton->progs.finalize, !empty, 0},
		{skeleton->progs.empty_session, session && empty, 1},
		{skeleton->progs.empty, empty, 0},
	};

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		bpf_program__set_autoload(programs[i].program, programs[i].wanted);
		if (attach->backend != BACKEND_PERF)
			bpf_program__set_expected_attach_type(
				programs[i].program,
				(enum bpf_attach_type)(programs[i].session ? ATTACH_TYPE_UPROBE_SESSION
									   : ATTACH_TYPE_UPROBE_MULTI));
	}
}

int attach_new(struct attach **out, const struct features *features, const struct attach_opts *opts)
{
	struct attach *attach = calloc(1, sizeof(*attach));
	int err;

	if (!attach)
		return -ENOMEM;
	attach->opts = *opts;
	attach->backend = !features->uprobe_multi || opts->no_multi       ? BACKEND_PERF
			  : !features->uprobe_session || opts->no_session ? BACKEND_MULTI
									  : BACKEND_SESSION;
	libbpf_set_print(libbpf_print);
	attach->skeleton = alloc_bpf__open();
	if (!attach->skeleton) {
		err = error_set(-errno, "the BPF object cannot be opened");
		goto fail;
	}
	if (opts->ring_bytes)
		bpf_map__set_max_entries(attach->skeleton->maps.events, opts->ring_bytes);
	attach->skeleton->rodata->has_loop = features->bpf_loop;
	bpf_program__set_autoload(attach->skeleton->progs.process_exec_begin, features->prepare_exec);
	programs_select(attach);
	err = alloc_bpf__load(attach->skeleton);
	if (err) {
		err = error_set(err, "the kernel refused the BPF programs (%s; -v shows its words)",
				strerror(-err));
		goto fail;
	}
	attach->ring =
		ring_buffer__new(bpf_map__fd(attach->skeleton->maps.events), record_handle, attach, NULL);
	if (!attach->ring) {
		err = error_set(-errno, "the ring buffer cannot be mapped");
		goto fail;
	}
	/* Exit, exec and fork are watched from before the first probe, so that no ending is missed. */
	attach->skeleton->links.process_exit = bpf_program__attach(attach->skeleton->progs.process_exit);
	attach->skeleton->links.process_exec = bpf_program__attach(attach->skeleton->progs.process_exec);
	attach->skeleton->links.process_fork = bpf_program__attach(attach->skeleton->progs.process_fork);
	if (features->prepare_exec)
		attach->skeleton->links.process_exec_begin =
			bpf_program__attach(attach->skeleton->progs.process_exec_begin);
	if (!attach->skeleton->links.process_exit || !attach->skeleton->links.process_exec ||
	    !attach->skeleton->links.process_fork) {
		err = error_set(-errno, "the scheduler's tracepoints cannot be attached to");
		goto fail;
	}
	*out = attach;
	return 0;
fail:
	attach_free(attach);
	return err < 0 ? err : -EINVAL;
}

void attach_detach(struct attach *attach)
{
	for (size_t i = 0; i < attach->link_count; i++)
		close(attach->links[i]);
	attach->link_count = 0;
	for (size_t i = 0; i < attach->perf_link_count; i++)
		bpf_link__destroy(attach->perf_links[i]);
	attach->perf_link_count = 0;
}

void attach_free(struct attach *attach)
{
	if (!attach)
		return;
	attach_detach(attach);
	free(attach->links);
	free(attach->perf_links);
	ring_buffer__free(attach->ring);
	alloc_bpf__destroy(attach->skeleton);
	free(attach);
}

int attach_target(struct attach *attach, uint32_t tgid, const struct abi_target *target)
{
	if (bpf_map_update_elem(bpf_map__fd(attach->skeleton->maps.targets), &tgid, target, BPF_ANY))
		return error_set(-errno, "the table of targets is full");
	return 0;
}

void attach_forget(struct attach *attach, uint32_t tgid)
{
	bpf_map_delete_elem(bpf_map__fd(attach->skeleton->maps.targets), &tgid);
}

/* The link_create arguments of uprobe_multi; libbpf 1.1 has no call for them. */
struct multi_link_attr {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t count, multi_flags, pid, pad;
};

/* Which sites a program serves. */
typedef int (*site_filter_fn)(const struct plan_site *site);

static int site_is_mapping(const struct plan_site *site)
{
	return site->op >= ABI_OP_MMAP && site->op <= ABI_OP_BRK;
}

static int site_is_request(const struct plan_site *site)
{
	return site->with_return;
}

static int site_is_reuse(const struct plan_site *site)
{
	return site->op == ABI_OP_REUSE;
}

static int site_is_once(const struct plan_site *site)
{
	return site->op == ABI_OP_FREE || site->op == ABI_OP_POOL_FREE || site->op == ABI_OP_TRACK ||
	       site->op == ABI_OP_UNTRACK;
}

static int site_is_inline(const struct plan_site *site)
{
	return !site->with_return && !site_is_once(site) && !site_is_reuse(site) && !site_is_mapping(site) &&
	       site->op != ABI_OP_FINALIZE;
}

static int site_is_finalize(const struct plan_site *site)
{
	return site->op == ABI_OP_FINALIZE;
}

static int multi_link(struct attach *attach, const struct bpf_program *program, const char *path, pid_t pid,
		      uint32_t attach_type, uint32_t flags, const uint64_t *offsets, const uint64_t *cookies,
		      size_t count)
{
	struct multi_link_attr attr = {
		.prog_fd = bpf_program__fd(program),
		.attach_type = attach_type,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.count = count,
		.multi_flags = flags,
		.pid = pid,
	};
	int *links = realloc(attach->links, (attach->link_count + 1) * sizeof(*links));
	int fd;

	if (!links)
		return -ENOMEM;
	attach->links = links;
	fd = syscall(__NR_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));
	if (fd < 0)
		return error_set(-errno, "uprobe_multi link of %zu sites: %s", count, strerror(errno));
	attach->links[attach->link_count++] = fd;
	return 0;
}

static int perf_link(struct attach *attach, const struct bpf_program *program, const char *path, pid_t pid,
		     int is_return, uint64_t offset, uint64_t cookie)
{
	struct bpf_uprobe_opts opts = {.sz = sizeof(opts), .bpf_cookie = cookie, .retprobe = is_return};
	struct bpf_link **links = realloc(attach->perf_links, (attach->perf_link_count + 1) * sizeof(*links)),
			*link;

	if (!links)
		return -ENOMEM;
	attach->perf_links = links;
	link = bpf_program__attach_uprobe_opts(program, pid, path, offset, &opts);
	if (!link)
		return error_set(-errno, "uprobe at offset 0x%llx: %s", (unsigned long long)offset,
				 strerror(errno));
	attach->perf_links[attach->perf_link_count++] = link;
	return 0;
}

/* Attaches program, or the empty one of its kind, to the plan's sites that filter selects. */
static int program_attach(struct attach *attach, const struct bpf_program *program, const struct plan *plan,
			  site_filter_fn filter, const char *path, pid_t pid, int is_return)
{
	uint64_t *offsets = calloc(plan->count + 1, sizeof(*offsets));
	uint64_t *cookies = calloc(plan->count + 1, sizeof(*cookies));
	size_t count = 0;
	int err = -ENOMEM;

	if (!offsets || !cookies)
		goto out;
	if (attach->opts.empty)
		program = program == attach->skeleton->progs.request_session
				  ? attach->skeleton->progs.empty_session
				  : attach->skeleton->progs.empty;
	for (size_t i = 0; i < plan->count; i++) {
		if (!filter(&plan->sites[i]))
			continue;
		offsets[count] = plan->sites[i].offset;
		cookies[count++] = plan->sites[i].cookie;
	}
	err = 0;
	if (attach->backend != BACKEND_PERF && count)
		err = multi_link(attach, program, path, pid, bpf_program__expected_attach_type(program),
				 is_return ? UPROBE_MULTI_RETURN : 0, offsets, cookies, count);
	for (size_t i = 0; attach->backend == BACKEND_PERF && i < count && !err; i++)
		err = perf_link(attach, program, path, pid, is_return, offsets[i], cookies[i]);
out:
	free(offsets);
	free(cookies);
	return err;
}

int attach_sites(struct attach *attach, const struct plan *plan, const struct elf_file *file, pid_t pid)
{
	struct alloc_bpf *skeleton = attach->skeleton;
	char path[32];
	int err;

	/* The very inode that the target has mapped, whatever its name says by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", elf_file_fd(file));
	/* Frees first: a block whose free is seen and whose birth is not does no harm, the reverse does. */
	err = program_attach(attach, skeleton->progs.request_once, plan, site_is_once, path, pid, 0);
	if (!err)
		err = program_attach(attach, skeleton->progs.mapping, plan, site_is_mapping, path, pid, 0);
	if (!err)
		err = program_attach(attach, skeleton->progs.finalize, plan, site_is_finalize, path, pid, 0);
	if (!err)
		err = program_attach(attach, skeleton->progs.object_begin, plan, site_is_reuse, path, pid, 0);
	if (!err)
		err = program_attach(attach, skeleton->progs.inline_site, plan, site_is_inline, path, pid, 0);
	if (!err && attach->backend == BACKEND_SESSION)
		return program_attach(attach, skeleton->progs.request_session, plan, site_is_request, path,
				      pid, 0);
	if (!err)
		err = program_attach(attach, skeleton->progs.request_return, plan, site_is_request, path, pid,
				     1);
	if (!err)
		err = program_attach(attach, skeleton->progs.request_entry, plan, site_is_request, path, pid,
				     0);
	return err;
}

int attach_detaches_slowly(const struct attach *attach)
{
	return attach->perf_link_count > 32;
}

const char *attach_backend(const struct attach *attach)
{
	switch (attach->backend) {
	case BACKEND_SESSION:
		return "uprobe_multi session links";
	case BACKEND_MULTI:
		return "uprobe_multi links";
	default:
		return "perf-event uprobes";
	}
}

int attach_drain(struct attach *attach, size_t limit)
{
	int err;

	attach->drained = 0;
	attach->drain_limit = limit;
	err = ring_buffer__consume(attach->ring);
	if (err < 0 && err != DRAIN_ENOUGH)
		return err;
	return attach->drained;
}

int attach_loss(struct attach *attach, __u64 counts[LOSS_COUNT])
{
	int cpus = libbpf_num_possible_cpus(), fd = bpf_map__fd(attach->skeleton->maps.loss), err = 0;
	uint64_t *values;

	if (cpus < 0)
		return cpus;
	values = calloc(cpus, sizeof(*values));
	if (!values)
		return -ENOMEM;
	for (uint32_t kind = 0; kind < LOSS_COUNT && !err; kind++) {
		counts[kind] = 0;
		if (bpf_map_lookup_elem(fd, &kind, values))
			err = -errno;
		for (int cpu = 0; cpu < cpus && !err; cpu++)
			counts[kind] += values[cpu];
	}
	free(values);
	return err;
}

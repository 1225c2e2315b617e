/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/attach.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "probe/alloc.skel.h"
#include "probe/links.h"
#include "probe/stream.h"

struct attach {
	struct alloc_bpf *skeleton;
	struct stream *stream;
	struct links links;
	int empty; /* as in struct attach_opts */
};

static void programs_select(struct attach *attach)
{
	struct alloc_bpf *skeleton = attach->skeleton;
	int session = attach->links.backend == LINKS_SESSION, empty = attach->empty;
	const struct program {
		struct bpf_program *program;
		int wanted;
		enum links_kind kind;
	} programs[] = {
		{skeleton->progs.request_session, session && !empty, LINKS_BOTH},
		{skeleton->progs.request_entry, !session && !empty, LINKS_ENTRY},
		{skeleton->progs.request_return, !session && !empty, LINKS_RETURN},
		{skeleton->progs.request_once, !empty, LINKS_ENTRY},
		{skeleton->progs.native_session, session && !empty, LINKS_BOTH},
		{skeleton->progs.native_entry, !session && !empty, LINKS_ENTRY},
		{skeleton->progs.native_return, !session && !empty, LINKS_RETURN},
		{skeleton->progs.native_once, !empty, LINKS_ENTRY},
		{skeleton->progs.inline_site, !empty, LINKS_ENTRY},
		{skeleton->progs.mapping, !empty, LINKS_ENTRY},
		{skeleton->progs.object_begin, !empty, LINKS_ENTRY},
		{skeleton->progs.finalize, !empty, LINKS_ENTRY},
		{skeleton->progs.empty_session, session && empty, LINKS_BOTH},
		{skeleton->progs.empty, empty, LINKS_ENTRY},
	};

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		bpf_program__set_autoload(programs[i].program, programs[i].wanted);
		if (programs[i].wanted)
			links_prepare(&attach->links, programs[i].program, programs[i].kind);
	}
}

int attach_new(struct attach **out, const struct features *features, const struct attach_opts *opts)
{
	struct attach *attach = calloc(1, sizeof(*attach));
	int err;

	if (!attach)
		return -ENOMEM;
	attach->empty = opts->empty;
	attach->links.backend = links_choose(features, opts->no_session, opts->no_multi);
	links_silence_libbpf();
	attach->skeleton = alloc_bpf__open();
	if (!attach->skeleton) {
		err = error_set(-errno, "the BPF object cannot be opened");
		goto fail;
	}
	if (opts->ring_bytes)
		bpf_map__set_max_entries(attach->skeleton->maps.events, opts->ring_bytes);
	attach->skeleton->rodata->has_loop = features->bpf_loop;
	attach->skeleton->rodata->sampling = opts->sampling;
	if (!opts->sampling)
		bpf_map__set_max_entries(attach->skeleton->maps.sampled, 1);
	bpf_program__set_autoload(attach->skeleton->progs.process_exec_begin, features->prepare_exec);
	programs_select(attach);
	err = alloc_bpf__load(attach->skeleton);
	if (err) {
		err = error_set(err, "the kernel refused the BPF programs (%s; -v shows its words)",
				strerror(-err));
		goto fail;
	}
	err = stream_open(&attach->stream, bpf_map__fd(attach->skeleton->maps.events),
			  bpf_map__fd(attach->skeleton->maps.loss), opts->record, opts->context);
	if (err)
		goto fail;
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
	links_free(&attach->links);
}

void attach_free(struct attach *attach)
{
	if (!attach)
		return;
	attach_detach(attach);
	stream_close(attach->stream);
	alloc_bpf__destroy(attach->skeleton);
	free(attach);
}

/* The programs have copies of the targets that they know. */
static void targets_changed(struct attach *attach)
{
	__atomic_add_fetch(&attach->skeleton->data->targets_version, 1, __ATOMIC_SEQ_CST);
}

int attach_target(struct attach *attach, uint32_t tgid, const struct abi_target *target)
{
	if (bpf_map_update_elem(bpf_map__fd(attach->skeleton->maps.targets), &tgid, target, BPF_ANY))
		return error_set(-errno, "the table of targets is full");
	targets_changed(attach);
	return 0;
}

void attach_forget(struct attach *attach, uint32_t tgid)
{
	bpf_map_delete_elem(bpf_map__fd(attach->skeleton->maps.targets), &tgid);
	targets_changed(attach);
}

/* Which sites a program serves. */
typedef int (*site_filter_fn)(const struct plan_site *site);

static int site_is_native(const struct plan_site *site)
{
	return (site->cookie >> 8 & 0xff) == EVENT_API_NATIVE;
}

static int site_is_native_request(const struct plan_site *site)
{
	return site_is_native(site) && site->with_return;
}

static int site_is_native_once(const struct plan_site *site)
{
	return site_is_native(site) && !site->with_return;
}

static int site_is_mapping(const struct plan_site *site)
{
	return site->op >= ABI_OP_MMAP && site->op <= ABI_OP_BRK;
}

static int site_is_request(const struct plan_site *site)
{
	return !site_is_native(site) && site->with_return;
}

static int site_is_reuse(const struct plan_site *site)
{
	return site->op == ABI_OP_REUSE;
}

static int site_is_once(const struct plan_site *site)
{
	return !site_is_native(site) && (site->op == ABI_OP_FREE || site->op == ABI_OP_POOL_FREE ||
					 site->op == ABI_OP_TRACK || site->op == ABI_OP_UNTRACK);
}

static int site_is_finalize(const struct plan_site *site)
{
	return site->op == ABI_OP_FINALIZE;
}

static int site_is_inline(const struct plan_site *site)
{
	return !site->with_return && !site_is_native(site) && !site_is_once(site) && !site_is_reuse(site) &&
	       !site_is_mapping(site) && !site_is_finalize(site);
}

/* Attaches program, or the empty one of its kind, to the plan's sites that filter selects. */
static int program_attach(struct attach *attach, const struct bpf_program *program, const struct plan *plan,
			  site_filter_fn filter, const char *path, pid_t pid, enum links_kind kind)
{
	uint64_t *offsets = calloc(plan->count + 1, sizeof(*offsets));
	uint64_t *cookies = calloc(plan->count + 1, sizeof(*cookies));
	size_t count = 0;
	int err = -ENOMEM;

	if (!offsets || !cookies)
		goto out;
	if (attach->empty)
		program = kind == LINKS_BOTH ? attach->skeleton->progs.empty_session
					     : attach->skeleton->progs.empty;
	for (size_t i = 0; i < plan->count; i++) {
		if (!filter(&plan->sites[i]))
			continue;
		offsets[count] = plan->sites[i].offset;
		cookies[count++] = plan->sites[i].cookie;
	}
	err = links_add(&attach->links, program, kind, path, pid, offsets, cookies, count);
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
	const struct {
		const struct bpf_program *program;
		site_filter_fn filter;
		enum links_kind kind;
		enum { ALWAYS, WITH_SESSION, WITHOUT_SESSION } when;
	} steps[] = {
		{skeleton->progs.request_once, site_is_once, LINKS_ENTRY, ALWAYS},
		{skeleton->progs.native_once, site_is_native_once, LINKS_ENTRY, ALWAYS},
		{skeleton->progs.mapping, site_is_mapping, LINKS_ENTRY, ALWAYS},
		{skeleton->progs.finalize, site_is_finalize, LINKS_ENTRY, ALWAYS},
		{skeleton->progs.object_begin, site_is_reuse, LINKS_ENTRY, ALWAYS},
		{skeleton->progs.inline_site, site_is_inline, LINKS_ENTRY, ALWAYS},
		{skeleton->progs.request_session, site_is_request, LINKS_BOTH, WITH_SESSION},
		{skeleton->progs.request_return, site_is_request, LINKS_RETURN, WITHOUT_SESSION},
		{skeleton->progs.request_entry, site_is_request, LINKS_ENTRY, WITHOUT_SESSION},
		{skeleton->progs.native_session, site_is_native_request, LINKS_BOTH, WITH_SESSION},
		{skeleton->progs.native_return, site_is_native_request, LINKS_RETURN, WITHOUT_SESSION},
		{skeleton->progs.native_entry, site_is_native_request, LINKS_ENTRY, WITHOUT_SESSION},
	};
	int unfit = attach->links.backend == LINKS_SESSION ? WITHOUT_SESSION : WITH_SESSION;

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if ((int)steps[i].when == unfit)
			continue;
		err = program_attach(attach, steps[i].program, plan, steps[i].filter, path, pid,
				     steps[i].kind);
		if (err)
			return err;
	}
	return 0;
}

int attach_detaches_slowly(const struct attach *attach)
{
	return attach->links.perf_count > 32;
}

const char *attach_backend(const struct attach *attach)
{
	switch (attach->links.backend) {
	case LINKS_SESSION:
		return "uprobe_multi session links";
	case LINKS_MULTI:
		return "uprobe_multi links";
	default:
		return "perf-event uprobes";
	}
}

int attach_drain(struct attach *attach, size_t limit)
{
	return stream_drain(attach->stream, limit);
}

int attach_loss(struct attach *attach, __u64 counts[LOSS_COUNT])
{
	return stream_loss(attach->stream, counts);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/perfmap_attach.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>

#include "attach/links/link_keeper.h"
#include "attach/perfmap.skel.h"
#include "util/error.h"

struct perfmap_attach {
	struct perfmap_bpf *skeleton;
	struct links links;
	struct stream *stream;
	struct bpf_program *returning; /* that of functions with a return */
};

static enum links_kind return_kind(const struct perfmap_attach *attach)
{
	return attach->links.backend == LINKS_SESSION ? LINKS_BOTH : LINKS_RETURN;
}

static int tracepoints_attach(struct perfmap_bpf *skeleton)
{
	skeleton->links.process_exit = bpf_program__attach(skeleton->progs.process_exit);
	skeleton->links.process_exec = bpf_program__attach(skeleton->progs.process_exec);
	skeleton->links.process_fork = bpf_program__attach(skeleton->progs.process_fork);
	if (!skeleton->links.process_exit || !skeleton->links.process_exec ||
	    !skeleton->links.process_fork)
		return error_set(-errno, "cannot attach to the scheduler's tracepoints");
	return 0;
}

int perfmap_attach_new(struct perfmap_attach **out, const struct features *features,
		       const struct perfmap_attach_opts *opts)
{
	struct perfmap_attach *attach = calloc(1, sizeof(*attach));
	int err, session;

	if (!attach)
		return -ENOMEM;
	attach->links.backend = links_choose(features, 0, 0);
	session = attach->links.backend == LINKS_SESSION;
	links_silence_libbpf();
	err = link_keeper_new(&attach->links.holder);
	if (err)
		goto fail;
	attach->skeleton = perfmap_bpf__open();
	if (!attach->skeleton) {
		err = error_set(-errno, "the BPF object cannot be opened");
		goto fail;
	}
	links_prepare(&attach->links, attach->skeleton->progs.map_call, LINKS_ENTRY);
	attach->returning =
		session ? attach->skeleton->progs.map_session : attach->skeleton->progs.map_return;
	links_prepare(&attach->links, attach->returning, return_kind(attach));
	bpf_program__set_autoload(attach->skeleton->progs.map_session, session);
	bpf_program__set_autoload(attach->skeleton->progs.map_return, !session);
	attach->skeleton->rodata->returns_by_call = features->returns_by_call;
	err = stream_open(&attach->stream, attach->skeleton->skeleton, opts->ring_bytes,
			  opts->record, NULL, opts->context)
		      ?: tracepoints_attach(attach->skeleton);
	if (err)
		goto fail;
	*out = attach;
	return 0;
fail:
	perfmap_attach_free(attach);
	return err < 0 ? err : -EINVAL;
}

void perfmap_attach_free(struct perfmap_attach *attach)
{
	if (!attach)
		return;
	free(attach->links.groups);
	link_keeper_free(attach->links.holder, LINKS_END_MS);
	stream_close(attach->stream);
	perfmap_bpf__destroy(attach->skeleton);
	free(attach);
}

int perfmap_attach_target(struct perfmap_attach *attach, uint32_t tgid)
{
	uint32_t one = 1;

	if (bpf_map_update_elem(bpf_map__fd(attach->skeleton->maps.targets), &tgid, &one, BPF_ANY))
		return error_set(-errno, "the table of targets is full");
	return 0;
}

int perfmap_attach_sites(struct perfmap_attach *attach, const struct plan *plan,
			 const struct elf_file *file, int no_returns)
{
	uint64_t *offsets = calloc(2 * plan->count + 1, 2 * sizeof(*offsets)), *cookies;
	size_t calls = 0, returns = 0;

	if (!offsets)
		return -ENOMEM;
	cookies = offsets + 2 * plan->count + 1;
	for (size_t i = 0; i < plan->count; i++) {
		/* Sites with a return are stored from the end. */
		size_t at = plan->sites[i].with_return ? 2 * plan->count - ++returns : calls++;

		offsets[at] = plan->sites[i].offset;
		cookies[at] = plan->sites[i].cookie;
	}
	int err = links_add(
		&attach->links, attach->skeleton->progs.map_call, LINKS_ENTRY, elf_file_fd(file),
		-1, &(struct links_sites){.offsets = offsets, .cookies = cookies, .count = calls});
	if (!err && !no_returns)
		err = links_add(
			&attach->links, attach->returning, return_kind(attach), elf_file_fd(file),
			-1,
			&(struct links_sites){.offsets = offsets + 2 * plan->count - returns,
					      .cookies = cookies + 2 * plan->count - returns,
					      .count = returns});
	free(offsets);
	return err;
}

int perfmap_attach_chooses_returns(const struct perfmap_attach *attach)
{
	return attach->links.backend == LINKS_SESSION;
}

int perfmap_attach_check(const struct perfmap_attach *attach)
{
	return link_keeper_check(attach->links.holder);
}

struct stream *perfmap_attach_stream(struct perfmap_attach *attach)
{
	return attach->stream;
}

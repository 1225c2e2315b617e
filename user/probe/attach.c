/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/attach_state.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/hash.h"
#include "probe/stream.h"

static void programs_select(struct attach *attach, int counting)
{
	struct alloc_bpf *skeleton = attach->skeleton;
	const struct links backend = {.backend = attach->backend};
	int session = attach->backend == LINKS_SESSION, empty = attach->empty;
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
		{skeleton->progs.empty, empty || counting, LINKS_ENTRY},
	};

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		bpf_program__set_autoload(programs[i].program, programs[i].wanted);
		if (programs[i].wanted)
			links_prepare(&backend, programs[i].program, programs[i].kind);
	}
}

/* Exit, exec and fork are watched from before the first probe, so that no ending is missed. */
static int life_watch(struct attach *attach, const struct features *features)
{
	struct alloc_bpf *skeleton = attach->skeleton;
	const struct {
		const struct bpf_program *program;
		struct bpf_link **link;
		int wanted;
	} programs[] = {
		{skeleton->progs.process_exit, &skeleton->links.process_exit, 1},
		{skeleton->progs.process_exec, &skeleton->links.process_exec, 1},
		{skeleton->progs.process_fork, &skeleton->links.process_fork, 1},
		{skeleton->progs.process_exec_begin, &skeleton->links.process_exec_begin,
		 features->prepare_exec},
	};

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		if (!programs[i].wanted)
			continue;
		*programs[i].link = bpf_program__attach(programs[i].program);
		if (!*programs[i].link)
			return error_set(-errno, "%s cannot be attached to",
					 bpf_program__section_name(programs[i].program));
	}
	return 0;
}

int attach_new(struct attach **out, const struct features *features, const struct attach_opts *opts)
{
	struct attach *attach = calloc(1, sizeof(*attach));
	int err;

	if (!attach)
		return -ENOMEM;
	attach->empty = opts->empty;
	links_closer_begin(&attach->closer);
	attach->backend = links_choose(features, opts->no_session, opts->no_multi);
	links_silence_libbpf();
	attach->skeleton = alloc_bpf__open();
	if (!attach->skeleton) {
		err = error_set(-errno, "the BPF object cannot be opened");
		goto fail;
	}
	if (opts->ring_bytes)
		bpf_map__set_max_entries(attach->skeleton->maps.events, opts->ring_bytes);
	attach->skeleton->rodata->has_loop = features->bpf_loop;
	attach->skeleton->rodata->watch = opts->watch;
	attach->skeleton->rodata->own_tgid = getpid();
	attach->skeleton->rodata->sampling = opts->sampling;
	attach->skeleton->rodata->counting = opts->counting;
	if (!opts->sampling)
		bpf_map__set_max_entries(attach->skeleton->maps.sampled, 1);
	bpf_program__set_autoload(attach->skeleton->progs.process_exec_begin, features->prepare_exec);
	programs_select(attach, opts->counting);
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
	err = life_watch(attach, features);
	if (err)
		goto fail;
	*out = attach;
	return 0;
fail:
	attach_free(attach);
	return err < 0 ? err : -EINVAL;
}

void attach_detach(struct attach *attach)
{
	for (size_t i = 0; i < attach->placed_count; i++)
		links_free(&attach->placed[i].links);
	attach->placed_count = 0;
}

void attach_release(struct attach *attach, pid_t pid)
{
	attach_drop(attach, pid, ATTACH_ALL, 0);
}

void attach_drop(struct attach *attach, pid_t pid, unsigned int groups, int wait)
{
	size_t kept = 0;

	for (size_t i = 0; i < attach->placed_count; i++) {
		struct placed *placed = &attach->placed[i];

		if (placed->pid != pid || !(placed->group & groups))
			attach->placed[kept++] = *placed;
		else if (!wait || attach->backend == LINKS_PERF)
			links_closer_take(&attach->closer, &placed->links);
		else
			links_free(&placed->links);
	}
	attach->placed_count = kept;
}

void attach_free(struct attach *attach)
{
	if (!attach)
		return;
	attach_detach(attach);
	links_closer_end(&attach->closer);
	free(attach->placed);
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

int attach_is_target(const struct attach *attach, uint32_t tgid)
{
	struct abi_target target;

	return !bpf_map_lookup_elem(bpf_map__fd(attach->skeleton->maps.targets), &tgid, &target);
}

int attach_follow(struct attach *attach, uint32_t tgid)
{
	uint32_t one = 1;

	return bpf_map_update_elem(bpf_map__fd(attach->skeleton->maps.followed), &tgid, &one, BPF_ANY)
		       ? -errno
		       : 0;
}

void attach_forget(struct attach *attach, uint32_t tgid)
{
	bpf_map_delete_elem(bpf_map__fd(attach->skeleton->maps.targets), &tgid);
	targets_changed(attach);
}

static unsigned int site_group(const struct plan_site *site)
{
	return site->op == ABI_OP_FINALIZE    ? ATTACH_LAST
	       : plan_site_is_pool_free(site) ? ATTACH_POOL_FREES
					      : ATTACH_OTHERS;
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
static int program_attach(struct attach *attach, struct placed *placed, const struct bpf_program *program,
			  const struct plan *plan, site_filter_fn filter, const char *path,
			  enum links_kind kind)
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
		if (!filter(&plan->sites[i]) || site_group(&plan->sites[i]) != placed->group)
			continue;
		offsets[count] = plan->sites[i].offset;
		cookies[count++] = plan->sites[i].cookie;
	}
	err = links_add(&placed->links, program, kind, path, placed->pid, offsets, cookies, count);
out:
	free(offsets);
	free(cookies);
	return err;
}

static int programs_attach(struct attach *attach, struct placed *placed, const struct plan *plan,
			   const struct elf_file *file)
{
	const struct alloc_bpf *skeleton = attach->skeleton;
	const int session = attach->backend == LINKS_SESSION;
	/* Frees first: a block whose free is seen and whose birth is not does no harm, the reverse does. */
	const struct {
		const struct bpf_program *program;
		site_filter_fn filter;
		enum links_kind kind;
		int wanted;
	} programs[] = {
		{skeleton->progs.request_once, site_is_once, LINKS_ENTRY, 1},
		{skeleton->progs.native_once, site_is_native_once, LINKS_ENTRY, 1},
		{skeleton->progs.mapping, site_is_mapping, LINKS_ENTRY, 1},
		{skeleton->progs.finalize, site_is_finalize, LINKS_ENTRY, 1},
		{skeleton->progs.object_begin, site_is_reuse, LINKS_ENTRY, 1},
		{skeleton->progs.inline_site, site_is_inline, LINKS_ENTRY, 1},
		{skeleton->progs.request_session, site_is_request, LINKS_BOTH, session},
		{skeleton->progs.request_return, site_is_request, LINKS_RETURN, !session},
		{skeleton->progs.request_entry, site_is_request, LINKS_ENTRY, !session},
		{skeleton->progs.native_session, site_is_native_request, LINKS_BOTH, session},
		{skeleton->progs.native_return, site_is_native_request, LINKS_RETURN, !session},
		{skeleton->progs.native_entry, site_is_native_request, LINKS_ENTRY, !session},
	};
	char path[32];
	int err = 0;

	/* The very inode that the target has mapped, whatever its name says by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", elf_file_fd(file));
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]) && !err; i++)
		if (programs[i].wanted)
			err = program_attach(attach, placed, programs[i].program, plan, programs[i].filter,
					     path, programs[i].kind);
	return err;
}

/* 0: there is none of the group. */
static uint64_t sites_hash(const struct plan *plan, unsigned int group)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < plan->count; i++)
		if (site_group(&plan->sites[i]) == group)
			hash = (hash_u64(hash ^ plan->sites[i].offset) ^ plan->sites[i].cookie) | 1;
	return hash;
}

static int is_placed(const struct attach *attach, const struct placed *placed)
{
	for (size_t i = 0; i < attach->placed_count; i++) {
		const struct placed *other = &attach->placed[i];

		if (other->device == placed->device && other->inode == placed->inode &&
		    other->pid == placed->pid && other->group == placed->group &&
		    other->sites == placed->sites)
			return 1;
	}
	return 0;
}

/* Takes the links over, also after an error. */
static int placed_add(struct attach *attach, struct placed *placed)
{
	int err = array_reserve(&attach->placed, &attach->placed_room, attach->placed_count, 1,
				sizeof(*attach->placed));

	if (err)
		links_free(&placed->links);
	else
		attach->placed[attach->placed_count++] = *placed;
	return err;
}

static int group_attach(struct attach *attach, const struct plan *plan, const struct elf_file *file,
			struct placed *placed)
{
	int err, failed;

	placed->sites = sites_hash(plan, placed->group);
	placed->links = (struct links){.backend = attach->backend};
	if (!placed->sites || is_placed(attach, placed))
		return 0;
	err = programs_attach(attach, placed, plan, file);
	failed = placed_add(attach, placed);
	return err ? err : failed;
}

int attach_groups(struct attach *attach, const struct plan *plan, const struct elf_file *file, pid_t pid,
		  unsigned int groups)
{
	struct placed placed = {.pid = pid};
	struct stat st;
	int err = 0;

	if (fstat(elf_file_fd(file), &st))
		return -errno;
	placed.device = st.st_dev;
	placed.inode = st.st_ino;
	for (placed.group = 1; !err && placed.group <= groups; placed.group <<= 1)
		if (placed.group & groups)
			err = group_attach(attach, plan, file, &placed);
	return err;
}

int attach_sites(struct attach *attach, const struct plan *plan, const struct elf_file *file, pid_t pid)
{
	return attach_groups(attach, plan, file, pid, ATTACH_ALL);
}

int attach_empty(struct attach *attach, const char *path, uint64_t offset, pid_t pid)
{
	struct placed placed = {.pid = pid, .group = ATTACH_OTHERS, .links = {.backend = attach->backend}};
	const uint64_t cookie = 0;
	int err = links_add(&placed.links, attach->skeleton->progs.empty, LINKS_ENTRY, path, pid, &offset,
			    &cookie, 1);
	int failed = placed_add(attach, &placed);

	return err ? err : failed;
}

int attach_is_everywhere(const struct attach *attach, const struct elf_file *file)
{
	struct stat st;

	if (fstat(elf_file_fd(file), &st))
		return 0;
	for (size_t i = 0; i < attach->placed_count; i++)
		if (attach->placed[i].pid < 0 && attach->placed[i].inode == st.st_ino &&
		    attach->placed[i].device == st.st_dev)
			return 1;
	return 0;
}

int attach_detaches_slowly(const struct attach *attach)
{
	size_t count = 0;

	for (size_t i = 0; i < attach->placed_count; i++)
		count += attach->placed[i].links.perf_count;
	return count > 32;
}

const char *attach_backend(const struct attach *attach)
{
	switch (attach->backend) {
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

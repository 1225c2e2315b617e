/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/attach_state.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "attach/stream.h"
#include "util/array.h"
#include "util/error.h"
#include "util/page.h"

#define THREADS_WITHOUT_STORAGE 4096u /* concurrent threads: 64 MiB of kernel memory */

static void programs_select(struct attach *attach, const struct attach_opts *opts)
{
	struct alloc_bpf *skeleton = attach->skeleton;
	const struct links backend = {.backend = attach->backend};
	int session = attach->backend == LINKS_SESSION, empty = attach->empty;
	int native = !empty && skeleton->rodata->has_native, python = !empty && !opts->no_python;
	const struct program {
		struct bpf_program *program;
		int wanted;
		enum links_kind kind;
	} programs[] = {
		{skeleton->progs.request_session, session && python, LINKS_BOTH},
		{skeleton->progs.request_entry, !session && python, LINKS_ENTRY},
		{skeleton->progs.request_return, !session && python, LINKS_RETURN},
		{skeleton->progs.python_site, python, LINKS_ENTRY},
		{skeleton->progs.native_session, session && native, LINKS_BOTH},
		{skeleton->progs.native_entry, !session && native, LINKS_ENTRY},
		{skeleton->progs.native_return, !session && native, LINKS_RETURN},
		{skeleton->progs.native_once, native, LINKS_ENTRY},
		{skeleton->progs.provider, native, LINKS_ENTRY},
		{skeleton->progs.mapping, !empty, LINKS_ENTRY},
		{skeleton->progs.walk, !empty, LINKS_ENTRY},
		{skeleton->progs.walk_session, session && native, LINKS_BOTH},
		{skeleton->progs.finalize, python, LINKS_ENTRY},
		{skeleton->progs.empty_session, session && empty, LINKS_BOTH},
		{skeleton->progs.empty, empty || opts->counting, LINKS_ENTRY},
	};

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		bpf_program__set_autoload(programs[i].program, programs[i].wanted);
		if (programs[i].wanted)
			links_prepare(&backend, programs[i].program, programs[i].kind);
	}
}

/* Lets the programs of native probes continue with the walk. 0, -errno. */
static int walk_link(struct attach *attach)
{
	const struct alloc_bpf *skeleton = attach->skeleton;
	const struct {
		const struct bpf_map *map;
		const struct bpf_program *program;
	} walks[] = {
		{skeleton->maps.walks, skeleton->progs.walk},
		{skeleton->maps.session_walks, skeleton->progs.walk_session},
	};

	for (size_t i = 0; i < ARRAY_SIZE(walks); i++) {
		int key = 0, program = bpf_program__fd(walks[i].program);

		if (bpf_program__autoload(walks[i].program) &&
		    bpf_map_update_elem(bpf_map__fd(walks[i].map), &key, &program, BPF_ANY))
			return error_set(-errno, "the kernel does not let a program continue with "
						 "another one");
	}
	return 0;
}

/* The memory of unwind tables is needed only where they are used. */
static void tables_omit(struct attach *attach)
{
	struct bpf_map *maps[] = {
		attach->skeleton->maps.unwind_files, attach->skeleton->maps.unwind_tables,
		attach->skeleton->maps.unwind_rows,  attach->skeleton->maps.unwind_pages,
		attach->skeleton->maps.unwind_rules,
	};

	for (size_t i = 0; i < ARRAY_SIZE(maps); i++)
		bpf_map__set_max_entries(maps[i], 1);
}

/*
 * Attaches to exit, exec and fork before the first probe is placed, so that no end of a process is
 * missed.
 */
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

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		if (!programs[i].wanted)
			continue;
		*programs[i].link = bpf_program__attach(programs[i].program);
		if (!*programs[i].link)
			return error_set(-errno, "cannot attach to %s",
					 bpf_program__section_name(programs[i].program));
	}
	return 0;
}

/* Where the state of threads is: in task storage, or in hashes. */
static void states_place(struct attach *attach, const struct features *features)
{
	struct bpf_map *const hashes[] = {
		attach->skeleton->maps.threads_by_tid,
		attach->skeleton->maps.codes_by_tid,
		attach->skeleton->maps.heap_walks_by_tid,
		attach->skeleton->maps.unwinds_by_tid,
	};

	attach->skeleton->rodata->task_state_flags =
		features->task_storage_found ? 0 : TASK_STATE_NONE;
	if (features->task_storage_holds && features->task_storage_found)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(hashes); i++)
		bpf_map__set_max_entries(hashes[i], THREADS_WITHOUT_STORAGE);
}

int attach_new(struct attach **out, const struct features *features, const struct attach_opts *opts)
{
	struct attach *attach = calloc(1, sizeof(*attach));
	int err;

	if (!attach)
		return -ENOMEM;
	attach->empty = opts->empty;
	attach->backend = links_choose(features, opts->no_session, opts->no_multi);
	links_silence_libbpf();
	err = links_holder_new(&attach->holder);
	if (err)
		goto fail;
	attach->skeleton = alloc_bpf__open();
	if (!attach->skeleton) {
		err = error_set(-errno, "the BPF object cannot be opened");
		goto fail;
	}
	attach->skeleton->rodata->has_loop = features->bpf_loop;
	attach->skeleton->rodata->has_native = !opts->no_native && !opts->empty;
	attach->skeleton->rodata->has_tasks = opts->tasks;
	attach->skeleton->rodata->returns_by_call = features->returns_by_call;
	if (!attach->skeleton->rodata->has_native || !features->bpf_loop)
		tables_omit(attach);
	attach->skeleton->rodata->watch = opts->watch;
	attach->skeleton->rodata->own_tgid = getpid();
	attach->skeleton->rodata->page_bytes = page_bytes();
	attach->skeleton->rodata->sampling = opts->sampling;
	if (opts->execd)
		attach->skeleton->bss->execd = *opts->execd;
	states_place(attach, features);
	if (!opts->sampling)
		bpf_map__set_max_entries(attach->skeleton->maps.sampled, 1);
	bpf_program__set_autoload(attach->skeleton->progs.process_exec_begin,
				  features->prepare_exec);
	programs_select(attach, opts);
	bpf_program__set_autoload(attach->skeleton->progs.task_look, features->returns_by_call);
	err = stream_open(&attach->stream, attach->skeleton->skeleton, opts->ring_bytes,
			  opts->record, opts->meanwhile, opts->context);
	if (err)
		goto fail;
	err = walk_link(attach) ?: life_watch(attach, features);
	if (err)
		goto fail;
	*out = attach;
	return 0;
fail:
	attach_free(attach);
	return err < 0 ? err : -EINVAL;
}

void attach_free(struct attach *attach)
{
	if (!attach)
		return;
	attach_detach(attach);
	free(attach->placed);
	free(attach->usdt);
	stream_close(attach->stream);
	attach_unwind_unshare(attach);
	alloc_bpf__destroy(attach->skeleton);
	free(attach);
}

int attach_is_target(const struct attach *attach, uint32_t tgid, uint32_t space_id)
{
	struct abi_target target;

	return !bpf_map_lookup_elem(bpf_map__fd(attach->skeleton->maps.targets), &tgid, &target) &&
	       target.space_id == space_id;
}

int attach_target(struct attach *attach, uint32_t tgid, const struct abi_target *target)
{
	int map = bpf_map__fd(attach->skeleton->maps.targets);
	int known = attach_is_target(attach, tgid, target->space_id);

	if (bpf_map_update_elem(map, &tgid, target, known ? BPF_EXIST : BPF_NOEXIST))
		return errno == EEXIST || errno == ENOENT
			       ? error_set(-ESRCH, "it has exec'd another program meanwhile")
			       : error_set(-errno, "the table of targets is full");
	attach_renew(attach);
	return 0;
}

int attach_follow(struct attach *attach, uint32_t tgid)
{
	uint32_t one = 1;

	return bpf_map_update_elem(bpf_map__fd(attach->skeleton->maps.followed), &tgid, &one,
				   BPF_ANY)
		       ? -errno
		       : 0;
}

void attach_forget(struct attach *attach, uint32_t tgid, uint32_t space_id)
{
	int map = bpf_map__fd(attach->skeleton->maps.targets);
	struct abi_target target;

	if (!attach_is_target(attach, tgid, space_id))
		return;
	/* The process may have exec'd since the check above: restore the new program's entry. */
	if (!bpf_map_lookup_and_delete_elem(map, &tgid, &target) && target.space_id != space_id)
		bpf_map_update_elem(map, &tgid, &target, BPF_NOEXIST);
	attach_renew(attach);
}

size_t attach_links_count(const struct attach *attach)
{
	size_t count = 0;

	for (size_t i = 0; i < attach->placed_count; i++)
		count += attach->placed[i].links.count;
	return count;
}

int attach_is_by_events(const struct attach *attach)
{
	return attach->backend == LINKS_PERF;
}

size_t attach_probes_left(const struct attach *attach)
{
	const struct links links = {.backend = attach->backend, .holder = attach->holder};

	return links_probes_left(&links);
}

pid_t attach_holder(const struct attach *attach)
{
	return links_holder_pid(attach->holder);
}

int attach_check(const struct attach *attach)
{
	return attach->holder ? links_holder_check(attach->holder) : 0;
}

int attach_confine(struct attach *attach, int attaches)
{
	return attach->holder ? links_holder_confine(attach->holder, attaches) : 0;
}

int attach_sweep(struct attach *attach, const char *path)
{
	return attach->holder ? links_holder_sweep(attach->holder, path) : 0;
}

int attach_detaches_slowly(const struct attach *attach)
{
	return attach_links_count(attach) > 32;
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

int attach_barred_threads(struct attach *attach, uint32_t *tgid)
{
	struct alloc_bpf *skeleton = attach->skeleton;
	int fd, err = 0;
	char none;

	if (!skeleton->rodata->returns_by_call)
		return 0;
	struct bpf_link *link = bpf_program__attach_iter(skeleton->progs.task_look, NULL);
	if (!link)
		return -errno;
	skeleton->bss->barred.tgid = *tgid;
	skeleton->bss->barred.count = 0;
	fd = bpf_iter_create(bpf_link__fd(link));
	/* The program runs for all threads, and prints nothing. */
	if (fd < 0 || read(fd, &none, 1) < 0)
		err = -errno;
	if (fd >= 0)
		close(fd);
	bpf_link__destroy(link);
	*tgid = skeleton->bss->barred.found;
	return err ?: (int)skeleton->bss->barred.count;
}

int attach_drain(struct attach *attach, size_t limit)
{
	return stream_drain(attach->stream, limit);
}

int attach_loss(struct attach *attach, __u64 counts[LOSS_COUNT])
{
	return stream_loss(attach->stream, counts);
}

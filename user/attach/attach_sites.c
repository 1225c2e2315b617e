/* SPDX-License-Identifier: Apache-2.0 */
/* Places a plan's probes, each with the program for its site, and removes them. */
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attach/attach_state.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/page.h"
#include "util/regular.h"
#include "util/sorted.h"

/* Selects the sites that a program serves. */
typedef int (*site_filter_fn)(const struct plan_site *site);

static int site_is_usdt(const struct plan_site *site)
{
	return site->op == ABI_OP_SAMPLED_ALLOC || site->op == ABI_OP_SAMPLED_FREE;
}

/* Of either kind: malloc's, or a USDT probe. */
static int site_is_of_native_layer(const struct plan_site *site)
{
	return (site->cookie >> 8 & 0xff) == EVENT_API_NATIVE;
}

static int site_is_native(const struct plan_site *site)
{
	return site_is_of_native_layer(site) && !site_is_usdt(site);
}

static unsigned int site_group(const struct plan_site *site)
{
	return site->op == ABI_OP_FINALIZE || site->op == ABI_OP_RENAME ? ATTACH_LAST
	       : plan_site_is_pool_free(site)                           ? ATTACH_POOL_FREES
	       : site_is_native(site)                                   ? ATTACH_MALLOC
	       : plan_site_is_pooled(site)                              ? ATTACH_POOLED
	       : plan_site_is_new_pool(site)                            ? ATTACH_NEW_POOLS
	       : plan_site_is_passed_on(site)                           ? ATTACH_PASSED_ON
									: ATTACH_OTHERS;
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
	return !site_is_of_native_layer(site) && site->with_return;
}

static int site_is_reuse(const struct plan_site *site)
{
	return site->op == ABI_OP_REUSE;
}

static int site_is_once(const struct plan_site *site)
{
	return !site_is_of_native_layer(site) &&
	       (site->op == ABI_OP_FREE || site->op == ABI_OP_POOL_FREE ||
		site->op == ABI_OP_TRACK || site->op == ABI_OP_UNTRACK ||
		site->op == ABI_OP_RENAME);
}

static int site_is_finalize(const struct plan_site *site)
{
	return site->op == ABI_OP_FINALIZE;
}

static int site_is_inline(const struct plan_site *site)
{
	return !site->with_return && !site_is_of_native_layer(site) && !site_is_once(site) &&
	       !site_is_reuse(site) && !site_is_mapping(site) && !site_is_finalize(site);
}

/* Stores a site's place. 0, -errno. */
static int site_store(struct attach *attach, const struct plan_site *site, uint64_t *arrays,
		      size_t stride, size_t at)
{
	uint32_t index = 0;
	int err = site_is_usdt(site) ? attach_usdt_index(attach, &site->usdt, &index) : 0;

	arrays[at] = site->offset;
	arrays[stride + at] = site->cookie | (uint64_t)index << 16;
	arrays[2 * stride + at] = site->semaphore;
	return err;
}

/* Attaches program, or the empty one of its kind, to the plan's sites that filter selects. */
static int program_attach(struct attach *attach, struct placed *placed,
			  const struct bpf_program *program, const struct plan *plan,
			  site_filter_fn filter, int file, enum links_kind kind)
{
	size_t stride = plan->count + 1;
	_cleanup_free_ uint64_t *arrays = calloc(stride, 3 * sizeof(*arrays));
	struct links_sites sites = {.offsets = arrays, .cookies = arrays + stride};
	int err = arrays ? 0 : -ENOMEM;

	if (attach->empty)
		program = kind == LINKS_BOTH ? attach->skeleton->progs.empty_session
					     : attach->skeleton->progs.empty;
	for (size_t i = 0; i < plan->count && !err; i++) {
		if (!filter(&plan->sites[i]) || site_group(&plan->sites[i]) != placed->group)
			continue;
		err = site_store(attach, &plan->sites[i], arrays, stride, sites.count++);
		if (plan->sites[i].semaphore)
			sites.semaphores = arrays + 2 * stride;
	}
	if (!err)
		err = links_add(&placed->links, program, kind, file, placed->pid, &sites);
	return err;
}

static int programs_attach(struct attach *attach, struct placed *placed, const struct plan *plan,
			   const struct elf_file *file)
{
	const struct alloc_bpf *skeleton = attach->skeleton;
	const int session = attach->backend == LINKS_SESSION;
	/*
	 * Frees first: a traced free without a traced allocation is harmless, the reverse is not.
	 */
	const struct {
		const struct bpf_program *program;
		site_filter_fn filter;
		enum links_kind kind;
		int wanted;
	} programs[] = {
		{skeleton->progs.python_site, site_is_once, LINKS_ENTRY, 1},
		{skeleton->progs.native_once, site_is_native_once, LINKS_ENTRY, 1},
		{skeleton->progs.provider, site_is_usdt, LINKS_ENTRY, 1},
		{skeleton->progs.mapping, site_is_mapping, LINKS_ENTRY, 1},
		{skeleton->progs.finalize, site_is_finalize, LINKS_ENTRY, 1},
		{skeleton->progs.python_site, site_is_reuse, LINKS_ENTRY, 1},
		{skeleton->progs.python_site, site_is_inline, LINKS_ENTRY, 1},
		{skeleton->progs.request_session, site_is_request, LINKS_BOTH, session},
		{skeleton->progs.request_return, site_is_request, LINKS_RETURN, !session},
		{skeleton->progs.request_entry, site_is_request, LINKS_ENTRY, !session},
		{skeleton->progs.native_session, site_is_native_request, LINKS_BOTH, session},
		{skeleton->progs.native_return, site_is_native_request, LINKS_RETURN, !session},
		{skeleton->progs.native_entry, site_is_native_request, LINKS_ENTRY, !session},
	};
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(programs) && !err; i++)
		if (programs[i].wanted)
			err = program_attach(attach, placed, programs[i].program, plan,
					     programs[i].filter, elf_file_fd(file),
					     programs[i].kind);
	return err;
}

/* 0: the group has no sites. */
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

/* Takes ownership of the links, also on error. */
static int placed_add(struct attach *attach, struct placed *placed)
{
	int err = ARRAY_GROW(attach->placed, attach->placed_capacity, attach->placed_count);

	if (err)
		links_free(&placed->links, 0);
	else
		attach->placed[attach->placed_count++] = *placed;
	return err;
}

static int group_attach(struct attach *attach, const struct plan *plan, const struct elf_file *file,
			struct placed *placed)
{
	placed->sites = sites_hash(plan, placed->group);
	placed->links = (struct links){.backend = attach->backend, .holder = attach->holder};
	if (!placed->sites || is_placed(attach, placed))
		return 0;
	int err = programs_attach(attach, placed, plan, file);
	/*
	 * Until now some of the target's probes may have been missing: a code object could be
	 * created unseen.
	 */
	attach_renew(attach);
	int failed = placed_add(attach, placed);
	return err ?: failed;
}

int attach_groups(struct attach *attach, const struct plan *plan, const struct elf_file *file,
		  pid_t pid, unsigned int groups)
{
	struct placed placed = {.pid = pid};
	struct stat st;
	int err = 0;

	if (regular_stat(elf_file_fd(file), &st))
		return -errno;
	placed.device = st.st_dev;
	placed.inode = st.st_ino;
	for (placed.group = 1; !err && placed.group <= groups; placed.group <<= 1)
		if (placed.group & groups)
			err = group_attach(attach, plan, file, &placed);
	return err;
}

static size_t distinct_count(uint64_t *pages, size_t count)
{
	size_t distinct = 0;

	qsort(pages, count, sizeof(*pages), key_compare);
	for (size_t i = 0; i < count; i++)
		distinct += !i || pages[i] != pages[i - 1];
	return distinct;
}

size_t attach_pages(const struct attach *attach, const struct plan *plan,
		    const struct elf_file *file, pid_t pid, unsigned int groups)
{
	_cleanup_free_ uint64_t *pages = calloc(plan->count + 1, sizeof(*pages));
	struct placed placed = {.pid = pid};
	size_t count = 0;
	struct stat st;

	/* On failure return the upper bound: one page per site. */
	if (!pages || regular_stat(elf_file_fd(file), &st))
		return plan->count;
	placed.device = st.st_dev;
	placed.inode = st.st_ino;
	for (placed.group = 1; placed.group <= groups; placed.group <<= 1) {
		placed.sites = placed.group & groups ? sites_hash(plan, placed.group) : 0;
		if (!placed.sites || is_placed(attach, &placed))
			continue;
		for (size_t i = 0; i < plan->count; i++)
			if (site_group(&plan->sites[i]) == placed.group)
				pages[count++] = plan->sites[i].offset / page_bytes();
	}
	return distinct_count(pages, count);
}

int attach_sites(struct attach *attach, const struct plan *plan, const struct elf_file *file,
		 pid_t pid)
{
	return attach_groups(attach, plan, file, pid, ATTACH_ALL);
}

int attach_empty(struct attach *attach, const char *path, uint64_t offset, pid_t pid)
{
	struct placed placed = {.pid = pid,
				.group = ATTACH_OTHERS,
				.links = {.backend = attach->backend, .holder = attach->holder}};
	const uint64_t cookie = 0;
	int file = open(path, O_RDONLY | O_CLOEXEC), err, failed;

	if (file < 0)
		return error_set(-errno, "%s: %s", path, strerror(errno));
	err = links_add(&placed.links, attach->skeleton->progs.empty, LINKS_ENTRY, file, pid,
			&(struct links_sites){.offsets = &offset, .cookies = &cookie, .count = 1});
	close(file);
	failed = placed_add(attach, &placed);
	return err ?: failed;
}

int attach_is_everywhere(const struct attach *attach, const struct elf_file *file)
{
	struct stat st;

	if (regular_stat(elf_file_fd(file), &st))
		return 0;
	for (size_t i = 0; i < attach->placed_count; i++)
		if (attach->placed[i].pid < 0 && attach->placed[i].inode == st.st_ino &&
		    attach->placed[i].device == st.st_dev)
			return 1;
	return 0;
}

int attach_is_in_files(const struct attach *attach)
{
	for (size_t i = 0; i < attach->placed_count; i++)
		if (attach->placed[i].pid < 0)
			return 1;
	return 0;
}

int attach_detach(struct attach *attach)
{
	int wait_ms = attach_detaches_slowly(attach) ? 0 : LINKS_END_MS, ended;

	for (size_t i = 0; i < attach->placed_count; i++)
		free(attach->placed[i].links.groups);
	attach->placed_count = 0;
	/*
	 * The remaining probes do nothing any more. Wait for programs that still run, since their
	 * last records would come too late.
	 */
	ended = links_holder_free(attach->holder, wait_ms);
	if (!ended)
		syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
	attach->holder = NULL;
	return ended;
}

void attach_drop(struct attach *attach, pid_t pid, unsigned int groups, int wait)
{
	struct links gone = {.backend = attach->backend, .holder = attach->holder};
	size_t kept = 0;

	wait &= attach->backend != LINKS_PERF;
	for (size_t i = 0; i < attach->placed_count; i++) {
		struct placed *placed = &attach->placed[i];

		if (placed->pid != pid || !(placed->group & groups))
			attach->placed[kept++] = *placed;
		else if (links_move(&gone, &placed->links))
			links_free(&placed->links, wait);
	}
	attach->placed_count = kept;
	links_free(&gone, wait);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/attach.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/usdt.h"
#include "attach/alloc.skel.h"
#include "attach/links/link_keeper.h"
#include "attach/links/links.h"
#include "attach/stream.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/page.h"
#include "util/regular.h"
#include "util/sorted.h"

/* The definition of struct attach, shared by attach*.c only. */
/* The skeleton's variables use our types. */

/* The sites of one group of a plan in a file, placed in one process or (pid -1) in all. */
struct placed {
	dev_t device;
	ino_t inode;
	pid_t pid;
	unsigned int group; /* enum attach_group */
	uint64_t sites;     /* hash of the sites */
	struct links links;
};

struct attach {
	struct alloc_bpf *skeleton;
	struct stream *stream;
	enum links_backend backend;
	struct placed *placed;
	size_t placed_count, placed_capacity;
	struct link_keeper *holder; /* NULL: detached */
	struct bpf_link **faults;   /* one for each processor; NULL: page faults are not traced */
	size_t fault_count;
	int empty; /* as in struct attach_opts */
	/* what is in the map `usdt`; sets are never removed */
	struct abi_usdt *usdt;
	size_t usdt_count, usdt_capacity;
	struct unwind_areas unwind; /* NULL: not shared */
	size_t unwind_bytes[4];
	struct ring_buffer *unwind_wanted; /* NULL: not shared */
	void (*unwind_each)(void *context, const struct event_unwind_file *file);
	void *unwind_context; /* during attach_unwind_wanted() */
};

/* Invalidates what the programs cache about targets and their code objects. */
static inline void attach_renew(struct attach *attach)
{
	__atomic_add_fetch(&attach->skeleton->data->targets_version, 1, __ATOMIC_SEQ_CST);
}

/*
 * The cost of probes, as counted by the kernel and by our programs; and the map of sampled blocks.
 */

void attach_count(struct attach *attach, int on)
{
	__atomic_store_n(&attach->skeleton->bss->counting, (__u32)on, __ATOMIC_RELAXED);
}

int attach_hits(struct attach *attach, uint32_t tgid, uint64_t *hits)
{
	struct abi_target target;

	if (bpf_map_lookup_elem(bpf_map__fd(attach->skeleton->maps.targets), &tgid, &target))
		return error_errno();
	*hits = target.hits;
	return 0;
}

int attach_sampled(struct attach *attach, const struct sampled_key *keys, size_t count)
{
	const __u64 value = 1;

	for (size_t i = 0; i < count; i++)
		if (bpf_map_update_elem(bpf_map__fd(attach->skeleton->maps.sampled), &keys[i],
					&value, BPF_ANY))
			return error_errno();
	return 0;
}

int attach_stats(void)
{
	int fd = bpf_enable_stats(BPF_STATS_RUN_TIME);

	return fd < 0 ? error_set(-errno, "the kernel does not count the run time of BPF programs")
		      : fd;
}

int attach_run_time(struct attach *attach, uint64_t *run_ns, uint64_t *runs)
{
	struct bpf_program *program;

	*run_ns = *runs = 0;
	bpf_object__for_each_program(program, attach->skeleton->obj)
	{
		struct bpf_prog_info info = {0};
		__u32 size = sizeof(info);

		/* Skip tracepoints: they count the whole machine. */
		if (!bpf_program__autoload(program) ||
		    bpf_program__type(program) != BPF_PROG_TYPE_KPROBE)
			continue;
		if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size))
			return error_errno();
		*run_ns += info.run_time_ns;
		*runs += info.run_cnt;
	}
	return 0;
}

/*
 * The index of these arguments in the map `usdt`, to which they are added if they are new. 0;
 * -E2BIG: ABI_USDT_MAX are there (error_set); -errno.
 */
static int attach_usdt_index(struct attach *attach, const struct abi_usdt *arguments,
			     uint32_t *index)
{
	int map = bpf_map__fd(attach->skeleton->maps.usdt), err;

	for (*index = 0; *index < attach->usdt_count; (*index)++)
		if (!memcmp(&attach->usdt[*index], arguments, sizeof(*arguments)))
			return 0;
	if (*index == ABI_USDT_MAX)
		return error_set(-E2BIG,
				 "the USDT probes of all files have more than %u different "
				 "arguments",
				 ABI_USDT_MAX);
	err = ARRAY_GROW(attach->usdt, attach->usdt_capacity, attach->usdt_count);
	if (err)
		return err;
	if (bpf_map_update_elem(map, index, arguments, BPF_ANY))
		return error_errno();
	attach->usdt[attach->usdt_count++] = *arguments;
	return 0;
}

/* The maps of unwind tables (bpf/unwind/table.h), in this process's memory. */

/* 0, -errno. */
static int map_share(const struct bpf_map *map, void *out, size_t *bytes)
{
	*bytes = (size_t)bpf_map__max_entries(map) * bpf_map__value_size(map);
	void *area = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
	if (area == MAP_FAILED)
		return error_set(-errno, "the map %s cannot be shared: %s", bpf_map__name(map),
				 strerror(errno));
	memcpy(out, &area, sizeof(area));
	return 0;
}

static int wanted_take(void *context, void *record, size_t size)
{
	struct attach *attach = context;

	if (size >= sizeof(struct event_unwind_file))
		attach->unwind_each(attach->unwind_context, record);
	return 0;
}

int attach_unwind_fd(const struct attach *attach)
{
	return attach->unwind_wanted ? ring_buffer__epoll_fd(attach->unwind_wanted) : -1;
}

bool attach_unwind_is_wanted(const struct attach *attach)
{
	struct pollfd wanted = {.fd = attach_unwind_fd(attach), .events = POLLIN};

	return poll(&wanted, 1, 0) > 0;
}

void attach_unwind_wanted(struct attach *attach,
			  void (*each)(void *context, const struct event_unwind_file *file),
			  void *context)
{
	attach->unwind_each = each;
	attach->unwind_context = context;
	if (attach->unwind_wanted)
		ring_buffer__consume(attach->unwind_wanted);
}

int attach_unwind_areas(struct attach *attach, struct unwind_areas *out)
{
	struct alloc_bpf *skeleton = attach->skeleton;
	struct unwind_areas *areas = &attach->unwind;
	size_t *bytes = attach->unwind_bytes;

	if (!skeleton->rodata->has_loop || !skeleton->rodata->has_native)
		return -EOPNOTSUPP;
	int err = map_share(skeleton->maps.unwind_rows, &areas->rows, &bytes[0])
		  ?: map_share(skeleton->maps.unwind_pages, &areas->pages, &bytes[1])
		  ?: map_share(skeleton->maps.unwind_rules, &areas->rules, &bytes[2])
		  ?: map_share(skeleton->maps.unwind_tables, &areas->tables, &bytes[3]);
	if (!err) {
		attach->unwind_wanted = ring_buffer__new(bpf_map__fd(skeleton->maps.unwind_wanted),
							 wanted_take, attach, NULL);
		err = attach->unwind_wanted ? 0 : error_errno();
	}
	if (err)
		return err;
	areas->row_count = (uint32_t)(bytes[0] / sizeof(*areas->rows));
	areas->page_count = (uint32_t)(bytes[1] / sizeof(*areas->pages));
	areas->rule_count = (uint32_t)(bytes[2] / sizeof(*areas->rules));
	areas->table_count = (uint32_t)(bytes[3] / sizeof(*areas->tables));
	*out = *areas;
	return 0;
}

void attach_unwind_begin(struct attach *attach)
{
	attach->skeleton->bss->has_tables = 1;
}

/* Removes the maps of unwind tables from this process's memory. */
static void attach_unwind_unshare(struct attach *attach)
{
	void *areas[] = {attach->unwind.rows, attach->unwind.pages, attach->unwind.rules,
			 attach->unwind.tables};

	for (size_t i = 0; i < ARRAY_SIZE(areas); i++)
		if (areas[i])
			munmap(areas[i], attach->unwind_bytes[i]);
	attach->unwind = (struct unwind_areas){0};
	ring_buffer__free(attach->unwind_wanted);
	attach->unwind_wanted = NULL;
}

void attach_unwind_publish(struct attach *attach, const struct abi_unwind_key *key, uint32_t number)
{
	int map = bpf_map__fd(attach->skeleton->maps.unwind_files);

	if (number == ABI_UNWIND_WANTED)
		bpf_map_delete_elem(map, key);
	else
		bpf_map_update_elem(map, key, &number, BPF_ANY);
}

/* Places a plan's probes, each with the program for its site, and removes them. */

/* Selects the sites that a program serves. */
typedef bool (*site_filter_fn)(const struct plan_site *site);

static bool site_is_usdt(const struct plan_site *site)
{
	return site->op == ABI_OP_SAMPLED_ALLOC || site->op == ABI_OP_SAMPLED_FREE;
}

/* Of either kind: malloc's, or a USDT probe. */
static bool site_is_of_native_layer(const struct plan_site *site)
{
	return (site->cookie >> 8 & 0xff) == EVENT_API_NATIVE;
}

static bool site_is_native(const struct plan_site *site)
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

static bool site_is_native_request(const struct plan_site *site)
{
	return site_is_native(site) && site->with_return;
}

static bool site_is_native_once(const struct plan_site *site)
{
	return site_is_native(site) && !site->with_return;
}

static bool site_is_mapping(const struct plan_site *site)
{
	return site->op >= ABI_OP_MMAP && site->op <= ABI_OP_BRK;
}

static bool site_is_request(const struct plan_site *site)
{
	return !site_is_of_native_layer(site) && site->with_return;
}

static bool site_is_reuse(const struct plan_site *site)
{
	return site->op == ABI_OP_REUSE;
}

static bool site_is_once(const struct plan_site *site)
{
	return !site_is_of_native_layer(site) &&
	       (site->op == ABI_OP_FREE || site->op == ABI_OP_POOL_FREE ||
		site->op == ABI_OP_TRACK || site->op == ABI_OP_UNTRACK ||
		site->op == ABI_OP_RENAME);
}

static bool site_is_finalize(const struct plan_site *site)
{
	return site->op == ABI_OP_FINALIZE;
}

static bool site_is_inline(const struct plan_site *site)
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
	return err ?: links_add(&placed->links, program, kind, file, placed->pid, &sites);
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

static bool is_placed(const struct attach *attach, const struct placed *placed)
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
		return error_errno();
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

bool attach_is_everywhere(const struct attach *attach, const struct elf_file *file)
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

bool attach_is_in_files(const struct attach *attach)
{
	for (size_t i = 0; i < attach->placed_count; i++)
		if (attach->placed[i].pid < 0)
			return 1;
	return 0;
}

/* Page faults of all processes that run on this processor. 0; -ENODEV: it is offline; -errno. */
static int faults_attach(struct attach *attach, int processor)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_PAGE_FAULTS,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_ADDR,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, processor, -1, PERF_FLAG_FD_CLOEXEC);
	struct bpf_link *link;

	if (fd < 0)
		return error_errno();
	link = bpf_program__attach_perf_event(attach->skeleton->progs.page_fault, fd);
	if (!link) {
		int err = error_errno();

		close(fd);
		return err;
	}
	attach->faults[attach->fault_count++] = link;
	return 0;
}

#define FAULT_EVENT_MIN_NS 100 /* what a measurement that failed must not say */
#define FAULT_ROUNDS       16
#define FAULT_PAGES        128

/* How long one of our own page faults takes; 0: it is not known. */
static double fault_ns(void)
{
	size_t bytes = FAULT_PAGES * page_bytes();
	volatile char *area =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t least = UINT64_MAX;

	if (area == MAP_FAILED)
		return 0;
	madvise((void *)area, bytes, MADV_NOHUGEPAGE);
	for (int round = 0; round < FAULT_ROUNDS; round++) {
		uint64_t begun = clock_ns(CLOCK_MONOTONIC), took;

		for (size_t at = 0; at < bytes; at += page_bytes())
			area[at] = 1;
		took = clock_ns(CLOCK_MONOTONIC) - begun;
		least = took < least ? took : least;
		madvise((void *)area, bytes, MADV_DONTNEED);
	}
	munmap((void *)area, bytes);
	return (double)least / FAULT_PAGES;
}

/* A processor that goes online later is not among them. */
static int faults_watch(struct attach *attach)
{
	long processors = sysconf(_SC_NPROCESSORS_CONF);
	double before_ns = fault_ns();
	int err = 0;

	if (processors > 0)
		attach->faults = calloc((size_t)processors, sizeof(*attach->faults));
	if (!attach->faults)
		return -ENOMEM;
	for (int i = 0; i < processors && !err; i++) {
		err = faults_attach(attach, i);
		if (err == -ENODEV)
			err = 0;
	}
	before_ns = fault_ns() - before_ns;
	attach->skeleton->bss->fault_event_ns =
		before_ns > FAULT_EVENT_MIN_NS ? (uint64_t)before_ns : FAULT_EVENT_MIN_NS;
	return err ? error_set(err, "the kernel's event of page faults: %s", strerror(-err)) : 0;
}

bool attach_hits_are_ns(const struct attach *attach)
{
	return attach->faults != NULL;
}

static void faults_end(struct attach *attach)
{
	while (attach->fault_count)
		bpf_link__destroy(attach->faults[--attach->fault_count]);
	free(attach->faults);
	attach->faults = NULL;
}

int attach_detach(struct attach *attach)
{
	int wait_ms = attach_detaches_slowly(attach) ? 0 : LINKS_END_MS, ended;

	for (size_t i = 0; i < attach->placed_count; i++)
		free(attach->placed[i].links.groups);
	attach->placed_count = 0;
	faults_end(attach);
	/*
	 * The remaining probes do nothing any more. Wait for programs that still run, since their
	 * last records would come too late.
	 */
	ended = link_keeper_free(attach->holder, wait_ms);
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

#define THREADS_WITHOUT_STORAGE 4096u /* concurrent threads: 64 MiB of kernel memory */

static void programs_select(struct attach *attach, const struct attach_opts *opts)
{
	struct alloc_bpf *skeleton = attach->skeleton;
	const struct links backend = {.backend = attach->backend};
	int session = attach->backend == LINKS_SESSION, empty = attach->empty;
	int native = !empty && skeleton->rodata->has_native && !opts->pages;
	int python = !empty && !opts->no_python;
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
		{skeleton->progs.mapping, !empty && !opts->pages, LINKS_ENTRY},
		{skeleton->progs.walk, !empty && !opts->pages, LINKS_ENTRY},
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
	bpf_program__set_autoload(skeleton->progs.page_fault, !empty && opts->pages);
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
	err = link_keeper_new(&attach->holder);
	if (err)
		goto fail;
	attach->skeleton = alloc_bpf__open();
	if (!attach->skeleton) {
		err = error_set(-errno, "the BPF object cannot be opened");
		goto fail;
	}
	attach->skeleton->rodata->has_loop = features->bpf_loop;
	attach->skeleton->rodata->has_native = !opts->no_native && !opts->empty;
	attach->skeleton->rodata->has_labels = opts->label_source != ABI_LABEL_NONE;
	attach->skeleton->bss->label_source = opts->label_source;
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
	if (opts->label_source == ABI_LABEL_NONE)
		bpf_map__set_max_entries(attach->skeleton->maps.labels, 1);
	if (opts->label_source <= ABI_LABEL_TASK)
		bpf_map__set_max_entries(attach->skeleton->maps.label_codes, 1);
	bpf_program__set_autoload(attach->skeleton->progs.process_exec_begin,
				  features->prepare_exec);
	programs_select(attach, opts);
	bpf_program__set_autoload(attach->skeleton->progs.task_look, features->returns_by_call);
	err = stream_open(&attach->stream, attach->skeleton->skeleton, opts->ring_bytes,
			  opts->record, opts->meanwhile, opts->context);
	if (err)
		goto fail;
	err = walk_link(attach)
		      ?: life_watch(attach, features)
		      ?: opts->pages && !opts->empty ? faults_watch(attach) : 0;
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

bool attach_is_target(const struct attach *attach, uint32_t tgid, uint32_t space_id)
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

int attach_label(struct attach *attach, uint32_t tgid, const struct abi_label *label,
		 const struct abi_label_key *keys, const struct abi_label_code *codes, size_t count)
{
	int map = bpf_map__fd(attach->skeleton->maps.labels);
	int code_map = bpf_map__fd(attach->skeleton->maps.label_codes);

	for (size_t i = 0; i < count; i++)
		if (bpf_map_update_elem(code_map, &keys[i], &codes[i], BPF_ANY))
			return error_errno();
	if (bpf_map_update_elem(map, &tgid, label, BPF_ANY))
		return error_errno();
	attach_renew(attach);
	return 0;
}

int attach_follow(struct attach *attach, uint32_t tgid)
{
	uint32_t one = 1;

	return bpf_map_update_elem(bpf_map__fd(attach->skeleton->maps.followed), &tgid, &one,
				   BPF_ANY)
		       ? error_errno()
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

/* The number of links of everything that is placed. */
static size_t attach_links_count(const struct attach *attach)
{
	size_t count = 0;

	for (size_t i = 0; i < attach->placed_count; i++)
		count += attach->placed[i].links.count;
	return count;
}

bool attach_is_by_events(const struct attach *attach)
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
	return link_keeper_pid(attach->holder);
}

int attach_check(const struct attach *attach)
{
	return attach->holder ? link_keeper_check(attach->holder) : 0;
}

int attach_confine(struct attach *attach, int attaches)
{
	return attach->holder ? link_keeper_confine(attach->holder, attaches) : 0;
}

int attach_sweep(struct attach *attach, const char *path)
{
	return attach->holder ? link_keeper_sweep(attach->holder, path) : 0;
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
		return error_errno();
	skeleton->bss->barred.tgid = *tgid;
	skeleton->bss->barred.count = 0;
	fd = bpf_iter_create(bpf_link__fd(link));
	/* The program runs for all threads, and prints nothing. */
	if (fd < 0 || read(fd, &none, 1) < 0)
		err = error_errno();
	descriptor_close(fd);
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

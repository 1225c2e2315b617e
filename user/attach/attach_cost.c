/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of probes, as counted by the kernel and by our programs; and the map of sampled blocks.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "attach/attach_state.h"
#include "util/error.h"

void attach_count(struct attach *attach, int on)
{
	__atomic_store_n(&attach->skeleton->bss->counting, (__u32)on, __ATOMIC_RELAXED);
}

int attach_hits(struct attach *attach, uint32_t tgid, uint64_t *hits)
{
	struct abi_target target;

	if (bpf_map_lookup_elem(bpf_map__fd(attach->skeleton->maps.targets), &tgid, &target))
		return -errno;
	*hits = target.hits;
	return 0;
}

int attach_sampled(struct attach *attach, const struct sampled_key *keys, size_t count)
{
	const __u64 value = 1;

	for (size_t i = 0; i < count; i++)
		if (bpf_map_update_elem(bpf_map__fd(attach->skeleton->maps.sampled), &keys[i],
					&value, BPF_ANY))
			return -errno;
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
			return -errno;
		*run_ns += info.run_time_ns;
		*runs += info.run_cnt;
	}
	return 0;
}

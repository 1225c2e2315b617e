/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include "attach/attach_state.h"
#include "util/array.h"
#include "util/error.h"

int attach_usdt_index(struct attach *attach, const struct abi_usdt *arguments, uint32_t *index)
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
		return -errno;
	attach->usdt[attach->usdt_count++] = *arguments;
	return 0;
}

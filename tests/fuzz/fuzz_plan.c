/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner on arbitrary bytes: the first byte selects the probe spec, the rest is the function.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "probe/place/function_entry.h"
#include "probe/python/plan.h"

static void check(int holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const struct probe_spec specs[] = {
		{"malloc",
		 ABI_OP_MALLOC,
		 EVENT_API_RAW,
		 {ABI_REG_DI, ABI_REG_COUNT, ABI_REG_COUNT},
		 1},
		{"realloc",
		 ABI_OP_REALLOC,
		 EVENT_API_OBJ,
		 {ABI_REG_SI, ABI_REG_DX, ABI_REG_COUNT},
		 1},
		{"free", ABI_OP_FREE, EVENT_API_MEM, {ABI_REG_SI, ABI_REG_COUNT, ABI_REG_COUNT}, 0},
		{"track", ABI_OP_TRACK, EVENT_API_TRACK, {ABI_REG_DI, ABI_REG_SI, ABI_REG_DX}, 0},
		{"finalize",
		 ABI_OP_FINALIZE,
		 EVENT_API_RAW,
		 {ABI_REG_COUNT, ABI_REG_COUNT, ABI_REG_COUNT},
		 0},
	};
	const struct probe_spec *spec;
	struct plan_site site;
	uint64_t vaddr;

	if (!bytes)
		return 0;
	spec = &specs[*data % (sizeof(specs) / sizeof(specs[0]))];
	vaddr = *data & 0x80 ? UINT64_MAX - 64 : 0x400000; /* addresses may wrap */
	data++, bytes--;

	memset(&site, 0xa5, sizeof(site));
	if (function_entry_site(&machine_x86, spec, data, bytes, vaddr, &site)) {
		check(!bytes);
		return 0;
	}
	check(site.in_function < bytes && site.in_function < FUNCTION_MAX_CODE);
	check(site.vaddr == vaddr + site.in_function);
	check(site.emulated || !site.in_function);
	check(memchr(site.why, '\0', sizeof(site.why)) &&
	      memchr(site.instruction, '\0', sizeof(site.instruction)));
	for (int i = 0; i < 3; i++) {
		uint32_t holder = site.cookie >> (16 + 8 * i) & 0xff;

		check((holder < ABI_REG_COUNT) == (spec->arguments[i] < ABI_REG_COUNT));
		check(site.in_function || holder == spec->arguments[i]);
	}
	return 0;
}

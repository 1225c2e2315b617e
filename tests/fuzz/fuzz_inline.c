/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The analysis of inlined allocators on arbitrary bytes: the first ones give the starts of
 * functions, the rest is the code.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "abi/target.h"
#include "object/insn/machine.h"
#include "probe/pymalloc/sites.h"

#define STARTS 8

static void check(int holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint64_t starts[STARTS], vaddr = 0x400000;
	struct inline_image image = {.starts = starts, .import_count = 2};
	struct inline_sites sites;

	if (bytes <= STARTS + 1)
		return 0;
	if (data[0] & 1)
		vaddr = UINT64_MAX - 64; /* addresses may wrap */
	starts[0] = vaddr;
	for (size_t i = 1; i < STARTS; i++)
		starts[i] = starts[i - 1] + data[i];
	image.start_count = 1 + data[0] % STARTS;
	image.machine = data[0] & 4 ? &machine_arm64 : &machine_x86;
	data += STARTS, bytes -= STARTS;
	image.text = (struct inline_range){data, vaddr, bytes};
	image.stubs[0] = (struct inline_range){data, vaddr, bytes < 64 ? bytes : 64};
	image.imports[0] = (struct inline_import){vaddr + bytes, ABI_OP_MALLOC};
	image.imports[1] = (struct inline_import){vaddr + bytes + 8, ABI_OP_FREE};
	image.new_reference = data[0] & 2 ? starts[1] : 0;
	image.tracing = image.tracing_slots[0] = vaddr + bytes + 16;
	image.tracing_offset = 4;
	image.new_types[0] = vaddr;
	if (inline_sites_find(&image, &sites))
		return 0;
	for (size_t i = 0; i < sites.count; i++) {
		check(sites.sites[i].vaddr - vaddr < bytes);
		check(sites.sites[i].op == (enum abi_op)(sites.sites[i].cookie & 0xff));
	}
	inline_sites_free(&sites);
	return 0;
}

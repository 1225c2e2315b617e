/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans the USDT probes of the provider otel_memory, by which a process reports native allocations
 * that it samples itself: alloc(address, bytes, weighted bytes), also in several places, and
 * free(address) for each block that was reported.
 *
 * A probe must be on a nop, on x86-64 one of a byte. Stacks begin with the caller of the function
 * that the probe is in, or of the whole library if that is an allocator.
 */
#pragma once

#include "probe/malloc/plan_native.h"
#include "probe/python/plan.h"

#define PLAN_PROVIDER       "otel_memory"
#define PLAN_PROVIDER_SITES 64 /* of a file */

/*
 * Adds the sites to a plan, which may be zero-initialised. plan->self_sampled is set if all can be
 * probed, and nothing is added otherwise; probes of the provider that are not understood are in
 * plan->missing. 0; -ENOMEM.
 */
int plan_provider(struct elf_file *file, struct plan *plan);

/*
 * The plan of a file's native layer: its provider where it has one, otherwise as plan_native();
 * plan->missing then has the provider's probes that are not heard, too.
 */
int plan_native_layer(struct elf_file *file, const struct plan_native_opts *opts, struct plan *out);

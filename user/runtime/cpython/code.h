/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads code objects that BPF could not copy, and makes the same records that BPF would have sent.
 */
#pragma once

#include "abi/events.h"
#include "abi/target.h"
#include "util/buffer.h"

#include <stdint.h>

#include "proc/memory.h"

/*
 * The id that BPF gives to the code object at address (bpf/python/code.h has the same function): a
 * hash of target->space_id, the address and the 88 bytes that end with the line table pointer; up
 * to 3.11 also of the last 128 bytes of each of its texts and of its line table, except the missing
 * ones (EVENT_MISS_*). 0; -EINVAL: it has no texts or no table; -EFAULT, -ESRCH, -EPERM.
 */
int code_id(struct space *space, const struct abi_target *target, uint64_t address,
	    uint32_t missing, uint64_t *id);

/*
 * Appends an EVENT_CODE record and EVENT_CODE_LINES records for the code object at address to out,
 * with headers copied from header (type and size set). 0; -ESTALE: the code object there no longer
 * has the expected id; -EFAULT, -ESRCH, -ENOMEM.
 */
int code_read(struct space *space, const struct abi_target *target, uint64_t address,
	      uint64_t expected_id, const struct event_header *header, struct buffer *out);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code objects read from outside, for what BPF could not copy: the same record that BPF would have
 * sent.
 */
#ifndef TRACER_PYTHON_CODE_H
#define TRACER_PYTHON_CODE_H

#include "abi/events.h"
#include "abi/target.h"
#include "base/buffer.h"

#include <stdint.h>
#include <sys/types.h>

/*
 * The id that BPF gives to the code object at address (bpf/python_code.h has its twin): a hash of
 * target->space, address and the 88 bytes that end with the line table pointer; up to 3.11 also of
 * the last 128 bytes of its texts and its line table, but for those that are missing
 * (EVENT_MISS_*). 0; -EINVAL: no texts or table are there; -EFAULT, -ESRCH, -EPERM.
 */
int code_id(pid_t pid, const struct abi_target *target, uint64_t address, uint32_t missing,
	    uint64_t *id);

/*
 * Appends an EVENT_CODE record and EVENT_CODE_LINES records for the code object at address to out,
 * headers copied from header (type and size set). -ESTALE when the code object there no longer has
 * the id expected. 0, -EFAULT, -ESRCH, -ENOMEM.
 */
int code_read(pid_t pid, const struct abi_target *target, uint64_t address, uint64_t expected_id,
	      const struct event_header *header, struct buffer *out);

#endif

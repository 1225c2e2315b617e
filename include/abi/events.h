/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The event stream: what bpf/ writes into the ring buffer, what a capture file holds and what
 * user/trace/ decodes. Both sides share these definitions; numbers are only appended.
 *
 * Every record starts with struct event_header, is 8-byte aligned, and `size` counts the whole
 * record, header included. Records of one process arrive in an order that respects causality: a
 * block is reported before its owner can use it and released before its address can be handed out
 * again (see ARCHITECTURE.md, "The life of one allocation").
 *
 * Records numbered from EVENT_USER_FIRST are made by the tracer itself, not by BPF. They are stored
 * in a capture so that it can be replayed alone.
 *
 * Addresses are of the target's address space; sizes are bytes; times CLOCK_MONOTONIC nanoseconds;
 * tgid and tid are those of the initial PID namespace. The time of an allocation's or a free's
 * record is that of its thread's first such record in the same kernel tick (1 to 10 ms).
 */
#pragma once

#include "abi/event_blocks.h"
#include "abi/event_census.h"
#include "abi/event_perfmap.h"
#include "abi/event_processes.h"
#include "abi/event_stacks.h"
#include "abi/event_types.h"
#include "abi/event_windows.h"

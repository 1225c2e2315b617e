/* SPDX-License-Identifier: Apache-2.0 */
/* The user-space end of bpf/stream.h: a BPF object's records and its loss counters. */
#pragma once

#include <stddef.h>

#include "abi/events.h"

struct bpf_object_skeleton;
struct stream;

/*
 * Receives a record, borrowed for the call. A non-zero return ends stream_drain(), which returns
 * it.
 */
typedef int (*stream_record_fn)(void *context, void *record, size_t size);

/*
 * Loads a BPF object that has the maps `events` and `loss`. The object stays the caller's and must
 * outlive the stream. ring_bytes: a power of two and a multiple of the page size; 0: the object's
 * default. meanwhile (NULL: nothing): is called with the context while the kernel checks the
 * programs; it must not use libbpf. 0; -EPERM; -errno (error_set() has the kernel's reason).
 */
int stream_open(struct stream **out, struct bpf_object_skeleton *skeleton, size_t ring_bytes,
		stream_record_fn record, void (*meanwhile)(void *context), void *context);
void stream_close(struct stream *stream); /* NULL is legal */
/* Delivers pending records, about limit at most. Returns their number or the callback's error. */
int stream_drain(struct stream *stream, size_t limit);
/* The loss counters, summed over processors. 0, -errno. */
int stream_loss(const struct stream *stream, __u64 counts[LOSS_COUNT]);

/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/stream.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/error.h"

struct stream {
	struct ring_buffer *ring;
	int loss_fd;
	stream_record_fn record;
	void *context;
	size_t drained, drain_limit;
};

/* Draining stops here once enough was handed over; any value that no callback returns. */
#define DRAIN_ENOUGH (-4095)

static int record_handle(void *context, void *record, size_t size)
{
	struct stream *stream = context;
	int err = stream->record(stream->context, record, size);

	if (err)
		return err;
	return ++stream->drained >= stream->drain_limit ? DRAIN_ENOUGH : 0;
}

int stream_open(struct stream **out, int events_fd, int loss_fd, stream_record_fn record, void *context)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return -ENOMEM;
	stream->loss_fd = loss_fd;
	stream->record = record;
	stream->context = context;
	stream->ring = ring_buffer__new(events_fd, record_handle, stream, NULL);
	if (!stream->ring) {
		int err = error_set(-errno, "the ring buffer cannot be mapped");

		free(stream);
		return err;
	}
	*out = stream;
	return 0;
}

void stream_close(struct stream *stream)
{
	if (!stream)
		return;
	ring_buffer__free(stream->ring);
	free(stream);
}

int stream_drain(struct stream *stream, size_t limit)
{
	int err;

	stream->drained = 0;
	stream->drain_limit = limit;
	err = ring_buffer__consume(stream->ring);
	if (err < 0 && err != DRAIN_ENOUGH)
		return err;
	return stream->drained;
}

int stream_loss(const struct stream *stream, __u64 counts[LOSS_COUNT])
{
	int cpus = libbpf_num_possible_cpus(), err = 0;
	uint64_t *values;

	if (cpus < 0)
		return cpus;
	values = calloc(cpus, sizeof(*values));
	if (!values)
		return -ENOMEM;
	for (uint32_t kind = 0; kind < LOSS_COUNT && !err; kind++) {
		counts[kind] = 0;
		if (bpf_map_lookup_elem(stream->loss_fd, &kind, values))
			err = -errno;
		for (int cpu = 0; cpu < cpus && !err; cpu++)
			counts[kind] += values[cpu];
	}
	free(values);
	return err;
}

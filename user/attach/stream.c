/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/stream.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "attach/kernel_words.h"
#include "attach/private_stack.h"
#include "base/error.h"

#define LOAD_FILES 128u /* with so many descriptors all programs and maps are loaded */

/*
 * The ring buffer as the kernel maps it (Documentation/bpf/ringbuf.rst): a page with our position,
 * then a page with the kernel's and the data, twice one behind the other. Positions count bytes
 * from the first record on.
 *
 * libbpf's own reader tells the kernel its position after every record. Whoever reserves room reads
 * that, and would find it taken away by us again and again.
 */
struct stream {
	unsigned long *consumer;
	const unsigned long *producer;
	const unsigned char *data;
	size_t bytes, page;
	int loss_fd;
	stream_record_fn record;
	void *context;
};

#define TELL_BYTES 65536ul /* handed over between two tellings; of a small ring buffer an eighth */

static int ring_map(struct stream *stream, int fd)
{
	struct bpf_map_info info = {0};
	uint32_t size = sizeof(info);
	void *map;

	if (bpf_obj_get_info_by_fd(fd, &info, &size))
		return -errno;
	stream->page = sysconf(_SC_PAGESIZE);
	stream->bytes = info.max_entries;
	map = mmap(NULL, stream->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	stream->consumer = map;
	map = mmap(NULL, stream->page + 2 * stream->bytes, PROT_READ, MAP_SHARED, fd, stream->page);
	if (map == MAP_FAILED)
		return -errno;
	stream->producer = map;
	stream->data = (unsigned char *)map + stream->page;
	return 0;
}

/*
 * Where libbpf is short of descriptors it may take that for a feature that the kernel lacks, and
 * give another reason.
 */
static int load_error(int err)
{
	struct rlimit limit;

	return err == -EINVAL && !getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < LOAD_FILES
		       ? -EMFILE
		       : err;
}

/*
 * Kernels and compilers of every kind load it: what would take the kernel down is not attached. 0,
 * -EOPNOTSUPP (error_set()).
 */
static int private_stacks_refuse(struct bpf_object *object)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, object)
	{
		int fd = bpf_program__fd(program);

		if (fd >= 0 && private_stack_count_fd(fd) > 0)
			return error_set(
				-EOPNOTSUPP,
				"the BPF program %s has a private stack on this kernel, which "
				"preempted probes would share: nothing is attached; build the "
				"tracer with another clang",
				bpf_program__name(program));
	}
	return 0;
}

int stream_open(struct stream **out, struct bpf_object_skeleton *skeleton, size_t ring_bytes,
		stream_record_fn record, void *context)
{
	struct bpf_map *events = bpf_object__find_map_by_name(*skeleton->obj, "events");
	struct bpf_map *loss = bpf_object__find_map_by_name(*skeleton->obj, "loss");
	struct stream *stream = calloc(1, sizeof(*stream));
	struct kernel_words words = {0};
	int err;

	if (!stream)
		return -ENOMEM;
	if (ring_bytes)
		bpf_map__set_max_entries(events, ring_bytes);
	kernel_words_begin(&words);
	err = load_error(bpf_object__load_skeleton(skeleton));
	kernel_words_end();
	if (err) {
		error_set(err, "the kernel refused the BPF programs (%s%s%s)", strerror(-err),
			  words.text[0] && kernel_words_matter(err) ? "; " : "",
			  kernel_words_matter(err) ? words.text : "");
		goto fail;
	}
	err = private_stacks_refuse(*skeleton->obj);
	if (err)
		goto fail;
	stream->loss_fd = bpf_map__fd(loss);
	stream->record = record;
	stream->context = context;
	err = ring_map(stream, bpf_map__fd(events));
	if (err) {
		error_set(err, "the ring buffer cannot be mapped");
		goto fail;
	}
	*out = stream;
	return 0;
fail:
	stream_close(stream);
	return err;
}

void stream_close(struct stream *stream)
{
	if (!stream)
		return;
	if (stream->consumer)
		munmap(stream->consumer, stream->page);
	if (stream->producer)
		munmap((void *)stream->producer, stream->page + 2 * stream->bytes);
	free(stream);
}

int stream_drain(struct stream *stream, size_t limit)
{
	unsigned long at = *stream->consumer, told = at, end = at;
	unsigned long tell = stream->bytes / 8 < TELL_BYTES ? stream->bytes / 8 : TELL_BYTES;
	size_t count = 0;
	int err = 0;

	while (!err && count < limit) {
		uint32_t *header = (uint32_t *)(stream->data + (at & (stream->bytes - 1))), length,
			 size;

		if (at == end)
			end = __atomic_load_n(stream->producer, __ATOMIC_ACQUIRE);
		if (at == end)
			break;
		length = __atomic_load_n(header, __ATOMIC_ACQUIRE);
		size = length & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
		/* Still being written. */
		if (length & BPF_RINGBUF_BUSY_BIT)
			break;
		if (!(length & BPF_RINGBUF_DISCARD_BIT)) {
			err = stream->record(stream->context,
					     header + BPF_RINGBUF_HDR_SZ / sizeof(*header), size);
			count++;
		}
		at += (size + BPF_RINGBUF_HDR_SZ + 7) & ~7ul;
		if (at - told >= tell) {
			told = at;
			__atomic_store_n(stream->consumer, at, __ATOMIC_RELEASE);
		}
	}
	__atomic_store_n(stream->consumer, at, __ATOMIC_RELEASE);
	return err ? err : (int)count;
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

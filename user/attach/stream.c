/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/stream.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "attach/kernel/load_log.h"
#include "attach/kernel/private_stack.h"
#include "util/error.h"

#define LOAD_FILES 128u /* enough descriptors to load all programs and maps */

/*
 * The ring buffer as the kernel maps it (Documentation/bpf/ringbuf.rst): a page with our position,
 * then a page with the kernel's position and the data, mapped twice in succession. Positions count
 * bytes from the first record.
 *
 * libbpf's own reader stores its position after every record. Producers read that cache line when
 * they reserve space, so each store would make them miss it.
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

/* bytes delivered between two stores of the position; at most an eighth of the ring buffer */
#define PUBLISH_BYTES 65536ul

static int ring_map(struct stream *stream, int fd)
{
	struct bpf_map_info info = {0};
	uint32_t size = sizeof(info);

	if (bpf_obj_get_info_by_fd(fd, &info, &size))
		return error_errno();
	stream->page = sysconf(_SC_PAGESIZE);
	stream->bytes = info.max_entries;
	void *map = mmap(NULL, stream->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return error_errno();
	stream->consumer = map;
	map = mmap(NULL, stream->page + 2 * stream->bytes, PROT_READ, MAP_SHARED, fd, stream->page);
	if (map == MAP_FAILED)
		return error_errno();
	stream->producer = map;
	stream->data = (unsigned char *)map + stream->page;
	return 0;
}

/*
 * If libbpf runs out of descriptors, it may take that for a missing kernel feature and report
 * another error.
 */
static int load_error(int err)
{
	struct rlimit limit;

	return err == -EINVAL && !getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < LOAD_FILES
		       ? -EMFILE
		       : err;
}

/*
 * Refuses programs with a private stack, which could crash the kernel. Which kernels and compilers
 * produce one varies. 0, -EOPNOTSUPP (with error_set()).
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

struct loading {
	struct bpf_object_skeleton *skeleton;
	int err;
};

static void *loading_run(void *context)
{
	struct loading *loading = context;

	loading->err = bpf_object__load_skeleton(loading->skeleton);
	return NULL;
}

/*
 * Loads, and calls meanwhile if there is one. The kernel checks programs in the thread that loads
 * them: a thread of its own, which ends before this returns. (Children that end with the thread
 * that has started them are started by the caller's.)
 */
static int object_load(struct bpf_object_skeleton *skeleton, void (*meanwhile)(void *context),
		       void *context)
{
	struct loading loading = {.skeleton = skeleton};
	pthread_t thread;
	int alone = !meanwhile || pthread_create(&thread, NULL, loading_run, &loading);

	if (alone)
		loading_run(&loading);
	if (meanwhile)
		meanwhile(context);
	if (!alone)
		pthread_join(thread, NULL);
	return loading.err;
}

int stream_open(struct stream **out, struct bpf_object_skeleton *skeleton, size_t ring_bytes,
		stream_record_fn record, void (*meanwhile)(void *context), void *context)
{
	struct bpf_map *events = bpf_object__find_map_by_name(*skeleton->obj, "events");
	struct bpf_map *loss = bpf_object__find_map_by_name(*skeleton->obj, "loss");
	struct stream *stream = calloc(1, sizeof(*stream));
	struct load_log log = {0};
	int err;

	if (!stream)
		return -ENOMEM;
	if (ring_bytes)
		bpf_map__set_max_entries(events, ring_bytes);
	load_log_begin(&log);
	err = load_error(object_load(skeleton, meanwhile, context));
	load_log_end();
	if (err) {
		error_set(err, "the kernel refused the BPF programs (%s%s%s)", strerror(-err),
			  log.text[0] && load_log_explains(err) ? "; " : "",
			  load_log_explains(err) ? log.text : "");
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
	unsigned long at = *stream->consumer, published = at, end = at;
	unsigned long publish_bytes =
		stream->bytes / 8 < PUBLISH_BYTES ? stream->bytes / 8 : PUBLISH_BYTES;
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
		/* still being written */
		if (length & BPF_RINGBUF_BUSY_BIT)
			break;
		if (!(length & BPF_RINGBUF_DISCARD_BIT)) {
			err = stream->record(stream->context,
					     header + BPF_RINGBUF_HDR_SZ / sizeof(*header), size);
			count++;
		}
		at += (size + BPF_RINGBUF_HDR_SZ + 7) & ~7ul;
		if (at - published >= publish_bytes) {
			published = at;
			__atomic_store_n(stream->consumer, at, __ATOMIC_RELEASE);
		}
	}
	__atomic_store_n(stream->consumer, at, __ATOMIC_RELEASE);
	return err ?: (int)count;
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
			err = error_errno();
		for (int cpu = 0; cpu < cpus && !err; cpu++)
			counts[kind] += values[cpu];
	}
	free(values);
	return err;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/map_watch.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

#define PAGE_BYTES   4096u
#define BUFFER_BYTES (64u * PAGE_BYTES) /* of each processor: more than a thousand maps between two drains */

struct processor {
	int fd;
	struct perf_event_mmap_page *head; /* the buffer follows it */
};

struct map_watch {
	struct processor *processors;
	size_t count;
	uint64_t lost;
};

static int processor_open(struct processor *processor, int number)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY,
		.mmap = 1,
		.watermark = 1,
		.wakeup_watermark = BUFFER_BYTES,
	};

	processor->fd = syscall(SYS_perf_event_open, &attr, -1, number, -1, PERF_FLAG_FD_CLOEXEC);
	if (processor->fd < 0)
		return -errno;
	processor->head =
		mmap(NULL, PAGE_BYTES + BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, processor->fd, 0);
	if (processor->head != MAP_FAILED)
		return 0;
	processor->head = NULL;
	return -errno;
}

int map_watch_open(struct map_watch **out)
{
	long processors = sysconf(_SC_NPROCESSORS_CONF);
	struct map_watch *watch = calloc(1, sizeof(*watch));
	int err = 0;

	if (watch && processors > 0)
		watch->processors = calloc(processors, sizeof(*watch->processors));
	if (!watch || !watch->processors) {
		free(watch);
		return -ENOMEM;
	}
	for (int i = 0; i < processors && !err; i++) {
		struct processor *processor = &watch->processors[watch->count];

		err = processor_open(processor, i);
		if (err && processor->fd >= 0)
			close(processor->fd);
		if (!err)
			watch->count++;
		else if (err == -ENODEV) /* it is switched off */
			err = 0;
	}
	if (err) {
		map_watch_close(watch);
		return error_set(err, "perf_event_open: %s", strerror(-err));
	}
	*out = watch;
	return 0;
}

void map_watch_close(struct map_watch *watch)
{
	if (!watch)
		return;
	for (size_t i = 0; i < watch->count; i++) {
		munmap(watch->processors[i].head, PAGE_BYTES + BUFFER_BYTES);
		close(watch->processors[i].fd);
	}
	free(watch->processors);
	free(watch);
}

/* Records are 8-byte aligned and may wrap around. */
static void bytes_copy(const uint8_t *buffer, uint64_t at, void *out, size_t size)
{
	size_t offset = at % BUFFER_BYTES, first = BUFFER_BYTES - offset;

	if (first > size)
		first = size;
	memcpy(out, buffer + offset, first);
	memcpy((uint8_t *)out + first, buffer, size - first);
}

static void processor_drain(struct map_watch *watch, const struct processor *processor,
			    void (*mapped)(void *context, uint32_t tgid), void *context)
{
	const uint8_t *buffer = (const uint8_t *)processor->head + PAGE_BYTES;
	uint64_t head = __atomic_load_n(&processor->head->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = processor->head->data_tail;

	while (tail < head) {
		struct {
			struct perf_event_header header;
			uint32_t pid, tid;
			uint64_t lost; /* of PERF_RECORD_LOST, behind an id */
		} record;

		bytes_copy(buffer, tail, &record, sizeof(record));
		if (record.header.size < sizeof(record.header))
			break;
		if (record.header.type == PERF_RECORD_MMAP)
			mapped(context, record.pid);
		else if (record.header.type == PERF_RECORD_LOST)
			watch->lost += record.lost;
		tail += record.header.size;
	}
	__atomic_store_n(&processor->head->data_tail, head, __ATOMIC_RELEASE);
}

void map_watch_drain(struct map_watch *watch, void (*mapped)(void *context, uint32_t tgid), void *context)
{
	for (size_t i = 0; i < watch->count; i++)
		processor_drain(watch, &watch->processors[i], mapped, context);
}

uint64_t map_watch_lost(const struct map_watch *watch)
{
	return watch->lost;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/map_watch.h"

#include <errno.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/error.h"
#include "util/page.h"

/* per processor: two thousand maps between two drains */
#define BUFFER_BYTES (256u << 10) /* a number of pages that is a power of two */

struct processor {
	int fd;
	struct perf_event_mmap_page *head; /* followed by the buffer */
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
		.sample_type = PERF_SAMPLE_TIME,
		.sample_id_all = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
		.watermark = 1,
		.wakeup_watermark = BUFFER_BYTES,
	};

	processor->fd = syscall(SYS_perf_event_open, &attr, -1, number, -1, PERF_FLAG_FD_CLOEXEC);
	if (processor->fd < 0)
		return error_errno();
	processor->head = mmap(NULL, page_bytes() + BUFFER_BYTES, PROT_READ | PROT_WRITE,
			       MAP_SHARED, processor->fd, 0);
	if (processor->head != MAP_FAILED)
		return 0;
	processor->head = NULL;
	return error_errno();
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
		else if (err == -ENODEV) /* offline */
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
		munmap(watch->processors[i].head, page_bytes() + BUFFER_BYTES);
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

/* Layouts from perf_event_open(2), without what sample_type appends: only the time. */
struct head {
	struct perf_event_header header;
	uint32_t pid, tid;
};

struct map_watch_mapped {
	struct head head;
	uint64_t address, bytes, offset;
	uint32_t major, minor;
	uint64_t inode, generation;
	uint32_t protection, flags;
};

struct lost {
	struct perf_event_header header;
	uint64_t id, lost;
};

union perf_record {
	struct head head;
	struct map_watch_mapped mapped;
	struct lost lost;
	char bytes[sizeof(struct map_watch_mapped) + PATH_MAX + sizeof(uint64_t)];
};

/* Returns the size and time of the next record. 0: there is none, or only records after `until`. */
static size_t record_peek(const struct processor *processor, uint64_t until, uint64_t *time_ns)
{
	const uint8_t *buffer = (const uint8_t *)processor->head + page_bytes();
	uint64_t head = __atomic_load_n(&processor->head->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = processor->head->data_tail;
	struct perf_event_header header;

	if (tail >= head)
		return 0;
	bytes_copy(buffer, tail, &header, sizeof(header));
	if (header.size < sizeof(header) + sizeof(*time_ns))
		return 0;
	bytes_copy(buffer, tail + header.size - sizeof(*time_ns), time_ns, sizeof(*time_ns));
	return *time_ns < until ? header.size : 0;
}

/* The NUL-terminated name is followed by the time. */
static void record_deliver(struct map_watch *watch, union perf_record *record, uint64_t time_ns,
			   void (*each)(void *context, const struct map_watch_record *record),
			   void *context)
{
	struct map_watch_record out = {.tgid = record->head.pid, .time_ns = time_ns};
	const struct map_watch_mapped *mapped = &record->mapped;
	size_t size = record->head.header.size;

	switch (record->head.header.type) {
	case PERF_RECORD_COMM:
		if (size <= sizeof(record->head) + sizeof(time_ns))
			break;
		record->bytes[size - sizeof(time_ns) - 1] = '\0';
		out.exec = (record->head.header.misc & PERF_RECORD_MISC_COMM_EXEC) != 0;
		out.renamed = out.exec ? NULL : record->bytes + sizeof(record->head);
		if (out.exec || record->head.pid == record->head.tid)
			each(context, &out);
		break;
	case PERF_RECORD_MMAP2:
		if (size <= sizeof(*mapped) + sizeof(time_ns))
			break;
		record->bytes[size - sizeof(time_ns) - 1] = '\0';
		out.map = (struct process_map){
			.start = mapped->address,
			.end = mapped->address + mapped->bytes,
			.offset = mapped->offset,
			.inode = mapped->inode,
			.device_major = mapped->major,
			.device_minor = mapped->minor,
			.executable = 1,
			.readable = (mapped->protection & PROT_READ) != 0,
			.writable = (mapped->protection & PROT_WRITE) != 0,
			.path = record->bytes + sizeof(*mapped),
		};
		each(context, &out);
		break;
	case PERF_RECORD_LOST:
		watch->lost += record->lost.lost;
		break;
	}
}

static struct processor *earliest_find(struct map_watch *watch, uint64_t until, size_t *size,
				       uint64_t *time_ns)
{
	struct processor *earliest = NULL;

	for (size_t i = 0; i < watch->count; i++) {
		uint64_t time;
		size_t bytes = record_peek(&watch->processors[i], until, &time);

		if (!bytes || (earliest && time >= *time_ns))
			continue;
		earliest = &watch->processors[i];
		*size = bytes;
		*time_ns = time;
	}
	return earliest;
}

/*
 * A process may migrate to another processor between two records. To keep the order, records after
 * the start of the drain are left for the next drain.
 */
void map_watch_drain(struct map_watch *watch,
		     void (*each)(void *context, const struct map_watch_record *record),
		     void *context)
{
	uint64_t until = clock_ns(CLOCK_MONOTONIC), time_ns;
	struct processor *processor;
	union perf_record record;
	size_t size;

	while ((processor = earliest_find(watch, until, &size, &time_ns))) {
		uint64_t tail = processor->head->data_tail;

		if (size <= sizeof(record)) {
			bytes_copy((const uint8_t *)processor->head + page_bytes(), tail, &record,
				   size);
			record_deliver(watch, &record, time_ns, each, context);
		}
		__atomic_store_n(&processor->head->data_tail, tail + size, __ATOMIC_RELEASE);
	}
}

uint64_t map_watch_lost(const struct map_watch *watch)
{
	return watch->lost;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A perf.data file: what `perf record` would have written, had it been able to. One event,
 * "live-bytes" ("live-blocks"; of growth mode "growth-bytes", "growth-count"); one sample a trace,
 * its period the bytes that are live, its callchain the traceback. So the sums that perf shows are
 * those of a report.
 *
 * perf is given no live process and no /tmp/perf-PID.map: Python's frames are addresses in an ELF
 * file of our own (perf_data_image.h), which a MMAP2 record puts where no process has memory: in
 * the hole between user space and the kernel's. Addresses of native code can so stand in the same
 * callchains, as they are, with MMAP2 records of their own.
 *
 * perf looks for the files of a process in the mount namespace that the process with this PID has
 * at that moment, if there is one: in a container's it would not find ours. It does so for the
 * process that maps the file. So a process that cannot exist maps it, and every target is its fork.
 *
 * The file is: header, one attribute, records, and three features. Layout:
 * include/uapi/linux/perf_event.h, and tools/perf/Documentation/perf.data-file-format.txt of the
 * kernel.
 */
#include <errno.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/id_map.h"
#include "base/text.h"
#include "export/exporter.h"
#include "export/perf_data_image.h"
#include "snapshot/estimate.h"

#define IMAGE_SUFFIX  ".python"
#define IMAGE_ADDRESS (1ull << 60) /* not canonical, with 4 and 5 levels of page tables alike */
#define IMAGE_PID     0x7fffffff   /* above the highest PID there can be, 2^22 */

#define SAMPLE_TYPE                                                                                \
	(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD |                \
	 PERF_SAMPLE_CALLCHAIN)
#define FRAMES_MAX   8160u /* the size of a record has 16 bits */
#define FRAMES_SHOWN 127u  /* by perf, unless --max-stack says otherwise */
#define ATTR_BYTES   PERF_ATTR_SIZE_VER5
/*
 * No software event of the kernel's; PERF_COUNT_SW_DUMMY would do, but perf script leaves its
 * samples blank.
 */
#define EVENT_NOT_COUNTED 0x747261636572ull
#define ALIGN8(bytes)     (((bytes) + 7) & ~(size_t)7)

/* Of tools/perf/util/header.h: numbers of features. */
enum { FEATURE_BUILD_ID = 2, FEATURE_ARCH = 6, FEATURE_EVENT_DESC = 12, FEATURES = 3 };
#define BUILD_ID_SIZE_KNOWN (1u << 15) /* in misc of a build-id */

struct file_section {
	uint64_t offset, size;
};

struct file_header {
	char magic[8];
	uint64_t size, attr_size;
	struct file_section attrs, data, event_types;
	uint64_t features[4];
};

struct file_attr {
	uint8_t attr[ATTR_BYTES];
	struct file_section ids;
};

struct comm_record {
	struct perf_event_header header;
	uint32_t pid, tid;
	/* the name, padded to 8 bytes */
};

struct fork_record {
	struct perf_event_header header;
	uint32_t pid, ppid, tid, ptid;
	uint64_t time;
};

struct lost_record {
	struct perf_event_header header;
	uint64_t lost;
};

struct build_id {
	uint8_t bytes[PERF_BUILD_ID_BYTES];
	uint8_t size, reserved[3];
};

struct mmap2_record {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t start, length, offset;
	uint8_t build_id_size, reserved[3], build_id[PERF_BUILD_ID_BYTES];
	uint32_t prot, flags;
	/* the file's name, padded to 8 bytes */
};

struct build_id_record {
	struct perf_event_header header;
	int32_t pid;
	struct build_id id;
	/* the file's name, padded to 8 bytes */
};

struct sample_record {
	struct perf_event_header header;
	uint64_t ip;
	uint32_t pid, tid;
	uint64_t time, period;
	uint64_t callchain_size;
	uint64_t callchain[1 + FRAMES_MAX]; /* a mark for user space, and addresses */
};

_Static_assert(sizeof(struct file_header) == 104, "perf tells old headers by their size");
_Static_assert(sizeof(struct mmap2_record) == 72, "as in the kernel");
_Static_assert(sizeof(struct build_id_record) == 36, "as in perf");
_Static_assert(sizeof(struct sample_record) <= UINT16_MAX, "the size in a record's header");

struct writer {
	const struct snapshot *snapshot;
	const struct perf_frames *frames;
	struct outfile *file;
	const char *event;
	int counts;
	char image[PATH_MAX];
	uint8_t build_id[PERF_BUILD_ID_BYTES];
	uint32_t longest; /* traceback, in frames */
	uint64_t cut;     /* samples whose oldest frames have no room */
};

static uint32_t sample_frames(const struct writer *writer, const struct snapshot_trace *trace)
{
	uint32_t nframe = writer->snapshot->tracebacks[trace->traceback].nframe;

	return nframe < FRAMES_MAX ? nframe : FRAMES_MAX;
}

static uint16_t sample_bytes(uint32_t frames)
{
	return (uint16_t)(offsetof(struct sample_record, callchain) +
			  (1 + frames) * sizeof(uint64_t));
}

/* What stands before a string, and the string, padded to a multiple of 8 bytes. */
static int padded_append(struct buffer *out, const void *head, size_t bytes, const char *text)
{
	static const char padding[8];
	size_t size = strlen(text) + 1;
	int err = buffer_append(out, head, bytes);

	if (!err)
		err = buffer_append(out, text, size);
	return err ? err : buffer_append(out, padding, ALIGN8(size) - size);
}

/* The process that maps the image. */
static int image_append(struct buffer *out, const struct writer *writer)
{
	struct mmap2_record map = {
		.header = {.type = PERF_RECORD_MMAP2,
			   .misc = PERF_RECORD_MISC_USER | PERF_RECORD_MISC_MMAP_BUILD_ID,
			   .size = (uint16_t)(sizeof(map) + ALIGN8(strlen(writer->image) + 1))},
		.pid = IMAGE_PID,
		.tid = IMAGE_PID,
		.start = IMAGE_ADDRESS,
		.length = (perf_image_text_bytes(writer->frames) + 4095) & ~4095ull,
		.offset = PERF_IMAGE_TEXT,
		.build_id_size = PERF_BUILD_ID_BYTES,
		.prot = 1 | 4, /* PROT_READ | PROT_EXEC */
		.flags = 2,    /* MAP_PRIVATE */
	};

	memcpy(map.build_id, writer->build_id, sizeof(map.build_id));
	return padded_append(out, &map, sizeof(map), writer->image);
}

/*
 * Its fork, unless it has been there (a process that called exec is two), and how that is called.
 */
static int process_append(struct buffer *out, const struct snapshot_meta *meta, int forked)
{
	const char *name = meta->name[0] ? meta->name : "python";
	char shown[4 * sizeof(meta->name)];
	size_t shown_bytes = ALIGN8(text_escape(shown, sizeof(shown), name) + 1);
	struct fork_record fork = {
		.header = {.type = PERF_RECORD_FORK, .size = sizeof(fork)},
		.pid = meta->pid,
		.tid = meta->pid,
		.ppid = IMAGE_PID,
		.ptid = IMAGE_PID,
		.time = meta->taken_realtime_ns,
	};
	struct comm_record comm = {
		.header = {.type = PERF_RECORD_COMM,
			   .size = (uint16_t)(sizeof(comm) + shown_bytes)},
		.pid = meta->pid,
		.tid = meta->pid,
	};
	int err = forked ? 0 : buffer_append(out, &fork, sizeof(fork));

	return err ? err : padded_append(out, &comm, sizeof(comm), shown);
}

/*
 * What stands before the samples: the image, the processes, and what the snapshot does not know of
 * them.
 */
static int processes_append(struct buffer *out, const struct writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	const struct lost_record lost = {
		.header = {.type = PERF_RECORD_LOST_SAMPLES, .size = sizeof(lost)},
		.lost = snapshot_lost_events(snapshot),
	};
	struct id_map pids = {0};
	int err = image_append(out, writer);

	for (size_t i = 0; !err && i < snapshot_process_count(snapshot); i++) {
		const struct snapshot_meta *meta = snapshot_process(snapshot, i);

		err = process_append(out, meta, id_map_find(&pids, meta->pid) != ID_MAP_NONE);
		if (!err)
			err = id_map_put(&pids, meta->pid, (uint32_t)i);
	}
	id_map_free(&pids);
	return err || !lost.lost ? err : buffer_append(out, &lost, sizeof(lost));
}

static int sample_write(struct writer *writer, const struct snapshot_trace *trace)
{
	const struct snapshot *snapshot = writer->snapshot;
	const struct snapshot_meta *process = snapshot_process(snapshot, trace->process);
	uint32_t first = snapshot->tracebacks[trace->traceback].first,
		 nframe = sample_frames(writer, trace);
	struct sample_record sample;
	uint64_t size, count;

	sample.header = (struct perf_event_header){.type = PERF_RECORD_SAMPLE,
						   .misc = PERF_RECORD_MISC_USER,
						   .size = sample_bytes(nframe)};
	sample.pid = sample.tid = process->pid;
	sample.time = process->taken_realtime_ns;
	int err = estimate_trace(snapshot_sample_bytes(snapshot, trace), trace, &size, &count);
	if (err)
		return err;
	sample.period = writer->counts ? count : size;
	sample.callchain_size = 1 + nframe;
	sample.callchain[0] = PERF_CONTEXT_USER;
	for (uint32_t i = 0; i < nframe; i++)
		sample.callchain[1 + i] =
			IMAGE_ADDRESS + PERF_PLACE_BYTES / 2 +
			(uint64_t)writer->frames->places[first + i] * PERF_PLACE_BYTES;
	sample.ip = sample.callchain[1];
	return outfile_write(writer->file, &sample, sample.header.size);
}

static void attr_set(const struct writer *writer, uint8_t out[ATTR_BYTES])
{
	const struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = ATTR_BYTES,
		.config = EVENT_NOT_COUNTED,
		.sample_period = 1,
		.sample_type = SAMPLE_TYPE,
		.exclude_kernel = 1,
		.mmap = 1,
		.mmap2 = 1,
		.build_id = 1,
		.comm = 1,
		.task = 1,
		.use_clockid = 1,
		.clockid = CLOCK_REALTIME,
		.sample_max_stack = (uint16_t)writer->longest,
	};

	memcpy(out, &attr, ATTR_BYTES);
}

static int string_append(struct buffer *out, const char *text)
{
	uint32_t bytes = (uint32_t)ALIGN8(strlen(text) + 1);

	return padded_append(out, &bytes, sizeof(bytes), text);
}

static int event_desc_append(struct buffer *out, const struct writer *writer)
{
	const uint32_t head[] = {1, ATTR_BYTES}, ids = 0;
	uint8_t attr[ATTR_BYTES];
	int err = buffer_append(out, head, sizeof(head));

	attr_set(writer, attr);
	if (!err)
		err = buffer_append(out, attr, sizeof(attr));
	if (!err)
		err = buffer_append(out, &ids, sizeof(ids));
	return err ? err : string_append(out, writer->event);
}

static int build_id_append(struct buffer *out, const struct writer *writer)
{
	struct build_id_record record = {
		.header = {.misc = PERF_RECORD_MISC_USER | BUILD_ID_SIZE_KNOWN,
			   .size = (uint16_t)(sizeof(record) + ALIGN8(strlen(writer->image) + 1))},
		.pid = -1, /* not of one process */
		.id.size = PERF_BUILD_ID_BYTES,
	};

	memcpy(record.id.bytes, writer->build_id, sizeof(record.id.bytes));
	return padded_append(out, &record, sizeof(record), writer->image);
}

/* In the order of their numbers: where each is, then what they say. */
static int features_write(const struct writer *writer, uint64_t offset)
{
	struct file_section sections[FEATURES];
	struct buffer body = {0};
	int err = 0;

	for (int i = 0; !err && i < FEATURES; i++) {
		size_t start = body.size;

		err = i == 0   ? build_id_append(&body, writer)
		      : i == 1 ? string_append(&body, "x86_64")
			       : event_desc_append(&body, writer);
		sections[i] = (struct file_section){.offset = offset + sizeof(sections) + start,
						    .size = body.size - start};
	}
	if (!err)
		err = outfile_write(writer->file, sections, sizeof(sections));
	if (!err)
		err = outfile_write(writer->file, body.data, body.size);
	buffer_free(&body);
	return err;
}

static int header_write(const struct writer *writer, uint64_t data_bytes)
{
	const struct file_header header = {
		.magic = {'P', 'E', 'R', 'F', 'I', 'L', 'E', '2'},
		.size = sizeof(header),
		.attr_size = sizeof(struct file_attr),
		.attrs = {sizeof(header), sizeof(struct file_attr)},
		.data = {sizeof(header) + sizeof(struct file_attr), data_bytes},
		.features = {1ull << FEATURE_BUILD_ID | 1ull << FEATURE_ARCH |
			     1ull << FEATURE_EVENT_DESC},
	};
	struct file_attr attr = {.ids = {sizeof(header), 0}};
	int err = outfile_write(writer->file, &header, sizeof(header));

	attr_set(writer, attr.attr);
	return err ? err : outfile_write(writer->file, &attr, sizeof(attr));
}

static int data_write(struct writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	struct buffer process = {0};
	int err = processes_append(&process, writer);
	uint64_t bytes = process.size;

	for (size_t i = 0; i < snapshot->trace_count; i++) {
		uint32_t nframe = snapshot->tracebacks[snapshot->traces[i].traceback].nframe;

		bytes += sample_bytes(sample_frames(writer, &snapshot->traces[i]));
		writer->cut += nframe > FRAMES_MAX;
		if (nframe > writer->longest)
			writer->longest = nframe < FRAMES_MAX ? nframe : FRAMES_MAX;
	}
	if (!err)
		err = header_write(writer, bytes);
	if (!err)
		err = outfile_write(writer->file, process.data, process.size);
	buffer_free(&process);
	for (size_t i = 0; !err && i < snapshot->trace_count; i++)
		err = sample_write(writer, &snapshot->traces[i]);
	return err ? err
		   : features_write(writer,
				    sizeof(struct file_header) + sizeof(struct file_attr) + bytes);
}

static void remarks(const struct writer *writer)
{
	log_info("the names of Python's functions are in %s, where perf looks for them; perf "
		 "buildid-cache --add FILE lets it find them anywhere",
		 writer->image);
	if (writer->longest > FRAMES_SHOWN)
		log_info("perf shows %u frames of a traceback; the longest has %u: --max-stack %u",
			 FRAMES_SHOWN, writer->longest, writer->longest);
	if (writer->cut)
		log_info("%llu samples have more frames than the %u that fit into one: the oldest "
			 "are left out",
			 (unsigned long long)writer->cut, FRAMES_MAX);
}

/* Of growth mode it is pools, and the large blocks that were followed beside them. */
static const char *event_name(const struct snapshot *snapshot, int counts)
{
	if (snapshot_is_growth(snapshot))
		return counts ? "growth-count" : "growth-bytes";
	return counts ? "live-blocks" : "live-bytes";
}

/* The image first: a perf.data that is there has its names. */
static int perf_export(const struct snapshot *snapshot, const struct export_opts *opts,
		       struct outfile *file)
{
	struct perf_frames frames;
	struct writer writer = {
		.snapshot = snapshot,
		.frames = &frames,
		.file = file,
		.event = event_name(snapshot, opts->counts),
		.counts = opts->counts,
	};
	struct outfile *image;
	int err = outfile_beside(&image, file, IMAGE_SUFFIX);

	if (err == -ENOTSUP)
		return error_set(err, "a perf.data and the names beside it are two files: -o FILE");
	if (err)
		return err;
	err = outfile_location(image, writer.image, sizeof(writer.image));
	if (!err)
		err = perf_frames_new(&frames, snapshot);
	if (!err) {
		err = perf_image_write(outfile_fd(image), &frames, writer.build_id);
		if (!err)
			err = data_write(&writer);
		perf_frames_free(&frames);
	}
	if (err) {
		outfile_discard(image);
		return err;
	}
	err = outfile_commit(image);
	if (!err)
		remarks(&writer);
	return err;
}

const struct exporter export_perf = {
	.name = "perf",
	.help = "a perf.data for perf report, script and annotate; the functions' names are put "
		"beside it",
	.merged = 1,
	.write = perf_export,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A perf.data file, in the form that `perf record` would write. It has one event, "live-bytes"
 * ("live-blocks"; in growth mode "growth-bytes", "growth-count") and one sample per trace: the
 * period is the live bytes, the callchain the traceback. So perf's sums are those of a report.
 *
 * perf needs neither a live process nor a /tmp/perf-PID.map: Python's frames are addresses in an
 * ELF file of our own (perf_data_image.h). A MMAP2 record maps it where no process has memory, into
 * the hole between user space and the kernel's, so addresses of native code can appear unchanged in
 * the same callchains, with MMAP2 records of their own.
 *
 * perf opens the files of a process in the present mount namespace of the process with that PID, if
 * there is one; in a container's namespace it would not find our file. The namespace is that of the
 * process that maps the file. So the file is mapped by a process that cannot exist, and every
 * target is its fork.
 *
 * The file consists of a header, one attribute, records, and three features. Layout:
 * include/uapi/linux/perf_event.h and tools/perf/Documentation/perf.data-file-format.txt of the
 * kernel.
 */
#include <errno.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <string.h>
#include <time.h>

#include "report/export/exporter.h"
#include "report/export/perf_data_format.h"
#include "report/export/perf_data_image.h"
#include "snapshot/estimate.h"
#include "util/arch.h"
#include "util/buffer.h"
#include "util/error.h"
#include "util/id_map.h"
#include "util/text.h"

#define IMAGE_SUFFIX  ".python"
#define IMAGE_ADDRESS (1ull << 60) /* not canonical, with 4 and with 5 levels of page tables */
#define IMAGE_PID     0x7fffffff   /* above the highest possible PID, 2^22 */

#define SAMPLE_TYPE                                                                                \
	(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD |                \
	 PERF_SAMPLE_CALLCHAIN)
#define FRAMES_SHOWN 127u /* shown by perf, unless --max-stack is given */
/*
 * Not a software event of the kernel. PERF_COUNT_SW_DUMMY would work, but perf script leaves its
 * samples blank.
 */
#define EVENT_NOT_COUNTED 0x747261636572ull
#define ALIGN8(bytes)     (((bytes) + 7) & ~(size_t)7)

struct perf_data_writer {
	const struct snapshot *snapshot;
	const struct perf_frames *frames;
	struct outfile *file;
	const char *event;
	int counts;
	char image[PATH_MAX];
	uint8_t build_id[PERF_BUILD_ID_BYTES];
	uint32_t longest; /* traceback, in frames */
	uint64_t cut;     /* samples whose oldest frames do not fit */
};

static uint32_t sample_frames(const struct perf_data_writer *writer,
			      const struct snapshot_trace *trace)
{
	uint32_t nframe = writer->snapshot->tracebacks[trace->traceback].nframe;

	return nframe < FRAMES_MAX ? nframe : FRAMES_MAX;
}

static uint16_t sample_bytes(uint32_t frames)
{
	return (uint16_t)(offsetof(struct sample_record, callchain) +
			  (1 + frames) * sizeof(uint64_t));
}

/* Appends a header and a string, padded to a multiple of 8 bytes. */
static int padded_append(struct buffer *out, const void *head, size_t bytes, const char *text)
{
	static const char padding[8];
	size_t size = strlen(text) + 1;

	return buffer_append(out, head, bytes)
	       ?: buffer_append(out, text, size)
	       ?: buffer_append(out, padding, ALIGN8(size) - size);
}

/* The record of the process that maps the image. */
static int image_append(struct buffer *out, const struct perf_data_writer *writer)
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
 * Appends the fork of a process, unless it has been written (a process that called exec occurs
 * twice), and its name.
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

	return err ?: padded_append(out, &comm, sizeof(comm), shown);
}

/* The records before the samples: the image, the processes, and the number of lost events. */
static int processes_append(struct buffer *out, const struct perf_data_writer *writer)
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

		err = process_append(out, meta, id_map_find(&pids, meta->pid) != ID_MAP_NONE)
			      ?: id_map_put(&pids, meta->pid, (uint32_t)i);
	}
	id_map_free(&pids);
	return err || !lost.lost ? err : buffer_append(out, &lost, sizeof(lost));
}

static int sample_write(struct perf_data_writer *writer, const struct snapshot_trace *trace)
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
	int err = estimate_trace_figures(estimate_chance_of(snapshot, trace), trace, &size, &count);
	if (err)
		return err;
	sample.period = writer->counts ? count : size;
	sample.callchain_size = 1 + nframe;
	sample.callchain[0] = PERF_CONTEXT_USER;
	for (uint32_t i = 0; i < nframe; i++)
		sample.callchain[1 + i] =
			IMAGE_ADDRESS + PERF_SLOT_BYTES / 2 +
			(uint64_t)writer->frames->slots[first + i] * PERF_SLOT_BYTES;
	sample.ip = sample.callchain[1];
	return outfile_write(writer->file, &sample, sample.header.size);
}

static void attr_set(const struct perf_data_writer *writer, uint8_t out[ATTR_BYTES])
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

static int event_desc_append(struct buffer *out, const struct perf_data_writer *writer)
{
	const uint32_t head[] = {1, ATTR_BYTES}, ids = 0;
	uint8_t attr[ATTR_BYTES];
	int err = buffer_append(out, head, sizeof(head));

	attr_set(writer, attr);
	err = err ?: buffer_append(out, attr, sizeof(attr));
	err = err ?: buffer_append(out, &ids, sizeof(ids));
	return err ?: string_append(out, writer->event);
}

static int build_id_append(struct buffer *out, const struct perf_data_writer *writer)
{
	struct build_id_record record = {
		.header = {.misc = PERF_RECORD_MISC_USER | BUILD_ID_SIZE_KNOWN,
			   .size = (uint16_t)(sizeof(record) + ALIGN8(strlen(writer->image) + 1))},
		.pid = -1, /* of no particular process */
		.id.size = PERF_BUILD_ID_BYTES,
	};

	memcpy(record.id.bytes, writer->build_id, sizeof(record.id.bytes));
	return padded_append(out, &record, sizeof(record), writer->image);
}

/*
 * The features in the order of their numbers: first a table of their sections, then the sections.
 */
static int features_write(const struct perf_data_writer *writer, uint64_t offset)
{
	struct file_section sections[FEATURES];
	struct buffer body = {0};
	int err = 0;

	for (int i = 0; !err && i < FEATURES; i++) {
		size_t start = body.size;

		err = i == 0   ? build_id_append(&body, writer)
		      : i == 1 ? string_append(&body, ARCH_UNAME)
			       : event_desc_append(&body, writer);
		sections[i] = (struct file_section){.offset = offset + sizeof(sections) + start,
						    .size = body.size - start};
	}
	err = err ?: outfile_write(writer->file, sections, sizeof(sections));
	err = err ?: outfile_write(writer->file, body.data, body.size);
	buffer_free(&body);
	return err;
}

static int header_write(const struct perf_data_writer *writer, uint64_t data_bytes)
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
	return err ?: outfile_write(writer->file, &attr, sizeof(attr));
}

static int data_write(struct perf_data_writer *writer)
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
	err = err ?: header_write(writer, bytes);
	err = err ?: outfile_write(writer->file, process.data, process.size);
	buffer_free(&process);
	for (size_t i = 0; !err && i < snapshot->trace_count; i++)
		err = sample_write(writer, &snapshot->traces[i]);
	return err ? err
		   : features_write(writer,
				    sizeof(struct file_header) + sizeof(struct file_attr) + bytes);
}

static void caveats(const struct perf_data_writer *writer)
{
	log_info("the names of Python's functions are in %s, where perf looks for them; perf "
		 "buildid-cache --add FILE lets it find them anywhere",
		 writer->image);
	if (writer->longest > FRAMES_SHOWN)
		log_info("perf shows %u frames of a traceback; the longest has %u: use --max-stack "
			 "%u",
			 FRAMES_SHOWN, writer->longest, writer->longest);
	if (writer->cut)
		log_info("%llu samples have more frames than the %u that fit into one: the oldest "
			 "are omitted",
			 (unsigned long long)writer->cut, FRAMES_MAX);
}

/* In growth mode the samples are pools, and the large blocks that were traced beside them. */
static const char *event_name(const struct snapshot *snapshot, int counts)
{
	if (snapshot_is_growth(snapshot))
		return counts ? "growth-count" : "growth-bytes";
	return counts ? "live-blocks" : "live-bytes";
}

/* The image is written first, so that an existing perf.data always has its names. */
static int perf_export(const struct snapshot *snapshot, const struct export_opts *opts,
		       struct outfile *file)
{
	struct perf_frames frames;
	struct perf_data_writer writer = {
		.snapshot = snapshot,
		.frames = &frames,
		.file = file,
		.event = event_name(snapshot, opts->counts),
		.counts = opts->counts,
	};
	struct outfile *image;
	int err = outfile_beside(&image, file, IMAGE_SUFFIX);

	if (err == -ENOTSUP)
		return error_set(err, "a perf.data and its file of names are two files: use -o "
				      "FILE");
	if (err)
		return err;
	err = outfile_location(image, writer.image, sizeof(writer.image))
		      ?: perf_frames_new(&frames, snapshot);
	if (!err) {
		err = perf_image_write(outfile_fd(image), &frames, writer.build_id)
			      ?: data_write(&writer);
		perf_frames_free(&frames);
	}
	if (err) {
		outfile_discard(image);
		return err;
	}
	err = outfile_commit(image);
	if (!err)
		caveats(&writer);
	return err;
}

const struct exporter export_perf = {
	.name = "perf",
	.help = "a perf.data for perf report, script and annotate; a file with the functions' "
		"names is written beside it",
	.merged = 1,
	.write = perf_export,
};

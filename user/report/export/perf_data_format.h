/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of a perf.data file, as far as perf_data.c writes it. Sources:
 * include/uapi/linux/perf_event.h, tools/perf/Documentation/perf.data-file-format.txt.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdint.h>

#include "report/export/perf_data_image.h"

#define FRAMES_MAX 8160u /* limited by the 16-bit size of a record */
#define ATTR_BYTES PERF_ATTR_SIZE_VER5
/* Numbers of features, from tools/perf/util/header.h. */
enum { FEATURE_BUILD_ID = 2, FEATURE_ARCH = 6, FEATURE_EVENT_DESC = 12, FEATURES = 3 };
#define BUILD_ID_SIZE_KNOWN (1u << 15) /* in misc of a build-id record */

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
	uint64_t callchain[1 + FRAMES_MAX]; /* a marker for user space, then addresses */
};

_Static_assert(sizeof(struct file_header) == 104, "perf tells old headers by their size");
_Static_assert(sizeof(struct mmap2_record) == 72, "as in the kernel");
_Static_assert(sizeof(struct build_id_record) == 36, "as in perf");
_Static_assert(sizeof(struct sample_record) <= UINT16_MAX, "the size in a record's header");

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording: a file of snapshots.
 *
 * The file is a header and then records, each a record header and a profile (pprof.h) packed by
 * zstd. A record is appended by one write when it is complete, so a file that was cut at any byte
 * holds all records before that byte; the checksum tells. Numbers are little-endian.
 *
 * A whole record is packed by itself; the first is one. Any other is packed with the profile before
 * it as zstd's prefix: what both have in common takes next to nothing. From a whole one on, the
 * profiles have at most RECORD_RUN bytes until another one follows, so that a reader who wants one
 * snapshot unpacks no more.
 */
#pragma once

#include <stdint.h>

#define RECORDING_MAGIC   "\x89TRACER\n"
#define RECORDING_VERSION 2u
#define RECORD_MAGIC      0x64726352u /* "Rcrd" */
#define RECORD_WHOLE      1u
#define RECORD_RUN        (2ull << 30)
#define RECORD_BYTES_MAX  UINT32_MAX
#define RECORD_RATIO      200u /* bytes of a profile for each of the file until its record's end */

struct recording_header {
	char magic[8];
	uint32_t version;
	uint32_t reserved;
	uint64_t begin_realtime_ns; /* of the recording; all other times count from it */
	uint64_t reserved2;
};

struct record_header {
	uint32_t magic;
	uint32_t flags;
	uint64_t since_ns; /* since the recording began; a clock that does not jump */
	/*
	 * what the targets' cgroups may still use before a limit if all is reclaimed that can be;
	 * UINT64_MAX: no limit known
	 */
	uint64_t memory_left;
	uint64_t reserved;
	uint32_t packed, unpacked; /* bytes of the profile */
	uint32_t checksum;         /* crc32 of the header up to here and of the packed profile */
	uint32_t reserved2;
};

_Static_assert(sizeof(struct recording_header) == 32, "header of the file");
_Static_assert(sizeof(struct record_header) == 48, "header of a record");

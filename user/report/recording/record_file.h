/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording: a file of snapshots, each as the difference to the one before.
 *
 * The file is a header and then records, each a record header and a payload (record_state.h) packed
 * by deflate without a header of its own. A record is appended by one write when it is complete, so
 * a file that was cut at any byte holds all records before that byte; the checksum tells. Numbers
 * are little-endian. A whole record does not need the ones before; the first is one. The packer's
 * dictionary is the beginning of the payload before, unless the record is whole.
 */
#pragma once

#include <stdint.h>

#define RECORDING_MAGIC   "\x89TRACER\n"
#define RECORDING_VERSION 1u
#define RECORD_MAGIC      0x64726352u /* "Rcrd" */
#define RECORD_WHOLE      1u
#define RECORD_DICTIONARY 32768u /* bytes, at most */
#define RECORD_BYTES_MAX  UINT32_MAX
#define RECORD_RATIO      200u /* a payload of more than RECORD_SMALL bytes is packed to 1/200 */
#define RECORD_SMALL      (64u << 20)

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
	uint32_t packed, unpacked; /* bytes of the payload */
	uint32_t checksum;         /* crc32 of the header up to here and of the packed payload */
	uint32_t reserved2;
};

_Static_assert(sizeof(struct recording_header) == 32, "header of the file");
_Static_assert(sizeof(struct record_header) == 48, "header of a record");

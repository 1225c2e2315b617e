/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/recording.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "report/pprof/pprof.h"
#include "report/recording/record_file.h"
#include "util/error.h"

#define DAMAGE_BYTES 160
#define FILL_BYTES   65536u
#define MEMORY_RATIO 64u /* of a snapshot, to its profile */

struct recording {
	struct infile *file;
	struct recording_header header;
	struct record_header record; /* of the next snapshot, once it is known */
	int pending, ended, broken;  /* broken: what was advanced to cannot be unpacked */
	uint64_t last_ns;            /* time of the snapshot before */
	size_t count;
	/* Records that were advanced to and lead from `profile`, or from none, to the snapshot. */
	struct buffer packed;
	uint64_t run;                  /* bytes of the profiles from the whole one on; 0: none */
	struct buffer profile, before; /* before: room for the next one */
	uint64_t profile_at;           /* offset of the record that it is, or should be, of */
	char damage[DAMAGE_BYTES];
};

int recording_is(const struct infile *file)
{
	const size_t bytes = sizeof(RECORDING_MAGIC) - 1;

	return file->end - file->at >= bytes &&
	       !memcmp(file->data + file->at, RECORDING_MAGIC, bytes);
}

int recording_new(struct recording **out, struct infile *file)
{
	struct recording *recording;
	struct recording_header header;
	int err = infile_fill(file, sizeof(header));

	if (err)
		return err;
	if (!recording_is(file))
		return error_set(-EBADMSG, "not a recording of tracer");
	if (file->end - file->at < sizeof(header))
		return error_set(-EBADMSG, "the recording is cut off before its first snapshot");
	memcpy(&header, file->data + file->at, sizeof(header));
	if (header.version != RECORDING_VERSION)
		return error_set(-EBADMSG,
				 "a recording of version %u, which %s tracer made; this one reads "
				 "version %u",
				 header.version,
				 header.version < RECORDING_VERSION ? "an older" : "a newer",
				 RECORDING_VERSION);
	recording = calloc(1, sizeof(*recording));
	if (!recording)
		return -ENOMEM;
	file->at += sizeof(header);
	recording->file = file;
	recording->header = header;
	*out = recording;
	return 0;
}

void recording_free(struct recording *recording)
{
	if (!recording)
		return;
	buffer_free(&recording->packed);
	buffer_free(&recording->profile);
	buffer_free(&recording->before);
	free(recording);
}

const char *recording_damage(const struct recording *recording)
{
	return recording->damage;
}

/* Ends the reading: from this byte on the file is not whole. */
static void damage_at(struct recording *recording, uint64_t offset, const char *why)
{
	recording->ended = 1;
	recording->pending = 0;
	snprintf(recording->damage, sizeof(recording->damage),
		 "the recording is not whole: from byte %llu on %s", (unsigned long long)offset,
		 why);
}

/* The same from the next record on. Returns 0. */
static int damage_set(struct recording *recording, const char *why)
{
	damage_at(recording, infile_offset(recording->file), why);
	return 0;
}

static size_t buffered(const struct recording *recording)
{
	return recording->file->end - recording->file->at;
}

/* Of the file until the end of the next record. */
static uint64_t file_bytes(const struct recording *recording)
{
	return infile_offset(recording->file) + sizeof(recording->record) +
	       recording->record.packed;
}

/* The header of the next record. 1; 0: there is none, or only a part of it; -errno. */
static int header_peek(struct recording *recording)
{
	struct record_header *record = &recording->record;
	int err = infile_fill(recording->file, sizeof(*record));

	if (err)
		return err;
	if (!buffered(recording)) {
		recording->ended = 1;
		return 0;
	}
	if (buffered(recording) < sizeof(*record))
		return damage_set(recording, "a snapshot is cut off");
	memcpy(record, recording->file->data + recording->file->at, sizeof(*record));
	if (record->magic != RECORD_MAGIC)
		return damage_set(recording, "it holds no snapshots");
	if (record->unpacked > account_file_limit(file_bytes(recording), RECORD_RATIO))
		return damage_set(recording, "a snapshot unpacks to more than can be");
	if (record->flags & RECORD_WHOLE)
		recording->run = 0;
	else if (!recording->run || recording->run + record->unpacked > RECORD_RUN)
		return damage_set(recording, "a snapshot lacks the one that it is packed against");
	recording->pending = 1;
	return 1;
}

/* Buffers the record, piece by piece: a header may claim more bytes than the file has. */
static int record_fill(struct recording *recording, size_t bytes)
{
	size_t had = 0;
	int err = 0;

	while (!err && buffered(recording) < bytes && buffered(recording) > had) {
		size_t more = 2 * buffered(recording) + FILL_BYTES;

		had = buffered(recording);
		err = infile_fill(recording->file, more < bytes ? more : bytes);
	}
	return err;
}

/* Its payload is in the file's buffer, and what the checksum says. 1, 0, -errno. */
static int payload_fetch(struct recording *recording)
{
	const struct record_header *record = &recording->record;
	const size_t head = sizeof(*record), summed = offsetof(struct record_header, checksum);
	const unsigned char *data;
	int err = record_fill(recording, head + record->packed);

	if (err)
		return err;
	if (buffered(recording) < head + record->packed)
		return damage_set(recording, "a snapshot is cut off");
	data = recording->file->data + recording->file->at;
	if (crc32(crc32(0, data, (uInt)summed), data + head, record->packed) != record->checksum)
		return damage_set(recording, "a snapshot is damaged: its checksum is wrong");
	return record->since_ns < recording->last_ns ? damage_set(recording, "times run backwards")
						     : 1;
}

/* Takes the record, to be unpacked when its snapshot is wanted. 0, -ENOMEM. */
static int record_take(struct recording *recording)
{
	const struct record_header *record = &recording->record;
	struct infile *file = recording->file;
	const size_t bytes = sizeof(*record) + record->packed;

	if (record->flags & RECORD_WHOLE)
		recording->packed.size = 0;
	int err = buffer_append(&recording->packed, file->data + file->at, bytes);
	if (err)
		return err;
	recording->run += record->unpacked;
	recording->last_ns = record->since_ns;
	recording->pending = 0;
	file->at += bytes;
	return 0;
}

int recording_next(struct recording *recording, uint64_t until_ns, struct recording_moment *moment)
{
	const struct record_header *record = &recording->record;
	int got = recording->ended ? 0 : recording->pending ? 1 : header_peek(recording);

	if (got <= 0 || record->since_ns > until_ns)
		return got < 0 ? got : 0;
	got = payload_fetch(recording);
	if (got <= 0)
		return got;
	int err = record_take(recording);
	if (err)
		return err;
	*moment = (struct recording_moment){
		.index = recording->count++,
		.since_ns = record->since_ns,
		.realtime_ns = recording->header.begin_realtime_ns + record->since_ns,
		.memory_left = record->memory_left,
	};
	return 1;
}

/* Unpacks a record's profile, with the one before as its prefix. 0; -EBADMSG; -ENOMEM. */
static int unpack(ZSTD_DCtx *zstd, const struct record_header *record, const unsigned char *packed,
		  struct recording *recording)
{
	struct buffer *out = &recording->before, *prefix = &recording->profile, swapped = *out;
	int whole = record->flags & RECORD_WHOLE;

	out->size = 0;
	int err = buffer_reserve(out, record->unpacked);
	if (err)
		return err;
	ZSTD_DCtx_refPrefix(zstd, prefix->data, whole ? 0 : prefix->size);
	out->size = ZSTD_decompressDCtx(zstd, out->data, record->unpacked, packed, record->packed);
	if (ZSTD_isError(out->size) || out->size != record->unpacked)
		return -EBADMSG;
	swapped = *out;
	*out = *prefix;
	*prefix = swapped;
	return 0;
}

static int profile_unpack(struct recording *recording)
{
	const struct buffer *packed = &recording->packed;
	ZSTD_DCtx *zstd = ZSTD_createDCtx();
	struct record_header record;
	int err = zstd ? 0 : -ENOMEM;

	for (size_t at = 0; !err && at < packed->size; at += sizeof(record) + record.packed) {
		memcpy(&record, packed->data + at, sizeof(record));
		recording->profile_at = infile_offset(recording->file) - (packed->size - at);
		err = unpack(zstd, &record, packed->data + at + sizeof(record), recording);
	}
	ZSTD_freeDCtx(zstd);
	recording->packed.size = 0;
	recording->broken = err != 0;
	return err;
}

int recording_snapshot(struct recording *recording, struct snapshot **out)
{
	const struct buffer *profile = &recording->profile;
	struct account account = {0};
	int err = recording->broken ? -EBADMSG : profile_unpack(recording);

	account.limit = account_file_limit(profile->size, MEMORY_RATIO);
	err = err ?: pprof_parse_in(&account, profile->data, profile->size, out);
	if (err != -EBADMSG)
		return err;
	damage_at(recording, recording->profile_at, "a snapshot is damaged");
	recording->broken = 1;
	return error_set(-EBADMSG, "%s", recording->damage);
}

int recording_none(const struct recording *recording)
{
	const char *damage = recording->damage;

	return error_set(-EBADMSG, "%s", damage[0] ? damage : "the recording has no snapshot");
}

int recording_bounds_of(struct infile *file, struct recording_bounds *out)
{
	struct recording_moment moment = {0};
	struct recording *recording;
	int more, err = recording_new(&recording, file);

	*out = (struct recording_bounds){0};
	if (err)
		return err;
	while ((more = recording_next(recording, UINT64_MAX, &moment)) > 0)
		out->count++;
	err = more ?: out->count ? 0 : recording_none(recording);
	recording_free(recording);
	out->begin_realtime_ns = moment.realtime_ns - moment.since_ns;
	out->last_ns = moment.since_ns;
	return err;
}

int recording_bounds(const char *path, struct recording_bounds *out)
{
	struct infile file;
	int err = infile_open(&file, path);

	*out = (struct recording_bounds){0};
	if (err)
		return err;
	err = recording_bounds_of(&file, out);
	infile_close(&file);
	return err;
}

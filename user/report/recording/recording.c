/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/recording.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "report/pprof/pprof.h"
#include "report/recording/record_file.h"
#include "report/recording/record_state.h"
#include "util/error.h"

#define DAMAGE_BYTES 160
#define FILL_BYTES   65536u

struct recording {
	struct infile *file;
	struct recording_header header;
	struct account account;
	struct record_state state;
	struct buffer dictionary;
	struct record_header record; /* of the next snapshot, once it is known */
	int pending, ended, broken;  /* broken: the state is not that of a snapshot */
	uint64_t last_ns;            /* time of the snapshot before */
	size_t count;
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
				 "a recording of version %u; this tracer reads version %u",
				 header.version, RECORDING_VERSION);
	recording = calloc(1, sizeof(*recording));
	if (!recording)
		return -ENOMEM;
	file->at += sizeof(header);
	recording->file = file;
	recording->header = header;
	recording->state.account = &recording->account;
	*out = recording;
	return 0;
}

void recording_free(struct recording *recording)
{
	if (!recording)
		return;
	record_state_free(&recording->state);
	buffer_free(&recording->dictionary);
	free(recording);
}

const char *recording_damage(const struct recording *recording)
{
	return recording->damage;
}

/* Ends the reading: from this byte on the file is not whole. Returns 0. */
static int damage_set(struct recording *recording, const char *why)
{
	recording->ended = 1;
	recording->pending = 0;
	snprintf(recording->damage, sizeof(recording->damage),
		 "the recording is not whole: from byte %llu on %s",
		 (unsigned long long)infile_offset(recording->file), why);
	return 0;
}

static size_t buffered(const struct recording *recording)
{
	return recording->file->end - recording->file->at;
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
	if (record->unpacked > RECORD_SMALL && record->unpacked / RECORD_RATIO > record->packed)
		return damage_set(recording, "a snapshot unpacks to more than can be");
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

static int unpack(const struct recording *recording, struct buffer *out)
{
	const struct record_header *record = &recording->record;
	const struct buffer *dictionary = &recording->dictionary;
	z_stream zlib = {0};
	int status = inflateInit2(&zlib, -MAX_WBITS), err = status == Z_OK ? 0 : -ENOMEM;

	if (err)
		return err;
	if (!(record->flags & RECORD_WHOLE) && dictionary->size &&
	    inflateSetDictionary(&zlib, dictionary->data, (uInt)dictionary->size) != Z_OK)
		err = -EIO;
	err = err ?: buffer_reserve(out, record->unpacked + 1);
	if (!err) {
		zlib.next_in = recording->file->data + recording->file->at + sizeof(*record);
		zlib.avail_in = record->packed;
		zlib.next_out = out->data;
		zlib.avail_out = record->unpacked;
		status = inflate(&zlib, Z_FINISH);
		out->size = zlib.total_out;
		if (status != Z_STREAM_END || out->size != record->unpacked || zlib.avail_in)
			err = error_set(-EBADMSG, "its data are damaged");
	}
	inflateEnd(&zlib);
	return err;
}

/* Takes the record's payload into the state. 0, -errno; -EBADMSG: it is damaged. */
static int payload_take(struct recording *recording)
{
	struct buffer payload = {0}, *dictionary = &recording->dictionary;
	int whole = recording->record.flags & RECORD_WHOLE, err = unpack(recording, &payload);

	recording->account.limit = account_file_limit(
		infile_offset(recording->file) + recording->record.packed, PPROF_RATIO);
	if (!err && !whole && !recording->state.width)
		err = error_set(-EBADMSG, "its first snapshot is not whole");
	if (!err && whole)
		record_state_free(&recording->state);
	if (!err)
		err = record_state_apply(&recording->state, (struct span){.data = payload.data,
									  .bytes = payload.size});
	dictionary->size = 0;
	if (!err)
		err = buffer_append(dictionary, payload.data,
				    payload.size < RECORD_DICTIONARY ? payload.size
								     : RECORD_DICTIONARY);
	buffer_free(&payload);
	if (err == -EDQUOT || err == -EOVERFLOW)
		err = error_set(-EFBIG, "takes more memory than a recording of its size may");
	return err;
}

int recording_next(struct recording *recording, uint64_t until_ns, int data,
		   struct recording_moment *moment)
{
	const struct record_header *record = &recording->record;
	int got = recording->ended ? 0 : recording->pending ? 1 : header_peek(recording);

	if (got <= 0 || record->since_ns > until_ns)
		return got < 0 ? got : 0;
	got = payload_fetch(recording);
	if (got <= 0)
		return got;
	if (data) {
		int err = payload_take(recording);

		recording->broken = err != 0;
		if (err == -EBADMSG)
			return damage_set(recording, "a snapshot is damaged");
		if (err)
			return err;
	}
	recording->file->at += sizeof(*record) + record->packed;
	recording->pending = 0;
	recording->last_ns = record->since_ns;
	*moment = (struct recording_moment){
		.index = recording->count++,
		.since_ns = record->since_ns,
		.realtime_ns = recording->header.begin_realtime_ns + record->since_ns,
		.memory_left = record->memory_left,
	};
	return 1;
}

int recording_snapshot(const struct recording *recording, struct snapshot **out)
{
	struct account account = {0};
	struct buffer profile = {0};
	int err = recording->broken
			  ? error_set(-EBADMSG, "the recording is corrupt: its last snapshot")
			  : record_profile(&recording->state, &profile);

	/* The profile is in proportion to the state, and that to the file. */
	account.limit = account_file_limit(profile.size, PPROF_RATIO);
	err = err ?: pprof_parse_in(&account, profile.data, profile.size, out);
	buffer_free(&profile);
	return err;
}

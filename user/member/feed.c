/* SPDX-License-Identifier: Apache-2.0 */
#include "member/state.h"

#include <string.h>

#include "base/buffer.h"
#include "events/capture.h"
#include "member/member.h"

#define RING_BYTES_DEFAULT (64u << 20) /* as struct attach_opts says */
#define RECORD_BYTES_MIN   32u         /* a mark and the ring buffer's own header */

int session_feed(struct session *session, const void *record, size_t size)
{
	int err;

	if (session->opts.capture && !session->capture_error)
		session->capture_error = capture_record(session->opts.capture, record, size);
	err = trace_feed(session->trace, record, size);
	return account_is_full(err) ? err : 0; /* a malformed record is counted there */
}

/* Appends a text of at most EVENT_MAX_TEXT bytes; how many there are. */
static int text_append(struct buffer *record, const char *text, uint16_t *bytes)
{
	size_t size = strnlen(text, EVENT_MAX_TEXT);

	*bytes = (uint16_t)size;
	return buffer_append(record, text, size);
}

static int frame_append(struct buffer *record, const struct symbols_frame *frame)
{
	static const char zeros[8];
	struct event_symbol_frame head = {.line = frame->line};
	size_t at = record->size;
	int err = buffer_append(record, &head, sizeof(head));

	if (!err)
		err = text_append(record, frame->function, &head.function_bytes);
	if (!err)
		err = text_append(record, frame->filename, &head.filename_bytes);
	if (!err)
		err = buffer_append(record, zeros, -record->size & 7);
	if (!err)
		memcpy(record->data + at, &head, sizeof(head));
	return err;
}

int session_feed_symbol(struct session *session, const struct member *member, uint64_t address,
			const struct symbols_frame *frames, uint32_t count, const char *file,
			int slow)
{
	const struct symbols_frame beside = {.function = "", .filename = file ? file : ""};
	struct event_symbol head = {
		.header = {.type = EVENT_SYMBOL,
			   .time_ns = trace_process_at(session->trace, member->index)->end_ns,
			   .tgid = member->pid,
			   .tid = member->pid},
		.address = address,
		.count = count,
		.flags = (slow ? EVENT_SYMBOL_SLOW : 0) | (file ? EVENT_SYMBOL_FILE : 0),
	};
	struct buffer record = {0};
	int err = buffer_append(&record, &head, sizeof(head));

	for (uint32_t i = 0; i < count && !err; i++)
		err = frame_append(&record, &frames[i]);
	if (!err && file)
		err = frame_append(&record, &beside);
	if (!err) {
		((struct event_header *)record.data)->size = (uint32_t)record.size;
		err = session_feed(session, record.data, record.size);
	}
	buffer_free(&record);
	return err;
}

void session_pull(void *context)
{
	struct session *session = context;
	size_t ring = session->opts.ring_bytes ? session->opts.ring_bytes : RING_BYTES_DEFAULT;

	/*
	 * At most what it can have held at the beginning: it may be filled as fast as it is
	 * drained.
	 */
	for (size_t batches = ring / RECORD_BYTES_MIN / SESSION_DRAIN_BATCH + 1; batches; batches--)
		if (attach_drain(session->attach, SESSION_DRAIN_BATCH) < (int)SESSION_DRAIN_BATCH)
			break;
}

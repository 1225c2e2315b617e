/* SPDX-License-Identifier: Apache-2.0 */
#include "member/state.h"

#include "events/capture.h"

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

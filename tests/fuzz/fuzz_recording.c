/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording: the file itself ('F'), or what the checksums and the packing hide from a fuzzer, the
 * payloads one after the other, each with its length in two bytes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "report/pprof/pprof.h"
#include "report/recording/record_state.h"
#include "report/recording/recording.h"
#include "snapshot_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void file_use(unsigned char *data, size_t size)
{
	struct infile file = infile_memory(data, size);
	struct recording_moment moment;
	struct recording *recording;
	struct snapshot *snapshot;

	if (recording_new(&recording, &file))
		return;
	while (recording_next(recording, UINT64_MAX, 1, &moment) > 0)
		if (!recording_snapshot(recording, &snapshot)) {
			snapshot_use(snapshot);
			snapshot_free(snapshot);
		}
	recording_free(recording);
}

/* The state as a snapshot; and a state that is made of its whole payload is the same. */
static void state_use(const struct record_state *state)
{
	struct record_state again = {0};
	struct buffer profile = {0}, payload = {0}, profile_again = {0};
	struct snapshot *snapshot;

	if (!record_profile(state, &profile)) {
		if (!pprof_parse(profile.data, profile.size, &snapshot)) {
			snapshot_use(snapshot);
			snapshot_free(snapshot);
		}
		if (record_payload(state, NULL, NULL, &payload) ||
		    record_state_apply(
			    &again, (struct span){.data = payload.data, .bytes = payload.size}) ||
		    record_profile(&again, &profile_again) || profile.size != profile_again.size ||
		    again.live != state->live ||
		    memcmp(profile.data, profile_again.data, profile.size))
			abort();
	}
	record_state_free(&again);
	buffer_free(&profile);
	buffer_free(&payload);
	buffer_free(&profile_again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct account account = {.limit = 64u << 20};
	struct record_state state = {.account = &account};
	unsigned char *copy = malloc(size + 1);
	size_t at = 1;

	if (!copy)
		abort();
	memcpy(copy, data, size);
	if (size && copy[0] == 'F')
		file_use(copy + 1, size - 1);
	while (size && copy[0] != 'F' && size - at >= 2) {
		size_t bytes = copy[at] | (size_t)copy[at + 1] << 8;

		at += 2;
		bytes = bytes < size - at ? bytes : size - at;
		if (record_state_apply(&state, (struct span){.data = copy + at, .bytes = bytes}))
			break;
		state_use(&state);
		at += bytes;
	}
	record_state_free(&state);
	if (account.used)
		abort();
	free(copy);
	return 0;
}

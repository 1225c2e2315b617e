/* SPDX-License-Identifier: Apache-2.0 */
/* Which labels of a profile's samples are values in a recording (record_state.h). */
#ifndef TRACER_RECORDING_PROFILE_LABELS_H
#define TRACER_RECORDING_PROFILE_LABELS_H

#include "recording/record_state.h"

/* Labels of samples whose blocks have a mean size: of what was allocated, of what was freed. */
enum { MEAN_ALLOCATED, MEAN_LIFETIME, MEAN_LABELS };

/* Indices of the strings that name labels; 0: the profile has none. Zero-initialise. */
struct label_keys {
	uint64_t values[RECORD_LABELS], means[MEAN_LABELS];
};

struct label_read {
	uint64_t key, number;
	int is_text; /* number is the index of a string */
};

/* Takes note of the profile's string at that index. */
void label_keys_add(struct label_keys *keys, struct span text, uint64_t index);
struct label_read label_read(struct span message);
/* The enum record_label of a label; RECORD_LABELS: it is none of the values. */
int label_value(const struct label_keys *keys, const struct label_read *label, int of_mean);
/* Do the sample's blocks have a mean size, which changes from snapshot to snapshot? */
int sample_is_of_mean(const struct label_keys *keys, struct span sample);

#endif

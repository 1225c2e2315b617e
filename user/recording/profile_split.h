/* SPDX-License-Identifier: Apache-2.0 */
/* Takes a profile that pprof_write_unpacked() wrote apart into the state of a recording. */
#ifndef TRACER_RECORDING_PROFILE_SPLIT_H
#define TRACER_RECORDING_PROFILE_SPLIT_H

#include "recording/record_state.h"

/*
 * Adds what the profile has to the state's items, and sets its header and its rows, which were
 * those of the snapshot before: samples that the profile does not have get rows of zeros.
 * 0; -EBADMSG (error_set); -ESTALE: rows have another width, the state is to begin anew; -ENOMEM,
 * -EOVERFLOW. After an error the state is not to be used.
 */
int profile_split(struct record_state *state, struct span profile);

#endif

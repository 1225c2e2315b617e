/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a model. Included by the files of the model only. */
#ifndef TRACER_WATCH_MODEL_SUMS_H
#define TRACER_WATCH_MODEL_SUMS_H

#include "watch/model.h"

int watch_malformed(void); /* -EBADMSG, error_set() */
/*
 * Takes the entries of a process's answer, process->info.entries of them. Its stacks have been
 * added. 0; -EBADMSG, -ENOMEM.
 */
int watch_sums_take(struct watch_model *model, struct watch_process *process,
		    const struct sums_entry *entries);
/* Puts what it holds into the present slot. */
void watch_sums_remember(const struct watch_model *model, struct watch_process *process);
/* The names, process->info.threads of them. Errors as above. */
int watch_threads_take(struct watch_process *process, const struct sums_thread *threads);
/* Its stack has another text than before. serial: of the last answer. */
void watch_sum_rename(struct watch_process *process, uint32_t index, uint32_t serial);
void watch_sums_forget(struct watch_process *process);

#endif

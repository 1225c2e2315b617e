/* SPDX-License-Identifier: Apache-2.0 */
/* Where the sites of plans are in the memory of a process. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "probe/python/plan.h"
#include "proc/process.h"

struct plan_place {
	uint64_t address;
	uint32_t kind; /* sites of one link have the same */
};

/* Zero-initialise. */
struct plan_text {
	struct plan_place *places; /* in the order of plans and sites */
	size_t count, capacity;
};

/* Selects sites. */
typedef bool (*plan_text_filter)(const void *context, const struct plan_site *site);

/*
 * Adds those of the plan's sites that filter selects and that are mapped as code of the file. 0,
 * -ENOMEM, -errno.
 */
int plan_text_add(struct plan_text *text, const struct process_maps *maps, const struct plan *plan,
		  const struct elf_file *file, plan_text_filter filter, const void *context);
void plan_text_free(struct plan_text *text);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan held against the file's own exported allocators: whatever PyObject_Malloc and its kin
 * do, their code leads to places that are probed, or what is allocated through them is not seen.
 */
#ifndef TRACER_PLAN_PLAN_ENDS_H
#define TRACER_PLAN_PLAN_ENDS_H

#include "elf/elf_file.h"
#include "plan/plan.h"

#define PLAN_ENDS 12u

/*
 * The exported allocators whose code was followed and came to no site of a kind that it must come
 * to: their names, static, at most PLAN_ENDS. What cannot be followed is left out. mode: of the
 * sites. Their number, or -ENOMEM.
 */
int plan_ends_unknown(struct elf_file *file, const struct plan_site *sites, size_t count,
		      enum event_mode mode, const char *out[PLAN_ENDS]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the plan against the file's own exported allocators: the code of PyObject_Malloc and its
 * kin must lead to probed sites, otherwise their requests are not seen.
 */
#pragma once

#include "object/elf/elf_file.h"
#include "probe/python/plan.h"

#define PLAN_ENDS 12u

/*
 * Names the exported allocators whose code was followed and does not reach a site of every kind
 * that it must reach. The names are static, at most PLAN_ENDS. Functions that cannot be followed
 * are left out. mode: of the sites. Returns their number, or -ENOMEM.
 */
int plan_ends_unknown(struct elf_file *file, const struct plan_site *sites, size_t count,
		      enum event_mode mode, const char *out[PLAN_ENDS]);

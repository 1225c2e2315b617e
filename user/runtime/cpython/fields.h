/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields of objects that no PyMemberDef of their type names: those of builtin and extension
 * types that are written in C. Their offsets count from the end of the object's header, so they
 * hold in every build of a version.
 */
#pragma once

#include <stdint.h>

struct object_field {
	const char *name;
	int is_attribute; /* 1: in Python, object.name is what it refers to */
};

/* The field at an offset in objects of the type with that tp_name. 1: *out has it; 0. */
int field_find(const char *type, uint32_t version, uint64_t offset, struct object_field *out);

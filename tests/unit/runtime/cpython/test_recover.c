/* SPDX-License-Identifier: Apache-2.0 */
/* What is recovered of an interpreter without its file: names of types, pymalloc's arenas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpython/recover.h"
#include "runtime/cpython/types.h"

#define OBJECT 0x1000u
#define BASE   0x10000000ull

/* A type with a name in modules, so many times, and attributes ("": none). */
static struct recovered_type type_make(uint64_t address, uint64_t flags, const char *public,
				       uint32_t times, const char *first, const char *second)
{
	struct recovered_type type = {.address = address, .base = OBJECT, .flags = flags};
	const char *const attributes[] = {first, second};

	if (public[0])
		type.publics[recover_public(public)] = times;
	for (size_t i = 0; i < 2; i++)
		if (attributes[i][0])
			type.attributes |= 1ull << recover_attribute(attributes[i]);
	return type;
}

static void named(const struct recovered_type *type, const char *name)
{
	assert_non_null(type->name);
	assert_string_equal(type->name, name);
}

static void types_are_named_by_their_signs(void **state)
{
	struct recovered_type types[] = {
		type_make(OBJECT, 0, "", 0, "__reduce_ex__", "__dir__"),
		type_make(0x1100, 1ull << 25, "", 0, "", ""),
		type_make(0x1200, 1ull << 29, "bool", 9, "", ""),
		type_make(0x1300, 0, "", 0, "co_filename", ""),
		type_make(0x1400, 0, "", 0, "__self__", "__func__"),
		type_make(0x1500, 0, "", 0, "__self__", "__text_signature__"),
		type_make(0x1600, 0, "", 0, "__dict__", "__dir__"),
		type_make(0x1700, 0, "bool", 3, "", ""),
		type_make(0x1800, 0, "bool", 2, "", ""),
		type_make(0x1900, 0, "", 0, "__callback__", ""),
		type_make(0x1a00, 0, "GetSetDescriptorType", 1, "", ""),
	};

	(void)state;
	types[10].base = 0x1700; /* no type of the interpreter's by its flags */
	types[10].flags = 1ull << 25;
	recover_names(types, 11, OBJECT, 0x0308);
	named(&types[0], "object");
	named(&types[1], "list");
	named(&types[2], "dict");
	named(&types[3], "code");
	named(&types[4], "method");
	named(&types[5], "builtin_function_or_method");
	named(&types[6], "module");
	named(&types[7], "bool");
	assert_null(types[8].name);
	named(&types[9], "weakref");
	named(&types[10], "getset_descriptor");
	recover_names(types, 11, OBJECT, 0x030b);
	named(&types[9], "weakref.ReferenceType");
	assert_int_equal(recover_public("IOError"), -1);
	assert_int_equal(recover_attribute(""), -1);
}

/* Variables of an interpreter of 3.11, then an array of arena objects. */
struct heap_image {
	uint64_t variables[64];
	uint8_t objects[64][48];
};

static int image_read(void *context, uint64_t address, void *out, size_t bytes)
{
	if (address < BASE || address - BASE > sizeof(struct heap_image) ||
	    bytes > sizeof(struct heap_image) - (address - BASE))
		return -EFAULT;
	memcpy(out, (uint8_t *)context + (address - BASE), bytes);
	return 0;
}

static int arenas_find(struct heap_image *image, struct runtime_found *out)
{
	const struct memory_reader read = {image_read, image};

	return recover_arenas(offsets_for(0x030b, BUILD_RELEASE), &read,
			      (const uint8_t *)image->variables, sizeof(image->variables), BASE,
			      out);
}

/* The array of `length`, of which all but the last two are in use. */
static void array_fill(struct heap_image *image, uint32_t length)
{
	uint64_t objects = BASE + offsetof(struct heap_image, objects);

	memset(image, 0xff, sizeof(*image));
	memset(image->objects, 0, length * sizeof(image->objects[0]));
	for (uint32_t i = 0; i < length; i++) {
		uint64_t words[6] = {0x7f0000000000 + ((uint64_t)i << 20), 0, 3ull | 63ull << 32};

		words[1] = words[0] + 0x4000;
		if (i >= length - 2)
			memset(words, 0, sizeof(words));
		if (i == length - 2)
			words[4] = objects + (uint64_t)(i + 1) * sizeof(image->objects[0]);
		memcpy(image->objects[i], words, sizeof(words));
	}
	image->variables[20] = objects;
	image->variables[3] = length;
	image->variables[23] = (uint64_t)length << 32 | 7;
}

static void arenas_are_found_by_their_form(void **state)
{
	struct heap_image *image = malloc(sizeof(*image));
	struct runtime_found found = {0};

	(void)state;
	for (uint32_t length = 16; length <= 64; length *= 2) {
		array_fill(image, length);
		assert_int_equal(arenas_find(image, &found), 0);
		assert_int_equal(found.arenas, BASE + 20 * 8);
		assert_int_equal(found.maxarenas, BASE + 23 * 8 + 4);
	}
	/* A word that leads to no array, and an array whose length no variable has. */
	array_fill(image, 32);
	image->variables[20] += 16;
	assert_int_equal(arenas_find(image, &found), -ENOENT);
	array_fill(image, 32);
	image->variables[3] = image->variables[23] = 0;
	assert_int_equal(arenas_find(image, &found), -ENOENT);
	/* An arena whose pools are elsewhere. */
	array_fill(image, 32);
	memset(&image->objects[5][8], 0x11, 8);
	assert_int_equal(arenas_find(image, &found), -ENOENT);
	free(image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(types_are_named_by_their_signs),
		cmocka_unit_test(arenas_are_found_by_their_form),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

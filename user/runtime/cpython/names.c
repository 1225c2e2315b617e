/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three signs name a static type, in this order.
 *
 * 	flags       of the builtin types that the interpreter tests by a bit of tp_flags
 * 	attributes  a descriptor {type of the descriptor, d_type, d_name} says that d_type has an
 * 	            attribute of that name
 * 	public      an entry {key, value} of a dictionary, such as those of the modules builtins and
 * 	            types, gives the type a name. A name is the type's that has it most often
 */
#include <string.h>

#include "runtime/cpython/types.h"
#include "util/array.h"

#define FLAG_INT       24u /* Py_TPFLAGS_*_SUBCLASS */
#define FLAG_EXCEPTION 30u

static const char *const flagged[] = {"int", "list", "tuple",         "bytes",
				      "str", "dict", "BaseException", "type"};
static const uint8_t flag_bits[] = {FLAG_INT, 25, 26, 27, 28, 29, FLAG_EXCEPTION, 31};

/* Names of attributes that tell types apart; their number is a bit of struct recovered_type. */
static const char *const attributes[] = {
	"co_filename",
	"f_back",
	"__kwdefaults__",
	"__self__",
	"__text_signature__",
	"__objclass__",
	"__func__",
	"gi_frame",
	"cr_frame",
	"ag_frame",
	"cell_contents",
	"tb_frame",
	"__dict__",
	"__dir__",
	"__reduce_ex__",
	"__callback__",
	"symmetric_difference_update",
	"symmetric_difference",
	"cast",
	"release",
	"fromhex",
	"extend",
	"hex",
	"is_integer",
	"imag",
	"conjugate",
	"fget",
	"pop",
	"keys",
	"copy",
	"run",
	"fromkeys",
	"__init__",
};

#define ATTRIBUTES (ARRAY_SIZE(attributes))
_Static_assert(ATTRIBUTES <= 64, "a bit each");

#define RULE 3 /* attributes */

/* The first rule that holds: attributes that it has, and that it has not. */
static const struct {
	const char *name, *has[RULE], *lacks[RULE];
} rules[] = {
	{"code", {"co_filename"}, {NULL}},
	{"frame", {"f_back"}, {NULL}},
	{"function", {"__kwdefaults__"}, {NULL}},
	{"method-wrapper", {"__self__", "__objclass__"}, {NULL}},
	{"builtin_function_or_method", {"__self__", "__text_signature__"}, {"__objclass__"}},
	{"method", {"__self__", "__func__"}, {NULL}},
	{"generator", {"gi_frame"}, {NULL}},
	{"coroutine", {"cr_frame"}, {NULL}},
	{"async_generator", {"ag_frame"}, {NULL}},
	{"cell", {"cell_contents"}, {NULL}},
	{"traceback", {"tb_frame"}, {NULL}},
	{"weakref", {"__callback__"}, {NULL}},
	{"set", {"symmetric_difference_update"}, {NULL}},
	{"frozenset", {"symmetric_difference"}, {"symmetric_difference_update"}},
	{"memoryview", {"cast", "release"}, {NULL}},
	{"bytearray", {"fromhex", "extend"}, {NULL}},
	{"float", {"hex", "is_integer"}, {"extend"}},
	{"complex", {"imag", "conjugate"}, {"is_integer"}},
	{"property", {"fget"}, {NULL}},
	{"mappingproxy", {"keys", "copy"}, {"pop", "run", "fromkeys"}},
	{"module", {"__dict__", "__dir__"}, {"__reduce_ex__", "__func__"}},
};

/* Types of descriptors, by an attribute that each version describes by one of them. */
static const char *const descriptors[][2] = {
	{"member_descriptor", "co_filename"},  {"getset_descriptor", "cell_contents"},
	{"method_descriptor", "cast"},         {"wrapper_descriptor", "__init__"},
	{"classmethod_descriptor", "fromhex"},
};

/* What modules call a type, and its own name if it has another. */
static const struct {
	const char *key, *name;
} publics[] = {
	{"ArithmeticError", NULL},
	{"AssertionError", NULL},
	{"AttributeError", NULL},
	{"BaseExceptionGroup", NULL},
	{"BlockingIOError", NULL},
	{"BrokenPipeError", NULL},
	{"BufferError", NULL},
	{"BytesWarning", NULL},
	{"ChildProcessError", NULL},
	{"ConnectionAbortedError", NULL},
	{"ConnectionError", NULL},
	{"ConnectionRefusedError", NULL},
	{"ConnectionResetError", NULL},
	{"DeprecationWarning", NULL},
	{"EOFError", NULL},
	{"EncodingWarning", NULL},
	{"Exception", NULL},
	{"FileExistsError", NULL},
	{"FileNotFoundError", NULL},
	{"FloatingPointError", NULL},
	{"FutureWarning", NULL},
	{"GeneratorExit", NULL},
	{"ImportError", NULL},
	{"ImportWarning", NULL},
	{"IndentationError", NULL},
	{"IndexError", NULL},
	{"InterruptedError", NULL},
	{"IsADirectoryError", NULL},
	{"KeyError", NULL},
	{"KeyboardInterrupt", NULL},
	{"LookupError", NULL},
	{"MemoryError", NULL},
	{"ModuleNotFoundError", NULL},
	{"NameError", NULL},
	{"NotADirectoryError", NULL},
	{"NotImplementedError", NULL},
	{"OSError", NULL},
	{"OverflowError", NULL},
	{"PendingDeprecationWarning", NULL},
	{"PermissionError", NULL},
	{"ProcessLookupError", NULL},
	{"PythonFinalizationError", NULL},
	{"RecursionError", NULL},
	{"ReferenceError", NULL},
	{"ResourceWarning", NULL},
	{"RuntimeError", NULL},
	{"RuntimeWarning", NULL},
	{"StopAsyncIteration", NULL},
	{"StopIteration", NULL},
	{"SyntaxError", NULL},
	{"SyntaxWarning", NULL},
	{"SystemError", NULL},
	{"SystemExit", NULL},
	{"TabError", NULL},
	{"TimeoutError", NULL},
	{"TypeError", NULL},
	{"UnboundLocalError", NULL},
	{"UnicodeDecodeError", NULL},
	{"UnicodeEncodeError", NULL},
	{"UnicodeError", NULL},
	{"UnicodeTranslateError", NULL},
	{"UnicodeWarning", NULL},
	{"UserWarning", NULL},
	{"ValueError", NULL},
	{"Warning", NULL},
	{"ZeroDivisionError", NULL},
	{"bool", NULL},
	{"bytearray", NULL},
	{"classmethod", NULL},
	{"complex", NULL},
	{"enumerate", NULL},
	{"filter", NULL},
	{"float", NULL},
	{"frozendict", NULL},
	{"frozenset", NULL},
	{"map", NULL},
	{"memoryview", NULL},
	{"property", NULL},
	{"range", NULL},
	{"reversed", NULL},
	{"set", NULL},
	{"slice", NULL},
	{"staticmethod", NULL},
	{"super", NULL},
	{"zip", NULL},
	{"FunctionType", "function"},
	{"CodeType", "code"},
	{"MappingProxyType", "mappingproxy"},
	{"SimpleNamespace", "types.SimpleNamespace"},
	{"CellType", "cell"},
	{"GeneratorType", "generator"},
	{"CoroutineType", "coroutine"},
	{"AsyncGeneratorType", "async_generator"},
	{"MethodType", "method"},
	{"BuiltinFunctionType", "builtin_function_or_method"},
	{"WrapperDescriptorType", "wrapper_descriptor"},
	{"MethodWrapperType", "method-wrapper"},
	{"MethodDescriptorType", "method_descriptor"},
	{"ClassMethodDescriptorType", "classmethod_descriptor"},
	{"ModuleType", "module"},
	{"TracebackType", "traceback"},
	{"FrameType", "frame"},
	{"GetSetDescriptorType", "getset_descriptor"},
	{"MemberDescriptorType", "member_descriptor"},
	{"GenericAlias", "types.GenericAlias"},
	{"UnionType", "types.UnionType"},
	{"EllipsisType", "ellipsis"},
	{"NoneType", NULL},
	{"NotImplementedType", NULL},
	{"ProxyType", "weakproxy"},
	{"CallableProxyType", "weakcallableproxy"},
	{"dict_keys", NULL},
	{"dict_values", NULL},
	{"dict_items", NULL},
	{"dict_keyiterator", NULL},
	{"dict_valueiterator", NULL},
	{"dict_itemiterator", NULL},
	{"list_iterator", NULL},
	{"tuple_iterator", NULL},
	{"set_iterator", NULL},
	{"str_iterator", NULL},
	{"range_iterator", NULL},
	{"bytes_iterator", NULL},
	{"OrderedDict", "collections.OrderedDict"},
	{"deque", "collections.deque"},
	{"defaultdict", "collections.defaultdict"},
	{"_tuplegetter", "_collections._tuplegetter"},
	{"partial", "functools.partial"},
	{"_lru_cache_wrapper", "functools._lru_cache_wrapper"},
	{"chain", "itertools.chain"},
	{"count", "itertools.count"},
	{"cycle", "itertools.cycle"},
	{"islice", "itertools.islice"},
	{"repeat", "itertools.repeat"},
	{"date", "datetime.date"},
	{"datetime", "datetime.datetime"},
	{"time", "datetime.time"},
	{"timedelta", "datetime.timedelta"},
	{"timezone", "datetime.timezone"},
	{"BufferedRandom", "_io.BufferedRandom"},
	{"BufferedReader", "_io.BufferedReader"},
	{"BufferedWriter", "_io.BufferedWriter"},
	{"BytesIO", "_io.BytesIO"},
	{"FileIO", "_io.FileIO"},
	{"StringIO", "_io.StringIO"},
	{"TextIOWrapper", "_io.TextIOWrapper"},
	{"LockType", "_thread.lock"},
	{"RLock", "_thread.RLock"},
	{"Match", "re.Match"},
	{"Pattern", "re.Pattern"},
};

#define PUBLICS (ARRAY_SIZE(publics))
_Static_assert(PUBLICS <= RECOVER_PUBLICS, "a count each");

int recover_attribute(const char *text)
{
	for (size_t i = 0; i < ATTRIBUTES; i++)
		if (!strcmp(attributes[i], text))
			return (int)i;
	return -1;
}

int recover_public(const char *text)
{
	for (size_t i = 0; i < PUBLICS; i++)
		if (!strcmp(publics[i].key, text))
			return (int)i;
	return -1;
}

static const char *flag_name(const struct recovered_type *type, uint64_t object)
{
	if (type->address == object)
		return "object";
	for (size_t i = 0; i < sizeof(flag_bits) && type->base == object; i++)
		if (type->flags >> flag_bits[i] & 1)
			return flagged[i];
	return NULL;
}

/* 1: the type has all of the attributes (want 1) or none of them (0). */
static int attributes_match(const struct recovered_type *type, const char *const names[RULE],
			    int want)
{
	for (size_t i = 0; i < RULE && names[i]; i++)
		if ((int)(type->attributes >> recover_attribute(names[i]) & 1) != want)
			return 0;
	return 1;
}

static const char *rule_name(const struct recovered_type *type)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if (attributes_match(type, rules[i].has, 1) &&
		    attributes_match(type, rules[i].lacks, 0))
			return rules[i].name;
	for (size_t i = 0; i < ARRAY_SIZE(descriptors); i++)
		if (type->describes >> recover_attribute(descriptors[i][1]) & 1)
			return descriptors[i][0];
	return NULL;
}

static bool is_taken(const struct recovered_type *types, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (types[i].name && !strcmp(types[i].name, name))
			return 1;
	return 0;
}

static void public_name(struct recovered_type *types, size_t count, size_t number)
{
	const char *name = publics[number].name ?: publics[number].key;
	struct recovered_type *best = NULL;

	if (is_taken(types, count, name))
		return;
	for (size_t i = 0; i < count; i++)
		if (!types[i].name && types[i].publics[number] &&
		    (!best || types[i].publics[number] > best->publics[number]))
			best = &types[i];
	if (best)
		best->name = name;
}

/* Some types have another name from a version on. */
static const char *version_name(const char *name, uint32_t version)
{
	static const struct {
		uint32_t version;
		const char *before, *after;
	} renamed[] = {
		{0x030a, "weakref", "weakref.ReferenceType"},
		{0x030a, "weakproxy", "weakref.ProxyType"},
		{0x030a, "weakcallableproxy", "weakref.CallableProxyType"},
		{0x030e, "types.UnionType", "typing.Union"},
	};

	for (size_t i = 0; name && i < ARRAY_SIZE(renamed); i++)
		if (version >= renamed[i].version && !strcmp(name, renamed[i].before))
			return renamed[i].after;
	return name;
}

void recover_names(struct recovered_type *types, size_t count, uint64_t object, uint32_t version)
{
	for (size_t i = 0; i < count; i++)
		types[i].name = flag_name(&types[i], object);
	for (size_t i = 0; i < count; i++) {
		const char *name = types[i].name ? NULL : rule_name(&types[i]);

		if (name && !is_taken(types, count, name))
			types[i].name = name;
	}
	for (size_t i = 0; i < PUBLICS; i++)
		public_name(types, count, i);
	for (size_t i = 0; i < count; i++)
		types[i].name = version_name(types[i].name, version);
}

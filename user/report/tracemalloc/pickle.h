/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pickle instructions in tracemalloc's files, with the names of Lib/pickle.py, for
 * tracemalloc_read.c and tracemalloc_write.c.
 */
#pragma once

enum pickle_opcode {
	PICKLE_MARK = '(',
	PICKLE_STOP = '.',
	PICKLE_BININT = 'J',
	PICKLE_BININT1 = 'K',
	PICKLE_BININT2 = 'M',
	PICKLE_NONE = 'N',
	PICKLE_BINUNICODE = 'X',
	PICKLE_APPEND = 'a',
	PICKLE_BUILD = 'b',
	PICKLE_GLOBAL = 'c',
	PICKLE_APPENDS = 'e',
	PICKLE_BINGET = 'h',
	PICKLE_LONG_BINGET = 'j',
	PICKLE_BINPUT = 'q',
	PICKLE_LONG_BINPUT = 'r',
	PICKLE_SETITEM = 's',
	PICKLE_TUPLE = 't',
	PICKLE_SETITEMS = 'u',
	PICKLE_EMPTY_DICT = '}',
	PICKLE_EMPTY_LIST = ']',
	PICKLE_EMPTY_TUPLE = ')',
	PICKLE_PROTO = 0x80,
	PICKLE_NEWOBJ = 0x81,
	PICKLE_TUPLE1 = 0x85,
	PICKLE_TUPLE2 = 0x86,
	PICKLE_TUPLE3 = 0x87,
	PICKLE_LONG1 = 0x8a,
	PICKLE_SHORT_BINUNICODE = 0x8c,
	PICKLE_BINUNICODE8 = 0x8d,
	PICKLE_STACK_GLOBAL = 0x93,
	PICKLE_MEMOIZE = 0x94,
	PICKLE_FRAME = 0x95,
};

#define PICKLE_MODULE   "tracemalloc"
#define PICKLE_SNAPSHOT "Snapshot"
#define PICKLE_TRACES   "_Traces"

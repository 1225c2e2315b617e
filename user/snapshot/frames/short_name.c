/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass over the name. Outside of all brackets, a space ends a return type, so what was written
 * before it is dropped. A '<' behind a name begins arguments, which are skipped; elsewhere it
 * begins Rust's "<Type as Trait>", which is written with its own arguments skipped. A '(' begins
 * parameters, but for "(anonymous namespace)" and "operator()".
 */
#include "snapshot/frames/short_name.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define ANONYMOUS "(anonymous namespace)"
#define OPERATOR  "operator"
#define CUT       "..." /* ends a name that was too long */

struct short_name_scan {
	const char *at; /* the rest of the name */
	char *out;
	size_t bytes;    /* written */
	size_t begin;    /* in out: what follows a return type */
	int types;       /* depth of Rust's <Type as Trait> */
	int parameters;  /* there was a list of them */
	int is_cut;      /* the name ends within brackets */
	int is_operator; /* a conversion: "operator unsigned long" */
};

static void put(struct short_name_scan *scan, char c)
{
	scan->out[scan->bytes++] = c;
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || (unsigned char)c >= 0x80;
}

static int begins_with(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

/* Is that the last word that was written? */
static int ends_in(const struct short_name_scan *scan, const char *word)
{
	const size_t length = strlen(word);

	return scan->bytes - scan->begin >= length &&
	       !memcmp(scan->out + scan->bytes - length, word, length) &&
	       (scan->bytes - scan->begin == length ||
		!is_word(scan->out[scan->bytes - length - 1]));
}

/*
 * Skips what is in brackets, from the opening one on. Comparisons and arrows in arguments
 * ("operator<", "->") are no brackets.
 */
static void brackets_skip(struct short_name_scan *scan)
{
	int depth = 0;

	for (; *scan->at; scan->at++) {
		char c = *scan->at;

		if (begins_with(scan->at, OPERATOR "<") || begins_with(scan->at, OPERATOR ">")) {
			scan->at += sizeof(OPERATOR) - 1;
			while (scan->at[1] == '<' || scan->at[1] == '>' || scan->at[1] == '=')
				scan->at++;
		} else if (c == '-' && scan->at[1] == '>') {
			scan->at++;
		} else if (strchr("<([{", c)) {
			depth++;
		} else if (strchr(">)]}", c) && !--depth) {
			scan->at++;
			return;
		}
	}
	scan->is_cut = 1;
}

/* "{lambda(int)#1}", "{{closure}}": written without parameters. */
static void braces_copy(struct short_name_scan *scan)
{
	int depth = 0;

	while (*scan->at) {
		char c = *scan->at;

		if (c == '(' || c == '<') {
			brackets_skip(scan);
			continue;
		}
		depth += (c == '{') - (c == '}');
		put(scan, c);
		scan->at++;
		if (!depth)
			return;
	}
	scan->is_cut = 1;
}

/* The name of an operator, behind "operator". */
static void operator_copy(struct short_name_scan *scan)
{
	if (begins_with(scan->at, "()") || begins_with(scan->at, "[]")) {
		put(scan, *scan->at++);
		put(scan, *scan->at++);
		return;
	}
	while (*scan->at && strchr("<>=!+-*/%^&|~,", *scan->at))
		put(scan, *scan->at++);
	if (*scan->at == ' ' && scan->at[1] == '<') /* arguments of operator< */
		scan->at++;
	if (*scan->at == ' ' && is_word(scan->at[1])) { /* new, delete, a type */
		put(scan, *scan->at++);
		scan->is_operator = 1;
	}
}

static void parenthesis_take(struct short_name_scan *scan)
{
	if (begins_with(scan->at, ANONYMOUS)) {
		memcpy(scan->out + scan->bytes, ANONYMOUS, sizeof(ANONYMOUS) - 1);
		scan->bytes += sizeof(ANONYMOUS) - 1;
		scan->at += sizeof(ANONYMOUS) - 1;
		return;
	}
	brackets_skip(scan);
	if (ends_in(scan, "decltype")) /* a return type */
		return;
	scan->parameters = 1;
	scan->is_operator = 0;
	/* What follows them, unless it is a name within the function, says how it is called. */
	if (!begins_with(scan->at, "::") && !begins_with(scan->at, " const::"))
		scan->at += strlen(scan->at);
	else if (*scan->at == ' ')
		scan->at += strlen(" const");
}

/* Skips "::" that was written before generic arguments: Rust's "collect::<Vec<u8>>". */
static void angle_take(struct short_name_scan *scan)
{
	char last = scan->bytes > scan->begin ? scan->out[scan->bytes - 1] : 0;

	if (last == ':' && scan->bytes - scan->begin >= 2) {
		scan->bytes -= 2;
		brackets_skip(scan);
	} else if (is_word(last) || last == ']' || last == '}' || last == ')' ||
		   (!scan->types && last)) {
		brackets_skip(scan);
	} else {
		scan->types++;
		put(scan, *scan->at++);
	}
}

/* A character that is not a word's. */
static void mark_take(struct short_name_scan *scan)
{
	char c = *scan->at;

	if (c == '<') {
		angle_take(scan);
	} else if (c == '>' && scan->types) {
		scan->types--;
		put(scan, *scan->at++);
	} else if (c == '(' && !scan->types) {
		parenthesis_take(scan);
	} else if (c == '{') {
		braces_copy(scan);
	} else if (c == '[' && !scan->types && !(scan->is_operator && scan->at[1] == ']')) {
		brackets_skip(scan);
	} else if (c == ' ' && !scan->types && !scan->is_operator) {
		/* not before "[clone .cold]" */
		if (scan->at[1] != '[')
			scan->begin = scan->bytes;
		scan->at++;
	} else {
		put(scan, *scan->at++);
	}
}

/* "::h0123456789abcdef", which old demanglers leave. */
static size_t hash_length(const char *name, size_t bytes)
{
	const size_t length = sizeof("::h0123456789abcdef") - 1;

	if (bytes <= length || memcmp(name + bytes - length, "::h", 3) != 0)
		return 0;
	for (size_t i = bytes - 16; i < bytes; i++)
		if (!isxdigit((unsigned char)name[i]))
			return 0;
	return length;
}

static void name_scan(struct short_name_scan *scan)
{
	while (*scan->at) {
		if (!is_word(*scan->at)) {
			mark_take(scan);
			continue;
		}
		while (is_word(*scan->at))
			put(scan, *scan->at++);
		if (!scan->types && ends_in(scan, OPERATOR))
			operator_copy(scan);
	}
}

size_t short_name(const char *name, char *out, enum short_name_form *form)
{
	struct short_name_scan scan = {.at = name, .out = out};
	size_t length = strlen(name);

	/* "[libc.so.6+0x1234]", "<unknown>" */
	if (name[0] != '[' && (name[0] != '<' || strstr(name, ">::")))
		name_scan(&scan);
	if (form)
		*form = scan.parameters ? NAME_PARAMETERS : NAME_PLAIN;
	if (scan.types || scan.bytes == scan.begin) {
		memcpy(out, name, length + 1);
		return length;
	}
	scan.bytes -= scan.begin;
	memmove(out, out + scan.begin, scan.bytes);
	scan.bytes -= hash_length(out, scan.bytes);
	if (scan.is_cut && scan.bytes + sizeof(CUT) <= length + 1) {
		memcpy(out + scan.bytes, CUT, sizeof(CUT) - 1);
		scan.bytes += sizeof(CUT) - 1;
	}
	out[scan.bytes] = '\0';
	return scan.bytes;
}

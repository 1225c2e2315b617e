/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdio.h>

/* Writes a text of a page: what would be a part of HTML is escaped, also within an attribute. */
void html_text(FILE *out, const char *text);

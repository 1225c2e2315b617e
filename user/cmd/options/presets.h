/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of --by for what well-known libraries keep in variables. A preset is another way to write a
 * path (runtime/cpython/labels.h): snapshots have the path.
 */
#pragma once

#include "runtime/cpython/labels.h"

/*
 * word: a preset's name, and ":KEY" of one that takes a key. 0; -ENOENT: there is no such preset;
 * -EINVAL (error_set).
 */
int presets_parse(const char *word, struct label_spec *out);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer serve --open: the browser is started by a process of its own, since the one that serves
 * may start nothing. The link is not in its arguments, which every user of the machine can read: it
 * is in a file of the user's that leads to it.
 */
#pragma once

/*
 * Starts that process, as the user who has called sudo if one has. Returns a descriptor, which
 * takes the link and is closed at the end; -errno (error_set).
 */
int serve_open_begin(void);

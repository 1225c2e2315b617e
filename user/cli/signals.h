/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRACER_CLI_SIGNALS_H
#define TRACER_CLI_SIGNALS_H

/*
 * Between on and off the signals that would end us (SIGINT, SIGTERM, SIGHUP) are read from *fd, a signalfd that does not
 * block; it is opened if it is -1, and the caller's to close. On before anybody is told that we have attached; off while a
 * command has not come to its Python yet, so that it can be given up. 0, -errno.
 */
int signals_catch(int *fd, int on);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which service a process is of, and which version of it: the OpenTelemetry resource attributes
 * service.name and service.version, as it publishes them (process context, OTEP 4719: a mapping of
 * the name OTEL_CTX), else as the environment that it began with has them (OTEL_SERVICE_NAME,
 * OTEL_RESOURCE_ATTRIBUTES). It may have written anything there since.
 * https://opentelemetry.io/docs/specs/otel/resource/sdk/
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESS_SERVICE_TEXT 128 /* bytes, with the NUL; the rest is cut off */

struct process_service {
	char name[PROCESS_SERVICE_TEXT], version[PROCESS_SERVICE_TEXT]; /* "": not known */
};

/* From an environment: "NAME=VALUE" with a NUL each. Pure. */
void process_service_parse(const char *environment, size_t bytes, struct process_service *out);
/*
 * From the payload of a process context: a message Resource, or one whose first field is such. What
 * it has replaces what *out has. Pure.
 */
void process_service_decode(const uint8_t *payload, size_t bytes, struct process_service *out);
struct space;
/*
 * Of a process, whose memory is space; NULL: only the environment is read. Nothing is known if
 * neither can be read.
 */
void process_service_read(pid_t pid, struct space *space, struct process_service *out);

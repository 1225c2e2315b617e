/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of the agent's web server that are made of figures. Pure. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "cmd/agent/figures.h"

/* docs/metrics.md: as OpenMetrics 1.0, or in Prometheus's format 0.0.4. */
void metrics_write(FILE *out, const struct figures *figures, bool openmetrics);
/* docs/schema/agent-targets.json */
void targets_write(FILE *out, const struct figures *figures);
/* An HTML page without scripts. */
void index_write(FILE *out, const struct figures *figures);

#pragma once
// The public API. Everything else under src/ may change.
//
//   Model    builds a network op by op                         models/model.h
//   TrainingRun  plans it for a device, holds weights, steps   train/run.h
//   Graph, Plan, Trace and passes over them                    graph/, passes/pass.h

#include "base/error.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "models/model.h"
#include "models/zoo.h"
#include "passes/pass.h"
#include "report/perfetto.h"
#include "train/loop.h"
#include "train/run.h"

#pragma once
// The public API: everything that is installed. What lies under src/ may change at any time.
//
//   Model           builds a network op by op               model.h
//   build_model     gives a network of the zoo by its name  zoo.h
//   Graph, Plan     what a step consists of, and its order  graph.h, plan.h
//   RunSpec         what a user wants of a training run     run_spec.h
//   Machine         where steps run                         machine.h
//   CostModel       what tasks take there                   cost_model.h
//   compile         makes a Program of model, spec, machine compile.h, program.h
//   simulate        what a step of it takes                 simulate.h
//   Trainer         runs it                                 trainer.h
//   UserError       what the user gave is wrong             error.h
//   version()       which Overtake this is                  version.h

#include "overtake/cluster.h"
#include "overtake/cluster_options.h"
#include "overtake/compile.h"
#include "overtake/cost_model.h"
#include "overtake/error.h"
#include "overtake/graph.h"
#include "overtake/layout.h"
#include "overtake/machine.h"
#include "overtake/matmul_view.h"
#include "overtake/memory_level.h"
#include "overtake/model.h"
#include "overtake/optimizer_settings.h"
#include "overtake/pass.h"
#include "overtake/pipeline_schedule.h"
#include "overtake/plan.h"
#include "overtake/program.h"
#include "overtake/run_spec.h"
#include "overtake/simulate.h"
#include "overtake/target.h"
#include "overtake/task_cost.h"
#include "overtake/trainer.h"
#include "overtake/types.h"
#include "overtake/version.h"
#include "overtake/virtual_link.h"
#include "overtake/zoo.h"

#include <fmt/ranges.h>

#include "run/field.h"

namespace overtake {
namespace {

constexpr auto kTrain = static_cast<std::uint8_t>(Command::train);
constexpr auto kBench = static_cast<std::uint8_t>(Command::bench);
constexpr auto kPlan = static_cast<std::uint8_t>(Command::plan);
constexpr auto kSimulate = static_cast<std::uint8_t>(Command::simulate);
// Commands that compute something, those that plan it, and all.
constexpr std::uint8_t kRuns = kTrain | kBench, kPlans = kTrain | kPlan | kSimulate, kAll = kRuns | kPlans;
constexpr Bounds kAtLeastOne{.least = 1}, kFraction{.most = 1, .is_below_most = true},
    kUpTo1024{.least = 1, .most = 1024}, kDevices{.least = 1, .most = 65535}, kSeconds{.least = 0.1, .most = 1e6};

// Without these a step still computes what it should.
const std::vector<std::string_view> kOptionalPasses = {"recognise",        "fold_transposes",  "fuse",
                                                       "fuse_elementwise", "join_projections", "pad_classes",
                                                       "fuse_gradients",   "share_concats",    "group_updates"};

const std::vector<std::string_view> kAlgorithms = {"auto",         "ring",       "tree",      "halving-doubling",
                                                   "hierarchical", "in-network", "nvls-tree", "torus"};

// See Field::has_own_place.
Field with_own_place(Field field) {
  field.has_own_place = true;
  return field;
}
// See Field::decides_plan.
Field deciding(Field field) {
  field.decides_plan = true;
  return field;
}

// See Field::describes_machine.
Field of_machine(Field field) {
  field.describes_machine = true;
  return field;
}

// See Field::group.
Field of_group(Together group, Field field) {
  field.group = group;
  return field;
}

// In the order in which the CLI shows them.
std::vector<Field> make_fields() {
  using S = RunSpec;
  using enum OnResume;
  using enum AcrossRanks;
  return {
      // The network and where it starts.
      deciding(
          with_own_place({"model", &S::model, "a network of the zoo (`overtake models` lists them) or an ONNX file",
                          another_run, equal, kAll})),
      deciding(with_own_place(
          {"set", &S::settings, "settings of the network, for example layers=6,width=512", another_run, equal, kAll})),
      {"init", &S::init, "weights to start from (.safetensors, under the names PyTorch gives them)", another_run, equal,
       kRuns},
      {"init_skip", &S::init_skip, "beginnings of names that `init` passes over, for example fc.", another_run, equal,
       kRuns},
      deciding({"loss",
                &S::loss,
                "of an ONNX file: cross-entropy or mse",
                another_run,
                equal,
                kAll,
                {},
                {"cross-entropy", "mse"}}),
      deciding({"output", &S::output, "of an ONNX file: which output is trained; default: the first", another_run,
                equal, kAll}),
      deciding({"accept_folded", &S::accept_folded,
                "of an ONNX file: train what is left where the export dropped or folded parameters", another_run, equal,
                kAll}),
      deciding({"freeze", &S::freeze, "beginnings of names of weights that are not trained, for example features.",
                another_run, equal, kAll}),
      deciding({"train_tensors", &S::train_tensors,
                "of an ONNX file that does not say it: beginnings of names of tensors that are trained, for example "
                "layer_scale; * for all",
                another_run, equal, kAll}),
      deciding(
          with_own_place({"batch", &S::batch,
                          "samples per step, over all devices; default: the network's own, or the next multiple of "
                          "the pieces that it is cut into",
                          another_run, equal, kAll, kAtLeastOne})),
      with_own_place({"seed", &S::seed, "of weights, order of samples and dropout", another_run, equal, kRuns}),

      // How weights are updated.
      {"lr", &S::lr, "learning rate", allowed, equal, kRuns},
      deciding({"optimizer", &S::optimizer, "sgd or adamw", another_run, equal, kAll, {}, {"sgd", "adamw"}}),
      deciding({"momentum", &S::momentum, "of sgd", another_run, equal, kAll, kFraction}),
      deciding({"nesterov", &S::nesterov, "Nesterov's momentum", another_run, equal, kAll}),
      deciding({"weight_decay", &S::weight_decay, "as PyTorch's sgd or adamw", another_run, equal, kAll}),
      deciding({"beta1", &S::beta1, "of adamw: decay of the mean of gradients", another_run, equal, kAll, kFraction}),
      deciding({"beta2", &S::beta2, "of adamw: decay of the mean of squared gradients", another_run, equal, kAll,
                kFraction}),
      deciding({"eps", &S::eps, "of adamw: added to the root of that mean", another_run, equal, kAll}),
      deciding(
          {"clip_norm", &S::clip_norm, "bound on the global norm of the gradients; 0: none", allowed, equal, kAll}),

      // Where a step runs, and what it is planned for.
      {"device", &S::device, "cpu, cuda, cuda:NUMBER, or null (computes nothing)", last_bits, own, kRuns | kPlan},
      of_machine({"machine", &S::machine,
                  "machine to plan for: a file (docs/machines.md) or a preset, for example dgx-h100:4; default: this "
                  "one, measured; of simulate: h200",
                  free, equal, kPlans}),
      of_machine({"devices", &S::devices,
                  "numbers of the devices of `machine` to run on, replica by replica, for example 0-3,8; default: the "
                  "first ones",
                  free, equal, kPlans}),
      of_machine({"algorithm",
                  &S::algorithm,
                  "of collectives on `machine`: auto (as NCCL), ring, tree, halving-doubling, "
                  "hierarchical, in-network, nvls-tree, torus",
                  free,
                  equal,
                  kPlans,
                  {},
                  kAlgorithms}),
      of_machine({"chunk", &S::chunk, "on `machine` a more urgent collective goes first after so many bytes; 0: never",
                  free, equal, kPlans}),
      {"plan", &S::plan, "a plan file to run, by `overtake plan`, instead of planning", once, equal, kRuns},
      {"trials", &S::trials,
       "take the plan that is predicted to be the fastest instead of trying the best few for real", free, equal,
       kRuns | kPlan},
      deciding({"precision",
                &S::precision,
                "f32, tf32 (GPUs), or bf16 with float32 weights and sums; default: bf16 on GPUs, else f32",
                another_run,
                equal,
                kAll,
                {},
                {"f32", "tf32", "bf16"}}),
      {"threads", &S::threads, "default: all cores", free, own, kRuns | kPlan, kUpTo1024},
      deciding({"parts", &S::parts, "fixed pieces that sums are cut into; default: as many as cores", last_bits, rank_0,
                kAll, kUpTo1024}),
      deciding(
          {"memory_cap", &S::memory_cap,
           "most memory that a step may take on a device, for example 2G; default: all that the device has, and on a "
           "single device at most a tenth more out of order than in order",
           free, own, kAll}),
      {"plan_seconds",
       &S::plan_seconds,
       "seconds that planning may take: measuring tasks, searching, trying plans; default: 5, or 5 % of the run where "
       "that is more; of `overtake plan` and `overtake bench`: as long as it needs",
       free,
       own,
       kRuns | kPlan,
       {.least = 0.001}},
      {"fresh_profile", &S::fresh_profile,
       "plan anew: measure the tasks and try plans instead of using what was found last time", once, own,
       kRuns | kPlan},
      deciding({"skip_pass",
                &S::skip_passes,
                fmt::format("leave out a pass ({}), for experiments", fmt::join(kOptionalPasses, ", ")),
                last_bits,
                equal,
                kAll,
                {},
                kOptionalPasses}),
      {"tuning", &S::tuning, "on GPUs: take a library's first kernel instead of the fastest measured one", last_bits,
       own, kRuns | kPlan},
      {"graph", &S::graph, "on GPUs: launch task by task instead of one graph per step, for measuring", free, own,
       kRuns | kPlan},
      {"side_sms", &S::side_sms,
       "on GPUs: how many SMs (streaming multiprocessors) the tasks on side lanes may use; default: all", free, own,
       kRuns | kPlan},
      {"virtual_gpus", &S::virtual_gpus,
       "on GPUs: split one into so many, each with SMs of its own, as devices for the step", free, equal,
       kRuns | kPlan},
      {"virtual_link", &S::virtual_link,
       "bandwidth and latency between virtual GPUs, for example 25GB/s,5us; default: as fast as memory", free, equal,
       kRuns | kPlan},
      deciding({"layouts", &S::layouts, "back to row-major after every layer, for measuring what layouts bring",
                last_bits, equal, kAll}),

      // What is trained on, and for how long.
      {"data", &S::data,
       "fashion-mnist[:DIR], synthetic[:N], text:FILE, masked-text:FILE, or npy:X.npy,Y.npy[,XTEST.npy,YTEST.npy] "
       "(without test files every tenth sample is the test); default: synthetic, for networks of the zoo",
       another_run, equal},
      {"scale", &S::scale,
       "of npy data: what float inputs are multiplied by, a number or a fraction; arrays of bytes need it, pixels for "
       "example 1/255",
       another_run, equal},
      {"channels_last", &S::channels_last,
       "of npy data: its samples are [H, W, C] or [L, C] where the model takes [C, H, W] or [C, L]", another_run,
       equal},
      of_group(Together::length,
               {"steps", &S::steps, "steps in all, those before `resume` included; default: by epochs", allowed, equal,
                kTrain, kAtLeastOne}),
      of_group(Together::length, {"epochs", &S::epochs, "passes over the data", allowed, equal, kTrain, kAtLeastOne}),
      {"lr_schedule", &S::lr_schedule, "constant, step:EVERY:GAMMA, or cosine[:END]", allowed, equal},
      {"warmup", &S::warmup, "steps of linear warm-up", allowed, equal},
      {"augment", &S::augment, "flip and shift images at random", another_run, equal},
      deciding({"schedule",
                &S::schedule,
                "of every device's tasks: in-order, ooo (weight gradients on lanes of their own), or auto (whichever "
                "is faster)",
                free,
                equal,
                kPlans,
                {},
                {"in-order", "ooo", "auto"}}),

      // Several devices.
      of_group(Together::layout, deciding({"dp", &S::replicas, "replicas of the model, each with its part of the batch",
                                           allowed, equal, kPlans, kDevices})),
      of_group(Together::layout, deciding({"pp", &S::stages, "stages of a pipeline", free, equal, kPlans, kDevices})),
      of_group(Together::layout,
               deciding({"micro_batches", &S::micro_batches,
                         "pieces of a replica's part of the batch, which it takes one after the other", allowed, equal,
                         kAll, kDevices})),
      of_group(Together::within_layout,
               deciding({"pipeline", &S::pipeline, "schedule of the pipeline, a name of docs/pipelines.md or search",
                         allowed, equal, kPlans})),
      of_group(Together::within_layout, deciding({"chunks", &S::chunks, "per device, of `pipeline interleaved`", free,
                                                  equal, kPlans, kDevices})),
      of_group(Together::within_layout,
               deciding({"chunk_stages", &S::chunk_stages, "blocks per chunk, of `pipeline modulo`", free, equal,
                         kPlans, kDevices})),
      of_group(
          Together::within_layout,
          deciding({"two_way", &S::two_way, "of `pipeline search`: layers may be on two devices, as dualpipe has them",
                    free, equal, kPlans})),
      deciding({"search_tries", &S::search_tries,
                "of searches, for pipelines and for lanes: schedules to try; default: what takes a few seconds", free,
                equal, kAll, kAtLeastOne}),
      of_group(
          Together::within_layout,
          deciding(
              {"reduce",
               &S::reduce,
               "how replicas bring gradients together: buckets (as PyTorch DDP), by-layer (priorities), scatter-gather "
               "(across the step), first-k (by-layer, some weight gradients last), or auto (whichever is the fastest)",
               free,
               equal,
               kPlans,
               {},
               {"buckets", "by-layer", "scatter-gather", "first-k", "auto"}})),
      of_group(
          Together::within_layout,
          deciding(
              {"first_k", &S::first_k,
               "of `reduce first-k`: how many layers' weight gradients come last, the first ones' or, as 12@30, those "
               "of the 12 after the first 30; default: whatever is the fastest",
               free, equal, kPlans})),
      of_group(
          Together::within_layout,
          deciding({"bucket", &S::bucket, "of `reduce buckets`: bytes in one, for example 25M", free, equal, kPlans})),
      of_group(Together::layout,
               deciding({"gradient_groups", &S::gradient_groups,
                         "with one replica: add up micro-batches in so many groups first, as so many replicas would; "
                         "the weights are then the same to the bit",
                         allowed, equal, kAll, kDevices})),
      {"predict", &S::predict, "say what a step was predicted to take, beside what it took", once, equal},
      of_group(Together::within_layout, deciding({"sync_batch_norm", &S::sync_batch_norm,
                                                  "with `dp`: batch norms take their statistics from all replicas",
                                                  allowed, equal, kTrain | kPlan})),
      deciding({"recompute", &S::recompute, "activations are computed again for the gradients instead of kept", free,
                equal, kPlan | kSimulate}),
      deciding({"blocks", &S::blocks, "most blocks that a step is divided by; default: as fine as schedules need", free,
                equal, kPlans, kAtLeastOne}),
      {"time_out", &S::time_out, "seconds after which a process that is silent counts as lost", free, own, kTrain,
       kSeconds},
      {"patience", &S::patience,
       "seconds that a process which is heard may keep the others waiting: it may measure, read or save", free, own,
       kTrain, kSeconds},

      // What is written and taken up.
      {"save", &S::save, "checkpoint to write, for example runs/cnn; default: that of `resume`", once, rank_0},
      {"save_every", &S::save_every, "steps between checkpoints; 0: at the end only", free, equal},
      {"keep", &S::keep, "how many of the newest saves stay on disk, each a checkpoint to go on from", free, equal,
       kTrain, kAtLeastOne},
      {"resume", &S::resume,
       "checkpoint to go on from, with all that its run was given; the result is as if never stopped", once, rank_0},
      {"trace", &S::trace, "timeline of the last steps, of all processes, for `overtake report` and ui.perfetto.dev",
       once, rank_0},
  };
}

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> all = make_fields();
  return all;
}

}  // namespace overtake

#include <fmt/ranges.h>

#include "run/field.h"

namespace overtake {
namespace {

constexpr auto kTrain = static_cast<std::uint8_t>(Command::train);
constexpr std::uint8_t kBoth = kTrain | static_cast<std::uint8_t>(Command::bench);
constexpr Bounds kAtLeastOne{.least = 1}, kFraction{.most = 1, .is_below_most = true},
    kUpTo1024{.least = 1, .most = 1024}, kDevices{.least = 1, .most = 65535}, kSeconds{.least = 0.1, .most = 1e6};

// Without these a step still computes what it should.
const std::vector<std::string_view> kOptionalPasses = {"recognise",        "fold_transposes",  "fuse",
                                                       "fuse_elementwise", "join_projections", "pad_classes",
                                                       "fuse_gradients",   "share_concats",    "group_updates"};

// See Field::has_own_place.
Field with_own_place(Field field) {
  field.has_own_place = true;
  return field;
}

// In the order of --help.
std::vector<Field> make_fields() {
  using S = RunSpec;
  using enum OnResume;
  using enum AcrossRanks;
  return {
      // The network and where it starts.
      with_own_place({"model", &S::model, "a network of the zoo (`overtake models` lists them) or an ONNX file",
                      another_run, equal, kBoth}),
      with_own_place(
          {"set", &S::settings, "settings of the network, for example layers=6,width=512", another_run, equal, kBoth}),
      {"init", &S::init, "weights to start from (.safetensors, under the names PyTorch gives them)", another_run, equal,
       kBoth},
      {"init_skip", &S::init_skip, "beginnings of names that `init` passes over, for example fc.", another_run, equal,
       kBoth},
      {"loss", &S::loss, "of an ONNX file: cross-entropy or mse", another_run, equal, kBoth},
      {"output", &S::output, "of an ONNX file: which output is trained; default: the first", another_run, equal, kBoth},
      {"freeze", &S::freeze, "beginnings of names of weights that are not trained, for example features.", another_run,
       equal, kBoth},
      with_own_place(
          {"batch", &S::batch, "samples per step; default: the network's", another_run, equal, kBoth, kAtLeastOne}),
      with_own_place({"seed", &S::seed, "of weights, order of samples and dropout", another_run, equal, kBoth}),

      // How weights are updated.
      {"lr", &S::lr, "learning rate", another_run, equal, kBoth},
      {"optimizer", &S::optimizer, "sgd or adamw", another_run, equal, kBoth, {}, {"sgd", "adamw"}},
      {"momentum", &S::momentum, "of sgd", another_run, equal, kBoth, kFraction},
      {"nesterov", &S::nesterov, "Nesterov's momentum", another_run, equal, kBoth},
      {"weight_decay", &S::weight_decay, "as PyTorch's sgd or adamw", another_run, equal, kBoth},
      {"beta1", &S::beta1, "of adamw: decay of the mean of gradients", another_run, equal, kBoth, kFraction},
      {"beta2", &S::beta2, "of adamw: decay of the mean of squared gradients", another_run, equal, kBoth, kFraction},
      {"eps", &S::eps, "of adamw: added to the root of that mean", another_run, equal, kBoth},
      {"clip_norm", &S::clip_norm, "bound on the global norm of the gradients; 0: none", another_run, equal, kBoth},

      // Where and how a step runs.
      {"device", &S::device, "cpu, cuda, cuda:NUMBER, or null (computes nothing)", last_bits, own, kBoth},
      {"precision", &S::precision,
       "f32, tf32 (GPUs), or bf16 with float32 weights and sums; default: bf16 on GPUs, else f32", another_run, equal,
       kBoth},
      {"threads", &S::threads, "default: all cores", free, own, kBoth, kUpTo1024},
      {"parts", &S::parts, "fixed pieces that sums are cut into; default: as many as cores", last_bits, rank_0, kBoth,
       kUpTo1024},
      {"memory_cap", &S::memory_cap,
       "most memory to plan with, for example 2G; default: out of order may take a tenth more than in order", free, own,
       kBoth},
      {"plan_seconds", &S::plan_seconds,
       "most time to search for a schedule; measuring for it takes at most twice as long", free, own, kBoth},
      {"fresh_profile", &S::fresh_profile, "measure the tasks anew instead of using what was measured last time", free,
       own, kBoth},
      {"skip_pass",
       &S::skip_passes,
       fmt::format("leave out a pass ({}), for experiments", fmt::join(kOptionalPasses, ", ")),
       last_bits,
       equal,
       kBoth,
       {},
       kOptionalPasses},
      {"tuning", &S::tuning, "on GPUs: take a library's first kernel instead of the fastest measured one", last_bits,
       own, kBoth},
      {"graph", &S::graph, "on GPUs: launch task by task instead of one graph per step, for measuring", free, own,
       kBoth},
      {"side_sms", &S::side_sms, "on GPUs: only so many SMs for what runs beside the main lane; default: all", free,
       own, kBoth},
      {"virtual_gpus", &S::virtual_gpus,
       "on GPUs: split one into so many, each with SMs of its own, as devices for the step", free, equal, kBoth},
      {"virtual_link", &S::virtual_link,
       "bandwidth and latency between virtual GPUs, for example 25GB/s,5us; default: as fast as memory", free, equal,
       kBoth},
      {"layouts", &S::layouts, "back to row-major after every layer, for measuring what layouts bring", last_bits,
       equal, kBoth},

      // What is trained on, and for how long.
      {"data", &S::data,
       "fashion-mnist[:DIR], synthetic[:N], text:FILE, masked-text:FILE, or npy:X.npy,Y.npy[,XTEST.npy,YTEST.npy] "
       "(without test files every tenth sample is the test)",
       another_run, equal},
      {"steps", &S::steps, "steps in all, those before `resume` included; default: by epochs", allowed, equal, kTrain,
       kAtLeastOne},
      {"epochs", &S::epochs, "passes over the data", allowed, equal, kTrain, kAtLeastOne},
      {"lr_schedule", &S::lr_schedule, "constant, step:EVERY:GAMMA, or cosine[:END]", another_run, equal},
      {"warmup", &S::warmup, "steps of linear warm-up", another_run, equal},
      {"augment", &S::augment, "flip and shift images at random", another_run, equal},
      {"schedule", &S::schedule, "of one device: in-order, ooo, or auto (whichever measures faster)", free, equal},

      // Several devices.
      {"dp", &S::replicas, "replicas of the model, each with its part of the batch", allowed, equal, kTrain, kDevices},
      {"pp", &S::stages, "stages of a pipeline", free, equal, kTrain, kDevices},
      {"micro_batches", &S::micro_batches,
       "pieces of a replica's part of the batch, which it takes one after the other", allowed, equal, kBoth, kDevices},
      {"pipeline", &S::pipeline, "schedule of the pipeline, as `overtake simulate` names them, or search", allowed,
       equal},
      {"search_tries", &S::search_tries,
       "of the pipeline search: schedules to try; default: what takes about two seconds", free, equal, kTrain,
       kAtLeastOne},
      {"reduce", &S::reduce,
       "how replicas bring gradients together: buckets, by-layer, scatter-gather, first-k, or auto (whichever is "
       "predicted, and then measured, to be the fastest)",
       free, equal},
      {"first_k", &S::first_k,
       "of `reduce first-k`: how many layers' weight gradients come last, the first ones' or, as 12@30, those of the "
       "12 after the first 30; default: as predicted and measured to be the fastest",
       free, equal},
      {"bucket", &S::bucket, "of `reduce buckets`: bytes in one, for example 25M", free, equal},
      {"gradient_groups", &S::gradient_groups,
       "with one replica: add up micro-batches in so many groups first, as so many replicas would; the weights are "
       "then the same to the bit",
       allowed, equal, kBoth, kDevices},
      {"predict", &S::predict, "say what a step was predicted to take, beside what it took", free, equal},
      {"sync_batch_norm", &S::sync_batch_norm, "with `dp`: batch norms take their statistics from all replicas",
       allowed, equal},
      {"time_out", &S::time_out, "seconds after which a process that is silent counts as lost", free, own, kTrain,
       kSeconds},
      {"patience", &S::patience,
       "seconds that a process which is heard may keep the others waiting: it may measure, read or save", free, own,
       kTrain, kSeconds},

      // What is written and taken up.
      {"save", &S::save, "checkpoint to write, for example runs/cnn", free, rank_0},
      {"save_every", &S::save_every, "steps between checkpoints; 0: at the end only", free, equal},
      {"resume", &S::resume, "checkpoint to go on from; the result is as if never stopped", free, rank_0},
      {"trace", &S::trace, "timeline of the last steps, of all processes, for `overtake report` and ui.perfetto.dev",
       free, rank_0},
  };
}

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> all = make_fields();
  return all;
}

}  // namespace overtake

"""The runs that compare_runs.py does with two programs. Each is short, and the same on every machine."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Run:
    """What both programs do: commands one after the other, of which the last one counts.

    In commands, OWN/ is a folder of the program for this run, OLD/ is that of the old program, and (A|B) is the first
    of several spellings that the program knows; an empty one is always known.
    """
    name: str
    commands: tuple
    status: int = 0

    def is_training(self):
        return self.name.split("/")[0] not in ("simulate", "validate")


# All that `overtake models` lists, with settings that train in seconds. Batch norms at the end of a network see more
# than one pixel, so that losses are finite.
SMALL_IMAGES = "--set image=64,width=8,classes=10"
SMALL_WORDS = "--set sequence=16,positions=16,width=32,heads=4,vocabulary=64"
NETWORKS = {
    "ffnn": "", "lenet": "", "cnn": "--set width=4", "resnet-32-cifar": "",
    "vgg-16": "--set image=32,width=8,hidden=64,classes=10",
    "resnet-18": SMALL_IMAGES, "resnet-34": SMALL_IMAGES, "resnet-50": SMALL_IMAGES, "resnet-101": SMALL_IMAGES,
    "resnet-152": SMALL_IMAGES,
    "densenet-121": "--set image=64,growth=8,classes=10", "densenet-169": "--set image=64,growth=8,classes=10",
    "mobilenet-v3-large": "--set image=64,classes=10",
    "inception-v3": "--set image=128,width_multiplier=0.25,classes=10",
    "inception-v4": "--set image=128,width_multiplier=0.25,classes=10",
    "vit-b-16": "--set image=32,width=32,heads=4,layers=4,classes=10",
    "lstm": "--set sequence=16,width=32,hidden=32", "gru": "--set sequence=16,width=32,hidden=32",
    "transformer": "--set sequence=16,width=32,heads=4,layers=4",
    "gpt2": SMALL_WORDS + ",layers=4", "gpt3-medium": SMALL_WORDS + ",layers=4",
    "bert-12": SMALL_WORDS, "bert-24": SMALL_WORDS, "bert-36": SMALL_WORDS, "bert-48": SMALL_WORDS}
ADAMW = "--optimizer adamw --lr 1e-3"


def training(model, flags, batch=4, steps=3):
    """A short training, the same on every machine: sums are always cut into two parts."""
    return (f"train {model} {NETWORKS[model]} --batch {batch} --steps {steps} --data synthetic:64 --seed 3 --parts 2 "
            f"--plan-seconds 1 --json {flags}")


def runs_of_networks():
    for model in NETWORKS:
        yield Run(f"network/{model}/in-order",
                  (training(model, "--schedule in-order --momentum 0.9 --nesterov --weight-decay 1e-4"),))
        yield Run(f"network/{model}/ooo", (training(model, f"--schedule ooo --clip-norm 1 {ADAMW}"),))


def runs_of_optimizers():
    flags = {"sgd": "--momentum 0", "sgd-clip": "--clip-norm 0.1", "adamw": f"{ADAMW} --weight-decay 0.1",
             "adamw-clip": f"{ADAMW} --clip-norm 0.1", "rates": "--lr-schedule cosine:0.001 --warmup 2 --augment",
             "freeze": "--freeze stem.,stage1.", "adamw-decays": f"{ADAMW} --beta1 0.8 --beta2 0.9 --eps 1e-5"}
    for name, text in flags.items():
        yield Run(f"optimizer/{name}", (training("cnn", f"--schedule in-order {text}", batch=8, steps=5),))


def runs_of_schedules():
    for model in ("ffnn", "lenet", "cnn", "resnet-18", "densenet-121", "inception-v3", "gpt2", "bert-12", "lstm"):
        yield Run(f"schedule/{model}/auto", (training(model, "--schedule auto", batch=8),))
    for threads in (1, 3):
        yield Run(f"schedule/cnn/ooo-threads-{threads}",
                  (training("cnn", f"--schedule ooo --threads {threads}", batch=8),))
    yield Run("schedule/cnn/fresh-profile", (training("cnn", "--schedule ooo --fresh-profile", batch=8),))
    yield Run("schedule/cnn/no-layouts", (training("cnn", "--schedule ooo --no-layouts", batch=8),))


def runs_of_micro_batches():
    for schedule in ("in-order", "ooo", "auto"):
        for model in ("lenet", "cnn", "bert-12"):
            yield Run(f"micro-batches/{model}/{schedule}",
                      (training(model, f"--schedule {schedule} --micro-batches 4", batch=8),))
    for groups in (2, 4):
        for model in ("lenet", "gpt2", "resnet-18"):
            yield Run(f"micro-batches/{model}/groups-{groups}",
                      (training(model, f"--micro-batches 8 --gradient-groups {groups}", batch=16),))
    yield Run("micro-batches/densenet-121/clip",
              (training("densenet-121", f"--micro-batches 2 --clip-norm 0.1 {ADAMW}", batch=8),))
    yield Run("micro-batches/lenet/cap", (training("lenet", "--micro-batches 4 --memory-cap 2M", batch=16),))


# Between what cnn needs in order and what it would take out of order without a cap; and far too little.
def runs_of_memory_caps():
    for schedule in ("in-order", "ooo", "auto"):
        yield Run(f"memory-cap/cnn/{schedule}",
                  (training("cnn", f"--schedule {schedule} --memory-cap 2900K", batch=32),))
        yield Run(f"memory-cap/cnn/{schedule}-too-small",
                  (training("cnn", f"--schedule {schedule} --memory-cap 100K", batch=32),), status=2)
    yield Run("memory-cap/bert-24/ooo", (training("bert-24", "--schedule ooo --memory-cap 6M"),))


# A pass that brings nothing on a CPU is left out as well: leaving it out must change nothing.
def runs_of_skipped_passes():
    models = {"recognise": "bert-12", "fold_transposes": "gpt2", "fuse": "resnet-18",
              "fuse_elementwise": "mobilenet-v3-large", "join_projections": "vit-b-16", "pad_classes": "bert-12",
              "fuse_gradients": "resnet-50", "share_concats": "densenet-121", "group_updates": "resnet-18"}
    for name, model in models.items():
        yield Run(f"skip-pass/{name}", (training(model, f"--schedule ooo --skip-pass {name}"),))


# Saved after three steps of six, and taken up, on the same layout or another.
def runs_of_resuming():
    kinds = {"sgd": "--schedule in-order --momentum 0.9", "adamw": f"--schedule ooo --clip-norm 1 {ADAMW}",
             "micro-batches": "--micro-batches 4"}
    for name, flags in kinds.items():
        yield Run(f"resume/cnn/{name}", (training("cnn", f"{flags} --save OWN/half", batch=8),
                                         training("cnn", f"{flags} --resume OWN/half", batch=8, steps=6)))
    yield Run("resume/bert-12/dropout", (training("bert-12", f"{ADAMW} --save OWN/half"),
                                         training("bert-12", f"{ADAMW} --resume OWN/half", steps=6)))
    yield Run("resume/lenet/of-the-old-program",
              (training("lenet", f"{ADAMW} --save OWN/half"),
               training("lenet", f"{ADAMW} --resume OLD/half --save OWN/whole", steps=6)))
    yield Run("resume/lenet/fewer-processes",
              ("launch -n 4 -- " + training("lenet", "--dp 4 --save OWN/half", batch=16),
               "launch -n 2 -- " + training("lenet", "--pp 2 --micro-batches 4 --resume OWN/half", batch=16, steps=6)))


# Several devices: how many, the network, and the flags. Each is done by as many processes, and by one alone.
PIPELINES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v", "fast-forward",
             "modulo")
REDUCTIONS = {"buckets": "buckets --bucket 16K", "by-layer": "by-layer", "scatter-gather": "scatter-gather",
              "first-k": "first-k --first-k 2", "first-k-from": "first-k --first-k 2@1"}
LAYOUTS = {
    **{f"pp2-{name}": (2, "lenet", f"--pp 2 --micro-batches 4 --pipeline {name}") for name in PIPELINES},
    **{f"dp2-{name}": (2, "lenet", f"--dp 2 --reduce {text}") for name, text in REDUCTIONS.items()},
    **{f"dp2-pp2-{name}": (4, "cnn", f"--dp 2 --pp 2 --micro-batches 2 --reduce {text}")
       for name, text in REDUCTIONS.items()},
    "pp4-zb-h1": (4, "resnet-18", "--pp 4 --micro-batches 8 --pipeline zb-h1"),
    "dp4-by-layer": (4, "lenet", "--dp 4 --micro-batches 2 --reduce by-layer"),
    "dp2-first-k-found": (2, "lenet", "--dp 2 --reduce first-k"),
    "dp2-auto": (2, "cnn", "--dp 2 --reduce auto"),
    "pp2-search": (2, "lenet", "--pp 2 --micro-batches 4 --pipeline search (--search-tries 500|)"),
    "dp2-clip": (2, "cnn", f"--dp 2 --reduce first-k --first-k 1 --clip-norm 0.1 {ADAMW}"),
    "dp2-pp2-clip": (4, "lenet", "--dp 2 --pp 2 --micro-batches 2 --reduce scatter-gather --clip-norm 0.1"),
    "dp2-sync": (2, "cnn", "--dp 2 --sync-batch-norm --reduce by-layer"),
    "dp2-pp2-sync": (4, "resnet-18", "--dp 2 --pp 2 --micro-batches 2 --sync-batch-norm"),
    "dp2-pp2-bert": (4, "bert-12", f"--dp 2 --pp 2 --micro-batches 2 --pipeline zb-v --reduce by-layer {ADAMW}"),
    "pp2-gpt2": (2, "gpt2", f"--pp 2 --micro-batches 4 --pipeline zb-h2 {ADAMW}"),
    "dp2-lstm": (2, "lstm", "--dp 2 --micro-batches 2 --reduce scatter-gather"),
    "dp2-densenet": (2, "densenet-121", "--dp 2 --reduce by-layer"),
    "pp2-cap": (2, "lenet", "--pp 2 --micro-batches 4 --memory-cap 2M")}


def runs_on_several_devices():
    for name, (processes, model, flags) in LAYOUTS.items():
        yield Run(f"launch/{name}", (f"launch -n {processes} -- " + training(model, flags, batch=16),))
    for name, (_, model, flags) in LAYOUTS.items():
        yield Run(f"one-process/{name}", (training(model, flags, batch=16),))


SIMULATIONS = {
    "one-device": "resnet-18 (--machine|--cluster) h200 --batch 32 --precision f32 --optimizer sgd",
    "reductions": "resnet-50 (--machine|--cluster) p3.8xlarge:4 --dp 16 --batch 512 --optimizer sgd --compare all",
    "pipelines": "bert-24 (--machine|--cluster) p3.8xlarge --pp 4 --micro-batches 4 --batch 96 --compare all "
                 "(--search-tries 2000|--search-seconds 1)",
    "synthetic": "--synthetic stages=4,micro=8 --compare all (--search-tries 2000|--search-seconds 1)",
    "synthetic-unequal": "--synthetic stages=8,micro=16,f=1,b=1.5,w=0.5 (--pipeline|--schedule) zb-v --steps 4",
    "1f1b-4x4": "gpt2 (--machine|--cluster) dgx-h100:2 --dp 4 --pp 4 --micro-batches 8 --batch 128",
    "zb-h1-by-layer": "gpt2 (--machine|--cluster) dgx-h100:2 --dp 4 --pp 4 --micro-batches 8 --batch 128 "
                      "(--pipeline|--schedule) zb-h1 --reduce by-layer",
    "zb-v-a100": "bert-12 (--machine|--cluster) dgx-a100 --pp 8 --micro-batches 16 --batch 64 "
                 "(--pipeline|--schedule) zb-v",
    "interleaved": "gpt2 (--machine|--cluster) dgx-a100 --pp 4 --micro-batches 8 --batch 32 "
                   "(--pipeline|--schedule) interleaved --chunks 3",
    "modulo": "bert-24 (--machine|--cluster) p3.16xlarge --pp 8 --micro-batches 8 --batch 64 "
              "(--pipeline|--schedule) modulo --group 2",
    "dualpipe": "bert-24 (--machine|--cluster) dgx-h100 --pp 8 --micro-batches 16 --batch 64 "
                "(--pipeline|--schedule) dualpipe",
    "scatter-gather": "vit-b-16 (--machine|--cluster) dgx-h200 --dp 8 --batch 256 --reduce scatter-gather",
    "first-k": "resnet-101 (--machine|--cluster) p3.8xlarge:2 --dp 8 --batch 128 --reduce first-k --first-k 12@30",
    "first-k-found": "densenet-121 (--machine|--cluster) p3.8xlarge:2 --dp 8 --batch 128 --reduce first-k",
    "recompute": "gpt3-medium (--machine|--cluster) dgx-h100 --pp 8 --micro-batches 8 --batch 64 --recompute",
    "straggler": "gpt2 (--machine|--cluster) dgx-h100 --pp 4 --micro-batches 8 --batch 32 --slow 3:0.5 --no-slowdown",
    "ring": "resnet-50 (--machine|--cluster) cpu-hosts:4 --dp 4 --batch 64 --algorithm ring --chunk 1M",
    "beside": "resnet-50 --dp 2 --batch 64 --devices 0,4 (--machine|--cluster) p3.8xlarge:2 "
              "--beside 'resnet-50 --dp 2 --batch 64 --devices 1,5'",
    "beside-pipeline": "bert-12 --pp 2 --micro-batches 4 --batch 16 (--machine|--cluster) dgx-h100 "
                       "--beside 'gpt2 --pp 2 --micro-batches 4 --batch 8 (--pipeline|--schedule) zb-h1'",
    "search": "gpt2 (--machine|--cluster) dgx-h100 --pp 4 --micro-batches 8 --batch 32 "
              "(--pipeline|--schedule) search (--search-tries 2000|--search-seconds 1)"}


def runs_of_simulations():
    for name, text in SIMULATIONS.items():
        yield Run(f"simulate/{name}", (f"simulate {text} --json",))
    yield Run("simulate/device-gone",
              ("simulate --synthetic stages=3,micro=4 (--pipeline|--schedule) gpipe --fail 1:2.7 --json",), status=2)
    yield Run("simulate/too-little-memory",
              ("simulate gpt3-medium (--machine|--cluster) h200 --batch 64 --memory-cap 1G --json",), status=2)
    yield Run("validate", ("validate --json",))


def all_runs():
    kinds = (runs_of_networks, runs_of_optimizers, runs_of_schedules, runs_of_micro_batches, runs_of_memory_caps,
             runs_of_skipped_passes, runs_of_resuming, runs_on_several_devices, runs_of_simulations)
    return [run for kind in kinds for run in kind()]

# A thin front of CMake. On a bare Debian 12, `make train` and `make test` do everything from set-up on.
.PHONY: help setup setup-tests build install train test golden-check check sanitize sanitize-fast cuda cuda-build bench bench-gpu \
  bench-sim bench-comm faults fuzz format clean
OVERTAKE := build/release/overtake
# Tests that run at a time; more of them get a larger share of a machine that is busy with other work.
JOBS ?= 2
# Where `make install` puts things.
PREFIX ?= /usr/local
# With the packages of PyTorch, for golden-check.
PYTHON ?= python3

help:
	@echo "make train     install, build, train a small CNN on Fashion-MNIST, time in-order against out-of-order"
	@echo "make test      install, build, run all checks and tests"
	@echo "make golden-check  exported models trained against PyTorch (needs it: PYTHON=...; see CONTRIBUTING.md)"
	@echo "make sanitize  all tests under ASan + UBSan, those with threads under TSan"
	@echo "make cuda      build with CUDA and run the tests on a GPU; they skip where there is none"
	@echo "make build     install, build $(OVERTAKE)"
	@echo "make install   build, put the program, the library and its headers into PREFIX ($(PREFIX))"
	@echo "make bench     compare with PyTorch on the CPU (needs PyTorch; see bench/cpu)"
	@echo "make bench-gpu compare with PyTorch and JAX on a GPU (see bench/gpu)"
	@echo "make bench-sim how fast the simulator is: events per second, and a step of a large cluster"
	@echo "make bench-comm transfers between two hosts of a test cluster, against their link (needs root; see bench/comm)"
	@echo "make faults    200 faults in real training and 300 kills while it saves (most of an hour; link and disk faults need root)"
	@echo "make fuzz      RUNS (a million) inputs for each reader of files, under ASan + UBSan (needs clang-16)"
	@echo "make format    clang-format all sources"

setup:
	@scripts/setup.sh

setup-tests:
	@scripts/setup.sh tests

# From scratch, folders compiled at once take less than half the time of files compiled one by one.
build: setup
	cmake --preset release -DCMAKE_UNITY_BUILD=ON -DOVERTAKE_TESTS=OFF
	cmake --build --preset release --target overtake

install: build
	cmake --install build/release --prefix $(PREFIX)

# The second network has many small tasks: there out of order pays, where no other program takes the cores.
train: build
	$(OVERTAKE) train cnn --data fashion-mnist --epochs 4 --batch 64 --lr 0.05 --lr-schedule cosine --warmup 50 \
	  --momentum 0.9 --weight-decay 5e-4 --schedule auto
	$(OVERTAKE) bench densenet-121 --set image=32,classes=10 --batch 4 --schedules in-order,auto --steps 30

check:
	scripts/check_rooms.py
	scripts/check_messages.py
	@git ls-files '*.h' '*.cpp' | xargs clang-format --dry-run --Werror && echo "format: clean"

test: setup-tests check
	cmake --preset release -DCMAKE_UNITY_BUILD=ON -DOVERTAKE_TESTS=ON
	cmake --build --preset release
	ctest --preset release -j $(JOBS)

# The table of models that exporters write and Overtake trains or refuses, beside PyTorch: runs/exports/table.md.
golden-check: build
	$(PYTHON) tests/golden/compare_exports.py --overtake $(OVERTAKE) --jobs $(JOBS)

# What CI runs of the sanitizers: the fast subset.
sanitize-fast: setup
	cmake --preset asan
	cmake --build --preset asan --target test_unit
	ctest --preset asan -j 2 -R '^unit\.' -E 'Million|JointSchedule|ScheduleOptimum|PipelineSearch'

# All tests under ASan + UBSan; under TSan, whatever has threads.
sanitize: setup
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan -j 2
	cmake --preset tsan
	cmake --build --preset tsan --target test_unit test_backend test_comm
	ctest --preset tsan -R '^unit\.Loader|^backend\.Lane|^backend\.Parallel|^comm\.'

# What CI compiles of the CUDA side.
cuda-build: setup
	scripts/setup_cudnn_frontend.sh
	cmake --preset cuda
	cmake --build --preset cuda --target overtake

cuda: cuda-build
	cmake --build --preset cuda
	ctest --test-dir build/cuda -L cuda --output-on-failure

bench: build
	bench/cpu/run.py --overtake $(OVERTAKE)

bench-gpu: cuda-build
	bench/gpu/run.py --overtake build/cuda/overtake

bench-sim:
	cmake --preset release
	cmake --build --preset release --target bench_sim bench_plan overtake
	build/release/bench_sim
	build/release/bench_plan
	bench/sim/commands.py $(OVERTAKE)

bench-comm:
	cmake --preset release
	cmake --build --preset release --target bench_comm
	bench/comm/run.py --bench build/release/bench_comm

faults:
	cmake --preset release
	cmake --build --preset release --target overtake
	tests/faults/campaign.py $(OVERTAKE) --faults 200
	tests/faults/checkpoints.py $(OVERTAKE) --kills 300 --savers 12

RUNS ?= 1000000
fuzz:
	tests/fuzz/build.sh deep
	tests/fuzz/run.py --runs $(RUNS)

format:
	git ls-files '*.h' '*.cpp' | xargs clang-format -i

clean:
	rm -rf build

#!/usr/bin/env python3
"""A test cluster on one machine: hosts are network namespaces, joined by a bridge with shaped links.

    scripts/test_cluster.py -n 2 --bandwidth 1Gbit -- build/release/overtake train ...
    scripts/test_cluster.py clean        # removes what killed runs left behind

The command runs once per host, each on cores of its own, with rank and addresses in its environment: OVERTAKE_RANK,
_SIZE, _LOCAL_RANK, _JOB, _STORE and _ADDRESS, and what PyTorch reads. When one fails, all are ended, and its exit code
is ours. The machine's own network is not touched: the bridge lives in a namespace of its own. Needs root and iproute2.

As a module:

    with Cluster(hosts=2, bandwidth="1Gbit") as cluster:
        job = cluster.start(["program", "argument"])
        cluster.stall(1)
        results = job.wait(time_out=10)
"""
import argparse
import ctypes
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

PREFIX = "overtake-cluster"  # of all namespaces: PREFIX-<process>-<host>
PORT = 29500


class NotAllowed(Exception):
    """This machine or this user cannot make such a cluster."""


def call(*command):
    """Runs a command of iproute2; its error is ours."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def check_rights():
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise NotAllowed(f"there is no `{tool}` here; apt-get install iproute2")
    probe = f"{PREFIX}-{os.getpid()}-probe"
    try:
        call("ip", "netns", "add", probe)
        call("ip", "netns", "delete", probe)
    except OSError as error:
        raise NotAllowed(f"network namespaces cannot be made: {error}; run as root, with CAP_SYS_ADMIN") from None


def quantity(text, units, what):
    """'1.5Gbit' and the like in the smallest unit."""
    match = re.fullmatch(r"([0-9.]+)\s*([A-Za-z%]*)", str(text).strip())
    if match is None or match[2].lower() not in units or float(match[1]) <= 0:
        raise ValueError(f"{what} '{text}': must be a positive number with one of {', '.join(filter(None, units))}")
    return float(match[1]) * units[match[2].lower()]


def bits_per_second(text):
    return quantity(text, {"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}, "bandwidth")


def seconds(text):
    return quantity(text, {"us": 1e-6, "ms": 1e-3, "s": 1}, "latency")


def percent(text):
    return quantity(text, {"%": 1}, "loss")


@dataclasses.dataclass
class Result:
    """How a rank ended."""
    code: int  # -1 where it was ended by us; 128 + the number of a signal
    output: str  # where it was captured
    seconds: float  # from the start of all


class Rank:
    """One process on one host."""

    def __init__(self, namespace, command, environment, cores, capture, prefix):
        def settle():  # in the new process
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it does not outlive this script
            os.sched_setaffinity(0, cores)

        self.started = time.monotonic()
        self.ended_by_us = False
        self.result = None
        pipe = subprocess.PIPE if capture or prefix else None
        self.process = subprocess.Popen(["ip", "netns", "exec", namespace, *command], env=environment,
                                        stdin=subprocess.DEVNULL, stdout=pipe,
                                        stderr=subprocess.STDOUT if pipe else None, preexec_fn=settle,
                                        start_new_session=True)
        self.lines = []
        self.reader = threading.Thread(target=self._read, args=(None if capture else prefix,), daemon=True)
        self.reader.start()

    def _read(self, prefix):
        if self.process.stdout is None:
            return
        for line in self.process.stdout:
            text = line.decode(errors="replace")
            if prefix is None:
                self.lines.append(text)
            else:
                sys.stdout.write(prefix + text)
                sys.stdout.flush()

    def poll(self):
        """The result, or None while it runs."""
        if self.result is None and self.process.poll() is not None:
            after = time.monotonic() - self.started
            self.reader.join(timeout=1)  # something it left behind may hold the pipe
            code = self.process.returncode
            code = -1 if self.ended_by_us else 128 - code if code < 0 else code
            self.result = Result(code, "".join(self.lines), after)
        return self.result

    def kill(self, number=signal.SIGKILL):
        """Ends it and all it started, or sends another signal."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def end(self):
        if self.poll() is None:
            self.ended_by_us = True
            self.kill()
            self.process.wait()
            self.poll()


class Job:
    """A command that runs on all hosts."""

    def __init__(self, ranks):
        self.ranks = ranks

    def wait(self, time_out=None, end_all_on_failure=False):
        """Results by rank. Whoever still runs after the time is ended: code -1."""
        limit = None if time_out is None else time.monotonic() + time_out
        while any(rank.poll() is None for rank in self.ranks):
            failed = any(rank.poll() is not None and rank.poll().code != 0 for rank in self.ranks)
            if (failed and end_all_on_failure) or (limit is not None and time.monotonic() > limit):
                break
            time.sleep(0.005)
        self.end()
        return [rank.result for rank in self.ranks]

    def end(self):
        for rank in self.ranks:
            rank.end()


class Cluster:
    """Hosts 0, 1, ... at 10.77.0.1, 10.77.0.2, ...; each with a link of its own, of this bandwidth in each direction.

    `latency` is one way between any two hosts. Latency and loss need the kernel's netem: see `has_netem`.
    """

    def __init__(self, hosts=2, bandwidth=None, latency=None, loss=None, cores_each=1):
        if not 1 <= hosts <= 200:
            raise ValueError(f"{hosts} hosts: must be 1 to 200")
        self.hosts = hosts
        self.has_netem = False
        self._shape = (bandwidth, latency, loss)
        self._validate(*self._shape)
        self._name = f"{PREFIX}-{os.getpid()}-{id(self):x}"
        self._jobs = []
        cores = sorted(os.sched_getaffinity(0))
        self.shares_cores = hosts * cores_each > len(cores)
        self._cores = [{cores[(h * cores_each + i) % len(cores)] for i in range(cores_each)} for h in range(hosts)]
        self._folder = None

    def __enter__(self):
        check_rights()
        self._folder = tempfile.mkdtemp(prefix=PREFIX + "-")
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def start(self, command, environment=None, capture=True):
        """Runs a command on every host; `command` is a list, or a function of the rank that returns one."""
        number = len(self._jobs)
        ranks = []
        self._jobs.append(Job(ranks))
        for rank in range(self.hosts):
            variables = {
                "OVERTAKE_RANK": rank, "OVERTAKE_SIZE": self.hosts, "OVERTAKE_LOCAL_RANK": 0,
                "OVERTAKE_JOB": f"job-{number}", "OVERTAKE_STORE": self._folder, "OVERTAKE_ADDRESS": self.address(rank),
                "RANK": rank, "WORLD_SIZE": self.hosts, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1,
                "MASTER_ADDR": self.address(0), "MASTER_PORT": PORT + number, "GLOO_SOCKET_IFNAME": "eth0",
                **(environment or {})}
            ranks.append(Rank(self._host(rank), command(rank) if callable(command) else command,
                              os.environ | {k: str(v) for k, v in variables.items()}, self._cores[rank], capture,
                              f"[rank {rank}] " if rank > 0 else None))
        return self._jobs[-1]

    def run(self, command, environment=None, capture=True, time_out=None):
        """Starts, waits, and ends all when one fails."""
        return self.start(command, environment, capture).wait(time_out, end_all_on_failure=True)

    def cut(self, host):
        """Pulls the plug: both ends see that there is no carrier."""
        call("ip", "-n", self._switch, "link", "set", f"host{host}", "down")

    def stall(self, host):
        """All that is sent to or by this host is lost, and nobody is told."""
        call("ip", "-n", self._switch, "link", "set", f"host{host}", "nomaster")

    def heal(self, host):
        """Undoes cut() and stall()."""
        call("ip", "-n", self._switch, "link", "set", f"host{host}", "master", "bridge", "up")

    def reshape(self, bandwidth=None, latency=None, loss=None, host=None):
        """Another link, for one host or for all."""
        self._validate(bandwidth, latency, loss)
        for h in range(self.hosts) if host is None else [host]:
            self._shape_end(self._host(h), "eth0", bandwidth, latency, loss)
            self._shape_end(self._switch, f"host{h}", bandwidth, None, None)

    def queues(self, host):
        """What the kernel says of the queues at both ends of a host's link, the host's first: as `tc -j -s` does."""
        return [json.loads(call("tc", "-j", "-s", "-n", namespace, "qdisc", "show", "dev", device))
                for namespace, device in ((self._host(host), "eth0"), (self._switch, f"host{host}"))]

    def close(self):
        for job in self._jobs:
            job.end()
        remove([self._host(h) for h in range(self.hosts)] + [self._switch])
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _switch(self):
        return f"{self._name}-switch"

    def _host(self, host):
        return f"{self._name}-{host}"

    @staticmethod
    def _validate(bandwidth, latency, loss):
        for value, parse in ((bandwidth, bits_per_second), (latency, seconds), (loss, percent)):
            if value is not None:
                parse(value)

    def _build(self):
        call("ip", "netns", "add", self._switch)
        call("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
        call("ip", "-n", self._switch, "link", "set", "bridge", "up")
        for h in range(self.hosts):
            host, port = self._host(h), f"host{h}"
            call("ip", "netns", "add", host)
            call("ip", "-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            call("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")
            call("ip", "-n", host, "address", "add", self.address(h) + "/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                call("ip", "-n", host, "link", "set", device, "up")
            self._ask_losses(host)
        try:
            call("tc", "-n", self._switch, "qdisc", "replace", "dev", "host0", "root", "netem", "delay", "1us")
            self.has_netem = True
        except OSError:
            pass
        self.reshape(*self._shape)

    @staticmethod
    def _ask_losses(host):
        """Congestion control that goes by losses, as most hosts have it, whatever this machine uses towards the world:
        figures do not depend on that."""
        for name in ("cubic", "reno"):
            try:
                return call("ip", "netns", "exec", host, "sysctl", "-q", "-w", f"net.ipv4.tcp_congestion_control={name}")
            except OSError:  # not in this kernel, or not for namespaces
                pass

    def _shape_end(self, namespace, device, bandwidth, latency, loss):
        tc = ["tc", "-n", namespace, "qdisc"]
        subprocess.run([*tc, "delete", "dev", device, "root"], capture_output=True, check=False)
        parent = ["root"]
        if bandwidth is not None:
            rate = bits_per_second(bandwidth)
            # A burst holds the largest packet that the stack hands down, which is 64 KiB unless tbf has to cut it: on
            # slow links, where that costs little and a burst would be a good part of what is measured.
            burst = max(rate / 8 * 1e-4, 70_000 if rate >= 2e8 else 4_000)
            queue = max(rate / 8 * 0.05, 200_000)
            call(*tc, "add", "dev", device, *parent, "handle", "1:", "tbf", "rate", f"{rate:.0f}bit", "burst",
                 f"{burst:.0f}", "limit", f"{queue + burst:.0f}")
            parent = ["parent", "1:1"]
        if self.has_netem and (latency is not None or loss is not None):
            # Room for all that is under way at 100 Gbit/s.
            call(*tc, "add", "dev", device, *parent, "netem", "limit", "100000",
                 *(["delay", f"{seconds(latency) * 1e6:.0f}us"] if latency is not None else []),
                 *(["loss", f"{percent(loss):g}%"] if loss is not None else []))


def remove(namespaces):
    """Ends what runs in these namespaces and removes them. A second Ctrl-C does not interrupt it."""
    def ignore(*_):
        pass

    in_main = threading.current_thread() is threading.main_thread()
    before = {s: signal.signal(s, ignore) for s in (signal.SIGINT, signal.SIGTERM)} if in_main else {}
    try:
        there = names()
        for namespace in namespaces:
            if namespace not in there:
                continue
            for pid in call("ip", "netns", "pids", namespace).split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            call("ip", "netns", "delete", namespace)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def names():
    return [line.split()[0] for line in call("ip", "netns", "list").splitlines() if line.startswith(PREFIX + "-")]


def clean():
    """Removes clusters whose maker is gone. Returns how many namespaces that were, and the makers of the others."""
    maker = {name: int(name[len(PREFIX) + 1:].split("-")[0]) for name in names()}
    alive = {pid for pid in maker.values() if os.path.exists(f"/proc/{pid}")}
    left = [name for name, pid in maker.items() if pid not in alive]
    remove(left)
    folder = tempfile.gettempdir()
    if not alive:
        for entry in os.listdir(folder):
            if entry.startswith(PREFIX + "-"):
                shutil.rmtree(os.path.join(folder, entry), ignore_errors=True)
    return len(left), sorted(alive)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--hosts", type=int, default=2)
    parser.add_argument("--bandwidth", help="of each link, each way: 1Gbit, 20Mbit; default: not shaped")
    parser.add_argument("--latency", help="one way between two hosts: 0.1ms; needs netem in the kernel")
    parser.add_argument("--loss", help="0.1%%; needs netem in the kernel")
    parser.add_argument("--cores-each", type=int, default=1)
    parser.add_argument("--time-out", type=float, help="seconds after which all are ended")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and what to run, or: clean")
    options = parser.parse_args(arguments)
    options.command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not options.command:
        parser.error("nothing to run; for example: test_cluster.py -n 2 --bandwidth 1Gbit -- ip address")
    return options


def stop(number, _):
    raise SystemExit(128 + number)


def main():
    options = parse(sys.argv[1:])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop)
    try:
        if options.command == ["clean"]:
            check_rights()
            count, alive = clean()
            kept = f"; kept those of running processes {', '.join(map(str, alive))}" if alive else ""
            print(f"removed {count} namespaces{kept}")
            return 0
        with Cluster(options.hosts, options.bandwidth, options.latency, options.loss, options.cores_each) as cluster:
            if (options.latency or options.loss) and not cluster.has_netem:
                print("test_cluster: this kernel has no netem: no latency, no loss", file=sys.stderr)
            if cluster.shares_cores:
                print("test_cluster: fewer cores than hosts want; some share", file=sys.stderr)
            results = cluster.run(options.command, capture=False, time_out=options.time_out)
    except (NotAllowed, ValueError) as error:
        print(f"test_cluster: {error}", file=sys.stderr)
        return 2
    failed = [(rank, r) for rank, r in enumerate(results) if r.code > 0]
    late = [rank for rank, r in enumerate(results) if r.code < 0]
    if failed:
        print(f"test_cluster: rank {failed[0][0]} ended with {failed[0][1].code}", file=sys.stderr)
        return failed[0][1].code
    if late:
        print(f"test_cluster: not done within {options.time_out:g} s: ranks {late}", file=sys.stderr)
        return 124
    return 0


if __name__ == "__main__":
    sys.exit(main())

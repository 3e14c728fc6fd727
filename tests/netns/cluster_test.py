#!/usr/bin/env python3
"""The test cluster, and communication over it when links are slow, cut or stalled.

    cluster_test.py RANK_PROGRAM NAME     where NAME is a class below

Exit code 77: it cannot be tried here.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "test_cluster.py"
sys.path.insert(0, str(SCRIPT.parent))
import test_cluster  # noqa: E402

RANK_PROGRAM = sys.argv[1]

# Sends for so many seconds and says how many bits per second came; or echoes bytes and says how long that takes.
RECEIVER = """
import socket, time
s = socket.create_server(("", 7000)); c = s.accept()[0]
begin = None; got = 0
while data := c.recv(1 << 20):
    if begin is None: begin = time.perf_counter()
    else: got += len(data)
print(got * 8 / (time.perf_counter() - begin))
"""
CONNECT = """
import socket, sys, time
def connect(port):
    while True:
        try: return socket.create_connection(("10.77.0.1", port))
        except OSError: time.sleep(0.01)
"""
SENDER = CONNECT + """
c = connect(7000); end = time.perf_counter() + 0.8
while time.perf_counter() < end: c.sendall(bytes(1 << 16))
"""
ECHO = """
import socket
s = socket.create_server(("", 7000)); c = s.accept()[0]
while data := c.recv(1): c.sendall(data)
"""
PING = CONNECT + """
c = connect(7000); c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); times = []
for _ in range(20):
    begin = time.perf_counter(); c.sendall(b"x"); c.recv(1); times.append(time.perf_counter() - begin)
print(sorted(times)[10])
"""


def python(*programs):
    return lambda rank: [sys.executable, "-c", programs[rank]]


class Link(unittest.TestCase):
    def test_bandwidth_is_what_was_asked_for(self):
        with test_cluster.Cluster(hosts=2) as cluster:
            for mbit in (50, 500):
                cluster.reshape(bandwidth=f"{mbit}Mbit")
                receiver, _ = cluster.run(python(RECEIVER, SENDER), time_out=20)
                self.assertEqual(receiver.code, 0, receiver.output)
                self.assertAlmostEqual(float(receiver.output) / 1e6 / mbit, 1, delta=0.15)

    def test_hosts_know_who_they_are(self):
        with test_cluster.Cluster(hosts=3) as cluster:
            variables = ["OVERTAKE_RANK", "OVERTAKE_SIZE", "OVERTAKE_LOCAL_RANK", "OVERTAKE_ADDRESS", "RANK",
                         "WORLD_SIZE", "MASTER_ADDR"]
            results = cluster.run(["sh", "-c", "echo " + " ".join("$" + name for name in variables)])
            for rank, result in enumerate(results):
                self.assertEqual(result.output, f"{rank} 3 0 10.77.0.{rank + 1} {rank} 3 10.77.0.1\n")


class Latency(unittest.TestCase):
    def test_round_trip_is_twice_the_latency(self):
        with test_cluster.Cluster(hosts=2, bandwidth="1Gbit", latency="5ms") as cluster:
            if not cluster.has_netem:
                self.skipTest("this kernel has no netem, so there is no latency to shape")
            _, ping = cluster.run(python(ECHO, PING), time_out=20)
            self.assertAlmostEqual(float(ping.output), 0.010, delta=0.002)


class Script(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=30)

    def left(self, process):
        return [name for name in test_cluster.names() if name.startswith(f"{test_cluster.PREFIX}-{process.pid}-")]

    def test_output_and_exit_code(self):
        done = self.run_script("-n", "2", "--", "sh", "-c", "echo I am $OVERTAKE_RANK")
        self.assertEqual(sorted(done.stdout.splitlines()), ["I am 0", "[rank 1] I am 1"])
        self.assertEqual(done.returncode, 0)

    def test_one_that_fails_ends_all(self):
        begin = time.monotonic()
        done = self.run_script("-n", "2", "--", "sh", "-c", "test $OVERTAKE_RANK = 0 && exec sleep 50; exit 7")
        self.assertEqual(done.returncode, 7)
        self.assertIn("rank 1 ended with 7", done.stderr)
        self.assertLess(time.monotonic() - begin, 10)

    def test_bad_options_are_told(self):
        for arguments, text in ((["--bandwidth", "fast"], "bandwidth 'fast'"), (["-n", "0"], "0 hosts"),
                                (["--loss", "3"], "loss '3'")):
            done = self.run_script(*arguments, "--", "true")
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)

    def test_without_rights_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:  # `nobody` may not read where the project lies
            copy = pathlib.Path(folder) / "test_cluster.py"
            copy.write_text(SCRIPT.read_text())
            os.chmod(folder, 0o755)
            done = subprocess.run([sys.executable, copy, "--", "true"], capture_output=True, text=True, timeout=30,
                                  user="nobody", cwd="/")
        self.assertEqual(done.returncode, 2)
        self.assertIn("run as root", done.stderr)

    def test_signals_leave_nothing_behind(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            process = subprocess.Popen([sys.executable, SCRIPT, "-n", "2", "--", "sleep", "51.5"])
            while len(self.left(process)) < 3:
                time.sleep(0.02)
            time.sleep(0.3)
            process.send_signal(number)
            code = process.wait(timeout=10)
            if number == signal.SIGKILL:
                self.assertGreater(len(self.left(process)), 0)
                self.assertEqual(self.run_script("clean").returncode, 0)
            else:
                self.assertEqual(code, 128 + number)
            self.assertEqual(self.left(process), [])
        sleeping = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("sleep 51.5", [line for line in sleeping.splitlines() if not line.startswith("[")])


class Faults(unittest.TestCase):
    """Three hosts that reduce without end, and something happens to the second in the middle."""
    TIME_OUT = 2

    def results_after(self, event):
        with test_cluster.Cluster(hosts=3, bandwidth="200Mbit") as cluster:
            job = cluster.start([RANK_PROGRAM, "8", "0", str(1000 * self.TIME_OUT)])
            while not all("begins\n" in rank.lines for rank in job.ranks):
                self.assertEqual([rank.poll() for rank in job.ranks], [None] * 3)
                time.sleep(0.01)
            time.sleep(0.7)
            before = time.monotonic() - job.ranks[0].started
            event(cluster, job)
            results = job.wait(time_out=self.TIME_OUT + 6)
            return [(r.code, r.output.splitlines()[-1], r.seconds - before) for r in results]

    def survivors_name_the_second(self, results, cause, most_seconds):
        for rank in (0, 2):
            code, text, after = results[rank]
            self.assertEqual(code, 3, text)
            self.assertTrue(text.startswith("fault 1 rank 1: "), text)
            self.assertIn(cause, text)
            self.assertLess(after, most_seconds)

    def test_a_cut_link(self):
        results = self.results_after(lambda cluster, _: cluster.cut(1))
        self.survivors_name_the_second(results, "gone or stalled", self.TIME_OUT + 2)
        self.assertEqual(results[1][0], 3, results[1])  # it hears nobody
        self.assertLess(results[1][2], self.TIME_OUT + 2)

    def test_a_stalled_link(self):
        results = self.results_after(lambda cluster, _: cluster.stall(1))
        self.survivors_name_the_second(results, "gone or stalled", self.TIME_OUT + 2)
        self.assertEqual(results[1][0], 3, results[1])
        self.assertLess(results[1][2], self.TIME_OUT + 2)

    def test_a_killed_rank(self):
        results = self.results_after(lambda _, job: job.ranks[1].kill())
        self.survivors_name_the_second(results, "lost it", 2)
        self.assertEqual(results[1][0], 128 + signal.SIGKILL)


class SlowLinks(unittest.TestCase):
    def test_slow_is_no_fault(self):
        with test_cluster.Cluster(hosts=2, bandwidth="20Mbit") as cluster:
            for result in cluster.run([RANK_PROGRAM, "32", "1", "4000"], time_out=40):
                self.assertEqual(result.output, "begins\ndone\n")
                self.assertGreater(result.seconds, 32 * 2**20 * 8 / 20e6 * 0.9)

    def test_a_link_that_comes_back_is_no_fault(self):
        for fault in (test_cluster.Cluster.cut, test_cluster.Cluster.stall):
            with test_cluster.Cluster(hosts=2, bandwidth="100Mbit") as cluster:
                job = cluster.start([RANK_PROGRAM, "8", "2", "8000"])
                while "begins\n" not in job.ranks[0].lines:
                    time.sleep(0.01)
                time.sleep(0.3)
                fault(cluster, 1)
                time.sleep(1)
                cluster.heal(1)
                self.assertEqual([r.output for r in job.wait(time_out=20)], ["begins\ndone\n"] * 2)


if __name__ == "__main__":
    try:
        test_cluster.check_rights()
    except test_cluster.NotAllowed as error:
        print(f"skipped: {error}")
        sys.exit(77)
    outcome = unittest.main(argv=sys.argv[:1] + sys.argv[2:], exit=False, verbosity=2).result
    if not outcome.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if len(outcome.skipped) == outcome.testsRun else 0)

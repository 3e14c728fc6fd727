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

HANGS = 100  # seconds; what has not ended by then never will. No limit of speed: a busy machine may take its time.
SENT = 4 << 20

# Sends bytes and says how many came; or echoes bytes and says how long that takes at least.
RECEIVER = """
import socket
s = socket.create_server(("", 7000)); c = s.accept()[0]; got = 0
while data := c.recv(1 << 20): got += len(data)
print(got)
"""
CONNECT = """
import socket, sys, time
def connect(port):
    while True:
        try: return socket.create_connection(("10.77.0.1", port))
        except OSError: time.sleep(0.01)
"""
SENDER = CONNECT + f"""
connect(7000).sendall(bytes({SENT}))
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
print(min(times))
"""


def python(*programs):
    return lambda rank: [sys.executable, "-c", programs[rank]]


class Link(unittest.TestCase):
    def test_bandwidth_is_what_was_asked_for(self):
        with test_cluster.Cluster(hosts=2) as cluster:
            for mbit in (50, 500):
                cluster.reshape(bandwidth=f"{mbit}Mbit")
                receiver, _ = cluster.run(python(RECEIVER, SENDER), time_out=HANGS)
                self.assertEqual(receiver.output, f"{SENT}\n")
                # The kernel's own figures: both queues on the way have this rate, and the first held packets back.
                (first,), (last,) = cluster.queues(1)[0], cluster.queues(0)[1]
                for queue in first, last:
                    self.assertEqual(queue["options"]["rate"] * 8, mbit * 1e6)
                    self.assertGreaterEqual(queue["bytes"], SENT)
                self.assertGreater(first["overlimits"], 0)

    def test_hosts_know_who_they_are(self):
        with test_cluster.Cluster(hosts=3) as cluster:
            variables = ["OVERTAKE_RANK", "OVERTAKE_SIZE", "OVERTAKE_LOCAL_RANK", "OVERTAKE_ADDRESS", "RANK",
                         "WORLD_SIZE", "MASTER_ADDR"]
            results = cluster.run(["sh", "-c", "echo " + " ".join("$" + name for name in variables)])
            for rank, result in enumerate(results):
                self.assertEqual(result.output, f"{rank} 3 0 10.77.0.{rank + 1} {rank} 3 10.77.0.1\n")


class Latency(unittest.TestCase):
    def test_no_round_trip_is_shorter_than_twice_the_latency(self):
        with test_cluster.Cluster(hosts=2, bandwidth="1Gbit", latency="5ms") as cluster:
            if not cluster.has_netem:
                self.skipTest("this kernel has no netem, so there is no latency to shape")
            _, ping = cluster.run(python(ECHO, PING), time_out=HANGS)
            self.assertGreaterEqual(float(ping.output), 0.010)
            delays = [queue["options"]["delay"]["delay"] for queue in cluster.queues(0)[0] if queue["kind"] == "netem"]
            self.assertEqual(delays, [0.005])  # and no longer than it should be


class Script(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=HANGS)

    def left(self, process):
        return [name for name in test_cluster.names() if name.startswith(f"{test_cluster.PREFIX}-{process.pid}-")]

    def test_output_and_exit_code(self):
        done = self.run_script("-n", "2", "--", "sh", "-c", "echo I am $OVERTAKE_RANK")
        self.assertEqual(sorted(done.stdout.splitlines()), ["I am 0", "[rank 1] I am 1"])
        self.assertEqual(done.returncode, 0)

    def test_one_that_fails_ends_all(self):
        endless = f"sleep {2 * HANGS}"  # nobody waits for its end
        done = self.run_script("-n", "2", "--", "sh", "-c", f"test $OVERTAKE_RANK = 0 && exec {endless}; exit 7")
        self.assertEqual(done.returncode, 7)
        self.assertIn("rank 1 ended with 7", done.stderr)

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
            done = subprocess.run([sys.executable, copy, "--", "true"], capture_output=True, text=True, timeout=HANGS,
                                  user="nobody", cwd="/")
        self.assertEqual(done.returncode, 2)
        self.assertIn("run as root", done.stderr)

    def test_signals_leave_nothing_behind(self):
        seconds = f"{10 * HANGS}.5"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            process = subprocess.Popen([sys.executable, SCRIPT, "-n", "2", "--", "sleep", seconds])
            while len(self.left(process)) < 3:
                time.sleep(0.02)
            time.sleep(0.3)
            process.send_signal(number)
            code = process.wait(timeout=HANGS)
            if number == signal.SIGKILL:
                self.assertGreater(len(self.left(process)), 0)
                self.assertEqual(self.run_script("clean").returncode, 0)
            else:
                self.assertEqual(code, 128 + number)
            self.assertEqual(self.left(process), [])
        sleeping = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        self.assertNotIn(f"sleep {seconds}", [line for line in sleeping.splitlines() if not line.startswith("[")])


class Faults(unittest.TestCase):
    """Three hosts that reduce without end, and something happens to the second in the middle."""
    TIME_OUT = 5

    def results_after(self, event):
        with test_cluster.Cluster(hosts=3, bandwidth="200Mbit") as cluster:
            job = cluster.start([RANK_PROGRAM, "8", "0", str(1000 * self.TIME_OUT)])
            while not all("begins\n" in rank.lines for rank in job.ranks):
                self.assertEqual([rank.poll() for rank in job.ranks], [None] * 3)
                time.sleep(0.01)
            time.sleep(0.7)
            event(cluster, job)
            return [(r.code, r.output.splitlines()[-1]) for r in job.wait(time_out=HANGS)]

    # The cause tells how it was noticed: by the time-out, or by a connection that was closed.
    def survivors_name_the_second(self, results, cause):
        for rank in (0, 2):
            code, text = results[rank]
            self.assertEqual(code, 3, text)
            self.assertTrue(text.startswith("fault 1 rank 1: "), text)
            self.assertIn(cause, text)

    def test_a_cut_link(self):
        results = self.results_after(lambda cluster, _: cluster.cut(1))
        self.survivors_name_the_second(results, "gone or stalled")
        self.assertEqual(results[1][0], 3, results[1])  # it hears nobody

    def test_a_stalled_link(self):
        results = self.results_after(lambda cluster, _: cluster.stall(1))
        self.survivors_name_the_second(results, "gone or stalled")
        self.assertEqual(results[1][0], 3, results[1])

    def test_a_killed_rank(self):
        results = self.results_after(lambda _, job: job.ranks[1].kill())
        self.survivors_name_the_second(results, "lost it")
        self.assertEqual(results[1][0], 128 + signal.SIGKILL)


class SlowLinks(unittest.TestCase):
    def test_slow_is_no_fault(self):
        with test_cluster.Cluster(hosts=2, bandwidth="20Mbit") as cluster:
            for result in cluster.run([RANK_PROGRAM, "32", "1", "4000"], time_out=HANGS):
                self.assertEqual(result.output, "begins\ndone\n")
            (queue,) = cluster.queues(0)[0]
            least_seconds = queue["bytes"] / queue["options"]["rate"]
            self.assertGreater(least_seconds, 3 * 4)  # several times the time-out

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
                self.assertEqual([r.output for r in job.wait(time_out=HANGS)], ["begins\ndone\n"] * 2)


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

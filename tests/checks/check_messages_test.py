"""scripts/check_messages.py finds a flag in a text, and nowhere else."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))
from check_messages import flags_in


class CheckMessages(unittest.TestCase):
    def test_finds_flags_in_literals(self):
        for source in ('f("lower --lr");', 'f("a \\" --lr");', 'f(R"x(a " --lr)x");', "f('\"', \"--lr\");",
                       'f(1\'000, "--lr", 2\'000);', 'f("a"\n  "b --lr");'):
            self.assertEqual(len(flags_in(source)), 1, source)

    def test_says_the_line(self):
        self.assertEqual(flags_in('// "--a"\n/* "--b"\n*/ f("a"\n  "b --lr");'), [(4, "b --lr")])

    def test_passes_over_comments_and_code(self):
        for source in ('// as --lr "--lr"', '/* "--lr" */ f("lr");', 'x = "a"[--i];', 'f("a -- b", "`lr 1`");'):
            self.assertEqual(flags_in(source), [], source)


if __name__ == "__main__":
    unittest.main()

"""The models of compare_exports.py, a file for each family, and what it does with them."""

from exports import images, language, layers, sequences, traps, vision

FAMILIES = [layers.CASES, traps.CASES, vision.CASES, images.CASES, language.CASES, sequences.CASES]

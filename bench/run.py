"""`anygrpo bench` from a checkout that is not installed: PYTHONPATH=src python3 bench/run.py llm --case gpu-short."""

import argparse
import sys

from anygrpo.cli import bench

parser = argparse.ArgumentParser()
bench.add_parser(parser.add_subparsers())
sys.exit(bench.run(parser.parse_args(["bench", *sys.argv[1:]])))

#!/bin/sh
# Train, export and measure pocket from nothing. Takes MINUTES (default 240) on one core, and a second core now and then.
set -eu
cd "$(dirname "$0")"
export OMP_NUM_THREADS=1
work=${WORK:-build}
mkdir -p "$work"
python train.py --minutes "${MINUTES:-240}" --out "$work/pocket.pt" --log "$work/training-log.csv"
python export.py "$work/pocket.pt" "$work/pocket"
python evaluate.py "$work/pocket" --trained "$work/pocket.pt" --screens 300 --out "$work/pocket/evaluation.json"
python samples.py "$work/pocket" --trained "$work/pocket.pt"
cp "$work/training-log.csv" "$work/pocket/"

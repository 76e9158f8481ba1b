#!/bin/sh
# Makes the screens, trains, exports and measures pocket from nothing.
#
#     sh run.sh            the whole recipe: about three hours on two cores with bf16 instructions, of which a half for the screens
#     sh run.sh --small    the same steps on a few screens with one minute of training, to see that they work
#
# Needs the packages of README.md. Everything is written under WORK (default: build).
set -eu
cd "$(dirname "$0")"
work=${WORK:-build}
python=${PYTHON:-python3}
case "${1:-}" in
  --small) screens=40 held_out=12 reading=0.4 pointing=0.6 settling=0.2 every=8 warmup=10 ;;
  "") screens=6000 held_out=150 reading=45 pointing=60 settling=45 every=60 warmup=200 ;;
  *) sed -n 2,8p "$0" >&2; exit 2 ;;
esac
mkdir -p "$work"
# The makers append: screens of an earlier run would be taken twice.
rm -rf "$work"/rendered "$work"/rendered-seen "$work"/rendered-unseen "$work"/held-out
# Training allocates and frees the same large blocks at every step; giving them back to the system in between costs
# as much as the arithmetic.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=268435456
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# Screens of the kits: training ones at seeds from 10,000,000, held-out ones from 100,000 at the devices' own pixels.
node kits/render.mjs --kits training --first-seed 10000000 --count "$screens" --format jpeg --scale low --out "$work/rendered"
node kits/render.mjs --kits training --first-seed 100000 --count "$held_out" --scale real --out "$work/rendered-seen"
node kits/render.mjs --kits held-out --first-seed 100000 --count "$held_out" --scale real --out "$work/rendered-unseen"
"$python" pack.py "$work/rendered" "$work/kits"
"$python" screenspot.py --rendered "$work/rendered-seen" --out "$work/held-out/training-kits"
"$python" screenspot.py --rendered "$work/rendered-unseen" --out "$work/held-out/held-out-kits"
"$python" screenspot.py --procedural --screens "$held_out" --out "$work/held-out/procedural"

# Read first, then point, then settle at a falling rate.
rm -f "$work/training-log.csv"
train() {
  "$python" train.py --processes "${PROCESSES:-2}" --images 3 --per-image 20 --warmup "$warmup" --every "$every" \
    --watch procedural "$work/kits" --out "$work/pocket.pt" --log "$work/training-log.csv" "$@"
}
train --stage read --minutes "$reading" --settle 0 --mix "sheets=1"
train --stage point --minutes "$pointing" --settle 0 --init "$work/pocket.pt" --mix "sheets=1,procedural=1,$work/kits=2"
train --stage settle --minutes "$settling" --settle 1 --sigma 7 2 --init "$work/pocket.pt" \
  --mix "sheets=0.3,procedural=1.5,$work/kits=1.5"

"$python" export.py "$work/pocket.pt" "$work/pocket"
"$python" evaluate.py "$work/pocket" procedural="$work/held-out/procedural" training-kits="$work/held-out/training-kits" \
  held-out-kits="$work/held-out/held-out-kits" evaluation=../pocket/evaluation --out "$work/pocket/figures.json"
cp "$work/training-log.csv" "$work/pocket/"
"$python" plot.py "$work/training-log.csv" "$work/pocket/training-log.png"

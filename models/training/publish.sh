#!/bin/sh
# Makes anew what ../pocket shows of itself: the evaluation set, the samples, and what the model answers on them.
#
#     sh publish.sh        after a training, with the checkpoint in ../pocket and the program built with it (cargo build --release)
#
# The evaluation set is a function of its seeds; the samples are those that the model answers rightly.
set -eu
cd "$(dirname "$0")"
work=${WORK:-build}
python=${PYTHON:-python3}
tapline=${TAPLINE:-../../target/release/tapline}
rm -rf "$work/small-seen" "$work/small-unseen" "$work/samples"

node kits/render.mjs --kits training --first-seed 200000 --count 45 --scale real --out "$work/small-seen"
node kits/render.mjs --kits held-out --first-seed 200000 --count 30 --scale real --out "$work/small-unseen"
"$python" evaluation_set.py --seen "$work/small-seen" --unseen "$work/small-unseen" --out "${EVALUATION:-../pocket/evaluation}"
[ -z "${EVALUATION:-}" ] || exit 0  # to compare a set made anew with the one that is there

seed=300000
for template in login settings player mail shop table dashboard; do
  node kits/render.mjs --kits bootstrap,framework7-ios,framework7-md,98css,primer,tabler --template "$template" \
    --first-seed "$seed" --count 18 --scale real --out "$work/samples"
  seed=$((seed + 100))
done
"$python" samples.py ../pocket --rendered "$work/samples" --tapline "$tapline"

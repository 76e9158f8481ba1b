#!/usr/bin/env bash
# Everything that is to be measured on a GPU, in one run of less than ten minutes that ends in one Markdown table. It builds
# nothing: programs are built beforehand, on any machine, as README.md says.
#
#   benches/gpu/run.sh --tapline FILE [--kernels FILE] [--python FILE] [--checkpoint FOLDER] [--out FILE] [--dry-run]
#
# Each part has its own time limit. One that fails leaves a row that says so, with its log beside the table, and the next runs.
# Exit code: 0 when every part went well, 1 when one did not, 2 when it cannot start, 3 without a GPU.
set -uo pipefail
cd "$(dirname "$0")/../.."

tapline=target/release/tapline kernels= python=python3 checkpoint= out= dry=
while [ $# -gt 0 ]; do
  case $1 in
    --tapline) tapline=$2; shift 2 ;;
    --kernels) kernels=$2; shift 2 ;;
    --python) python=$2; shift 2 ;;
    --checkpoint) checkpoint=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --dry-run) dry=yes; shift ;;
    *) printf 'error: unknown argument %s\nhint: the head of this script lists them\n' "$1" >&2; exit 2 ;;
  esac
done

missing=
need() { [ "$1" "$2" ] || { printf 'missing: %s (%s)\n' "$2" "$3" >&2; missing=yes; }; }
command -v "$python" >/dev/null || { printf 'missing: %s (Python 3.11 or later)\n' "$python" >&2; missing=yes; }
need -x "$tapline" "cargo build --release --features cuda"
[ -z "$kernels" ] || need -x "$kernels" "cargo bench --features cuda --bench gpu_kernels --no-run"
[ -z "$checkpoint" ] || need -d "$checkpoint" "python benches/compare/full_size.py --out FOLDER"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${out:-$work/table.md}
logs=${out%.md}-logs
torch=
"$python" -c 'import torch, transformers' 2>/dev/null && torch=yes

gpu=
if command -v nvidia-smi >/dev/null; then
  gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader 2>/dev/null | head -n 1)
fi

# Name, limit in seconds, command. The command's last line of standard output is what the table is made of.
rows=() bad=0 started=$SECONDS
# All together; what has not begun by then is left out.
readonly WHOLE=570
part() {
  local name=$1 limit=$2 left=$((WHOLE - SECONDS + started))
  shift 2
  if [ -n "$dry" ]; then
    printf '%-44s %4s s  %s\n' "$name" "$limit" "$*"
    return
  fi
  if [ "$left" -lt 10 ]; then
    bad=1
    rows+=("$name"$'\t'"skipped: out of time")
    return
  fi
  [ "$limit" -le "$left" ] || limit=$left
  local log=$logs/${name//[^a-zA-Z0-9]/-}.log code=0
  printf '%s (%s s so far)\n' "$name" "$((SECONDS - started))" >&2
  timeout --kill-after=5 "$limit" "$@" >"$log.out" 2>"$log" || code=$?
  if [ "$code" = 0 ]; then
    rows+=("$name"$'\t'"$(tail -n 1 "$log.out")")
  else
    bad=1
    case $code in 124 | 137) why="over its limit of $limit s" ;; *) why="exit code $code" ;; esac
    rows+=("$name"$'\t'"FAILED: $why, see ${log##*/}")
  fi
}
skip() {
  if [ -n "$dry" ]; then printf '%-44s skipped: %s\n' "$1" "$2"; else rows+=("$1"$'\t'"skipped: $2"); fi
}

if [ -n "$missing" ]; then
  printf 'error: something is missing\nhint: build it as benches/gpu/README.md says\n' >&2
  exit 2
fi
if [ -z "$gpu" ] && [ -z "$dry" ]; then
  printf 'error: no NVIDIA GPU here: nvidia-smi is missing or finds none, so nothing was measured\n' >&2
  printf 'hint: run it on a machine with a GPU, or add `--dry-run` to see what would run\n' >&2
  exit 3
fi
[ -n "$dry" ] || mkdir -p "$logs"

sample=models/pocket/samples/login.png
load=("$python" benches/gpu/load.py --tapline "$tapline")

if [ -n "$kernels" ]; then
  part "kernels: parity with the reference" 60 "$kernels" --parity
  part "kernels: share of the card's ceilings" 60 "$kernels" --ceilings
else
  skip "kernels" "no --kernels"
fi

full=$work/full-size
if [ -n "$checkpoint" ]; then
  full=$checkpoint
elif "$python" -c 'import numpy' 2>/dev/null; then
  part "write the checkpoint" 60 "$python" benches/compare/full_size.py --out "$full" --seed 1
else
  full=
  skip "TinyClick's size" "no --checkpoint, and no NumPy to write one"
fi
if [ -n "$full" ]; then
  words="w490 w9629"
  part "one client" 40 "${load[@]}" --image $sample --model "$full" --command "$words" --batch 1 --clients 1 --seconds 6
  part "one client, no graphs" 40 "${load[@]}" --image $sample --model "$full" --command "$words" --batch 1 --clients 1 --seconds 6 --no-graphs
  for batch in 1 8 32; do
    part "batch $batch" 60 "${load[@]}" --image $sample --model "$full" --command "$words" --batch $batch --clients $((batch * 3)) --seconds 8
  done
  if [ -n "$torch" ]; then
    rival=("$python" benches/gpu/rival.py --checkpoint "$full")
    for mode in eager compiled graphs; do
      part "PyTorch $mode, batch 1" 80 "${rival[@]}" --mode $mode --batch 1 --seconds 4
      part "PyTorch $mode, batch 32" 80 "${rival[@]}" --mode $mode --batch 32 --seconds 4
    done
  else
    skip "PyTorch" "torch or transformers cannot be imported by $python"
  fi
fi
part "pocket, one client" 30 "${load[@]}" --image $sample --command "sign in" --batch 1 --clients 1 --seconds 5
part "pocket, batch 32" 40 "${load[@]}" --image $sample --command "sign in" --batch 32 --clients 96 --seconds 6

if [ -n "$dry" ]; then
  printf 'nothing was run; GPU: %s\n' "${gpu:-none}"
  exit 0
fi
{
  printf '%s; %s; %s\n\n' "$gpu" "$("$tapline" --version)" "$(date -u +%F)"
  printf '%s\n' "${rows[@]}" | "$python" benches/gpu/table.py
  printf '\n%s s in all.\n' "$((SECONDS - started))"
} | tee "$out"
exit "$bad"

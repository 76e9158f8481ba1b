#!/usr/bin/env bash
# Registers, spills and static shared memory of every kernel on every architecture, as nvcc's assembler reports them: prints the
# table and compares it with registers.tsv. More registers than there, a spill, or a kernel too many or too few is an error.
#
#   kernels/registers.sh            compare
#   kernels/registers.sh --update   write registers.tsv anew
#
# Needs nvcc, as `cargo check --features cuda` does.
set -euo pipefail
cd "$(dirname "$0")/.."

messages=$(cargo check --features cuda --lib --quiet --message-format json)
folder=$(sed -n 's/.*"reason":"build-script-executed","package_id":"[^"]*tapline[^"]*".*"out_dir":"\([^"]*\)".*/\1/p' <<<"$messages")
table=$folder/cuda_registers.tsv
[ -s "$table" ] || { echo "kernels/registers.sh: cargo made no table of registers" >&2; exit 1; }
# Other architectures than the usual ones have nothing to be compared with.
if [ -n "${TAPLINE_CUDA_ARCHITECTURES:-}" ]; then
  cat "$table"
  echo "kernels/registers.sh: not compared, since TAPLINE_CUDA_ARCHITECTURES is set" >&2
  exit 0
fi
if [ "${1:-}" = --update ]; then
  cp "$table" kernels/registers.tsv
fi

awk -F '\t' '
  FNR == 1 { next }
  { key = $1 " on sm_" $2 }
  NR == FNR { registers[key] = $3; next }
  {
    seen[key] = 1
    printf "%-34s sm_%s %4d registers %4d bytes spilled %6d bytes shared\n", $1, $2, $3, $4, $5
    if (!(key in registers)) { faults = faults "\n" key ": not in kernels/registers.tsv" }
    else if ($3 > registers[key]) { faults = faults "\n" key ": " $3 " registers instead of " registers[key] }
    if ($4 > 0) { faults = faults "\n" key ": " $4 " bytes spilled" }
  }
  END {
    for (key in registers) if (!(key in seen)) faults = faults "\n" key ": no longer compiled"
    if (faults != "") {
      print "kernels/registers.sh: the kernels have changed; where that is wanted, run kernels/registers.sh --update" faults > "/dev/stderr"
      exit 1
    }
  }' kernels/registers.tsv "$table"

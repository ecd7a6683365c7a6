#!/usr/bin/env bash
# Runs every program of programs/ on this machine's GPUs: as it is, under the recorder, and with its divergence
# under the recorder. Prints one line a run and leaves the recordings in OUT (or ./recordings).
#   [HOSTS=N] tests/recordings/record.sh RANKS [PROGRAM…]
# With HOSTS, this machine plays so many hosts: ranks on different ones reach each other through sockets, and those
# of the same number on each share a GPU. So RANKS may be more than there are GPUs.
# Not here: what is checked. NVLink multicast stays off: a program that is killed in it can take the fabric along.
set -uo pipefail
cd "$(dirname "$0")/../.."
ranks=${1:?the number of ranks}; shift
programs=("$@")
[ ${#programs[@]} -gt 0 ] || programs=(point_to_point point_to_point:--lazy two_groups registered_pool
  symmetric_memory data_parallel graph_replay hang)
out=${OUT:-recordings}
rankcheck=${RANKCHECK:-$(ls target/release/rankcheck recorder/rankcheck 2>/dev/null | head -1)}
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 TORCH_NCCL_ENABLE_MONITORING=0 OMP_NUM_THREADS=1
hosts=${HOSTS:-1}
if [ $((ranks % hosts)) != 0 ]; then
  echo "$ranks ranks are not as many on each of $hosts hosts: choose a multiple" >&2
  exit 2
fi
work=$(mktemp -d)
mkdir -p "$out"

run() { # name, deadline, command…
  local name=$1 deadline=$2 began=$SECONDS; shift 2
  timeout -k 20 "$deadline" "$@" >"$work/$name.log" 2>&1
  local code=$?
  echo "$name code=$code seconds=$((SECONDS - began)) $(grep -h '^digest' "$work/$name.log" | sort | tr '\n' ' ')"
  # 124: the deadline; programs that have to hang end so.
  [ $code = 0 ] || [ $code = 124 ] || grep -v '^rankcheck: ' "$work/$name.log" | tail -n 25 | cut -c1-300
  grep -h '^rankcheck: ' "$work/$name.log" | cut -c1-300
}

for entry in "${programs[@]}"; do
  if [ $SECONDS -gt "${BUDGET:-450}" ]; then
    echo "$entry skipped: ${BUDGET:-450} s have passed"
    continue
  fi
  program=${entry%%:*} flags=${entry#"$program"}
  if [ "$hosts" != 1 ] && [ "$program" = symmetric_memory ]; then
    echo "$entry skipped: its ranks have to be on one host"
    continue
  fi
  flags=${flags#:}
  name=$program${flags//--/-}-$ranks
  port=$((20000 + RANDOM % 20000))
  if [ "$hosts" = 1 ]; then
    launch=(torchrun --nproc-per-node "$ranks" --master-port "$port")
  else
    name+=-hosts-$hosts
    launch=(tests/recordings/hosts.sh "$hosts" $((ranks / hosts)) "$port")
  fi
  launch+=("tests/recordings/programs/$program.py")
  [ -z "$flags" ] || launch+=("$flags")
  run "$name.plain" 60 "${launch[@]}"
  run "$name.clean" 60 "$rankcheck" record --out "$work/$name/clean" -- "${launch[@]}"
  run "$name.divergent" 30 "$rankcheck" record --out "$work/$name/divergent" -- "${launch[@]}" --seed-divergence
done
(cd "$work" && tar czf - ./*/ ./*.log) >"$out/recordings-$ranks.tar.gz"
ls -l "$out"

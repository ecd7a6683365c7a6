#!/usr/bin/env bash
# Runs torchrun once for each of the hosts that this machine plays: NCCL takes ranks of different NCCL_HOSTID for
# ranks of different machines, so it neither shares memory between them nor minds that they use one GPU.
#   hosts.sh HOSTS RANKS_OF_EACH PORT COMMAND…
set -uo pipefail
hosts=$1 ranks=$2 port=$3; shift 3
export NCCL_SOCKET_IFNAME=lo GLOO_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
running=()
trap 'kill "${running[@]}" 2>/dev/null' TERM INT
for ((host = 0; host < hosts; host++)); do
  NCCL_HOSTID=host-$host torchrun --nnodes "$hosts" --node-rank "$host" --nproc-per-node "$ranks" \
    --master-addr 127.0.0.1 --master-port "$port" "$@" &
  running+=($!)
done
code=0
for one in "${running[@]}"; do
  wait "$one" || code=$?
done
# A signal ends the waiting above, and not those that are waited for.
wait
exit "$code"

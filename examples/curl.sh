#!/usr/bin/env bash
# Tensors from the shell: a session, three operations, a backward pass, the memory table.
#   examples/curl.sh http://127.0.0.1:8000
set -euo pipefail
url=${1:-http://127.0.0.1:8000}
auth=(${TELEGRAD_TOKEN:+-H "Authorization: Bearer $TELEGRAD_TOKEN"})
post() { curl -sSf "${auth[@]}" -H 'content-type: application/json' "$@"; }
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

hello=$(post -X POST "$url/v1/sessions" -d '{}')
session=$(field session <<<"$hello")
key=(-H "Telegrad-Session-Key: $(field key <<<"$hello")")

post "${key[@]}" "$url/v1/sessions/$session/ops" -d '[
  {"op": "tensor", "data": [[1.0, 2.0], [3.0, 4.0]], "out": 1, "requires_grad": true},
  {"op": "mul", "args": [{"tensor": 1}, {"tensor": 1}], "out": 2},
  {"op": "sum", "args": [{"tensor": 2}], "out": 3}
]'
echo
post "${key[@]}" "$url/v1/sessions/$session/backward" -d '{"roots": [3]}'
echo
curl -sSf "${auth[@]}" "$url/memory_summary" | head -12
curl -sSf "${auth[@]}" "${key[@]}" -X DELETE "$url/v1/sessions/$session"

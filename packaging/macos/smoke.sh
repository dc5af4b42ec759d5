#!/usr/bin/env bash
# Starts a frozen program without a window, asks it for an answer of the demo model and ends it.
set -euo pipefail
program="$1"
data="$(mktemp -d)"
port=8917
serve=""
# Never `kill 0`: it would end the build that called this.
trap '[ -z "$serve" ] || kill "$serve" 2>/dev/null; rm -rf "$data"' EXIT
"$program" demo install --data-dir "$data"
"$program" serve --data-dir "$data" --port "$port" &
serve=$!
for _ in $(seq 120); do
    if answer="$(curl -sf "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
        -d '{"model":"SmolLM2-135M-Instruct","messages":[{"role":"user","content":"Name the capital of France."}],"max_tokens":24,"temperature":0}')"; then
        break
    fi
    sleep 1
done
case "${answer:-}" in
    *Paris*) echo "it answers" ;;
    *) echo "unexpected answer: ${answer:-none}" >&2; exit 1 ;;
esac
kill -TERM "$serve"
wait "$serve"
serve=""

#!/usr/bin/env bash
# Tries the Debian package for real: install it, start the installed program on a virtual screen, ask its server for an
# answer of the bundled demo model, take a picture, quit, start it as a newcomer, remove it, and look that nothing stayed.
#
#   packaging/linux/try.sh PACKAGE.deb
set -euo pipefail
deb="$(readlink -f "$1")"
out="$(dirname "$deb")"
here="$(dirname "$(readlink -f "$0")")"
port="${MILLM_TRY_PORT:-8917}"
data="$(mktemp -d)"
home="$(mktemp -d)"
sudo=""
[ "$(id -u)" -eq 0 ] || sudo=sudo
display=""
screen=""
program=""

finish() {
    status=$?
    set +e
    [ -n "$program" ] && kill "$program" 2>/dev/null
    if [ $status -ne 0 ]; then
        [ -n "$screen" ] && env DISPLAY="$display" scrot --overwrite "$out/failed.png" 2>/dev/null
        tail -n 40 "$data"/logs/*.log "$out/installed.log" >&2 2>/dev/null
    fi
    [ -n "$screen" ] && kill "$screen" 2>/dev/null
    rm -rf "$data" "$home"
    exit $status
}
trap finish EXIT
say() { printf '     %s\n' "$*"; }
milliseconds() { echo $((($(date +%s%N) - $1) / 1000000)); }

# wait_for WHAT SECONDS COMMAND…
wait_for() {
    local what="$1" tries=$(($2 * 5))
    shift 2
    for _ in $(seq "$tries"); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        if [ -n "$program" ] && ! kill -0 "$program" 2>/dev/null; then
            echo "the program ended while $what was waited for" >&2
            return 1
        fi
        sleep 0.2
    done
    echo "gave up waiting for $what" >&2
    return 1
}
# As a person's session would start it: nothing of this checkout's, of this shell's settings or of Python's.
# No function: the process in the background has to be the program itself, which gets the signal.
clean=(env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$home" LANG=C.UTF-8)
window() { env DISPLAY="$display" xdotool search --onlyvisible --name '^miLLM Desktop$'; }

export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq || say "the lists of packages could not be renewed"
$sudo apt-get install -y -qq --no-install-recommends xvfb xdotool scrot curl >/dev/null
$sudo apt-get install -y -qq --reinstall "$deb" >/dev/null
say "installed: $(dpkg-query -W -f='${Package} ${Version}, ${Installed-Size} KB' millm-desktop)"
for file in /usr/bin/millm-desktop /usr/share/applications/millm-desktop.desktop /usr/share/mime/packages/millm-desktop.xml; do
    test -e "$file"
done
grep -q "GNU LESSER GENERAL PUBLIC LICENSE" /usr/share/doc/millm-desktop/THIRD-PARTY-NOTICES.txt
say "the notices of others: $(grep -c '^    licence:' /usr/share/doc/millm-desktop/THIRD-PARTY-NOTICES.txt) works"

# The demo comes out of the package: nothing is fetched, nor could be.
started=$(date +%s%N)
"${clean[@]}" PIP_INDEX_URL=http://127.0.0.1:9 millm-desktop demo install --data-dir "$data" >/dev/null
say "demo installed from the package in $(milliseconds "$started") ms"
"${clean[@]}" millm-desktop doctor --data-dir "$data" --port "$port" > "$out/doctor.txt"
grep -q "llama-cpp-python" "$out/doctor.txt" && say "$(grep "Engine (GGUF)" "$out/doctor.txt")"

# It takes a number that is free, and says which once it can be used.
Xvfb -displayfd 3 -screen 0 1280x800x24 -nolisten tcp 3>"$home/display" >/dev/null 2>&1 &
screen=$!
wait_for "the screen" 20 grep -q . "$home/display"
display=":$(cat "$home/display")"
clean+=(DISPLAY="$display")
started=$(date +%s%N)
"${clean[@]}" millm-desktop gui --data-dir "$data" --port "$port" >"$out/installed.log" 2>&1 &
program=$!
wait_for "the window" 120 window
say "window after $(milliseconds "$started") ms"
wait_for "the model" 300 sh -c "curl -sf http://127.0.0.1:$port/api/health/detailed | grep -Eq 'model_loaded.: *true'"
say "model loaded after $(milliseconds "$started") ms"
answer="$(curl -sf --max-time 300 "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
    -d '{"model":"SmolLM2-135M-Instruct","messages":[{"role":"user","content":"Name the capital of France."}],"max_tokens":24,"temperature":0}')"
case "$answer" in
    *Paris*) say "it answers after $(milliseconds "$started") ms: $(printf '%s' "$answer" | sed 's/.*"content": *"\([^"]*\)".*/\1/')" ;;
    *) echo "unexpected answer: $answer" >&2; exit 1 ;;
esac
answer="$(curl -sf --max-time 300 "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
    -d '{"model":"SmolLM2-135M-Instruct:Q4_1","messages":[{"role":"user","content":"Name the capital of France."}],"max_tokens":24,"temperature":0}')"
case "$answer" in
    *Paris*) say "so does llama.cpp" ;;
    *) echo "unexpected answer of llama.cpp: $answer" >&2; exit 1 ;;
esac
# Structured output, embeddings and steering each bring libraries and data of their own.
answer="$(curl -sf --max-time 300 "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
    -d '{"model":"SmolLM2-135M-Instruct","messages":[{"role":"user","content":"Name a colour as JSON."}],"max_tokens":32,"temperature":0,"response_format":{"type":"json_schema","json_schema":{"name":"c","schema":{"type":"object","properties":{"colour":{"type":"string","maxLength":12}},"required":["colour"],"additionalProperties":false}}}}')"
case "$answer" in
    *'{\"colour\":'*) say "it answers by a schema" ;;
    *) echo "unexpected answer by a schema: $answer" >&2; exit 1 ;;
esac
curl -sf --max-time 300 -X POST "http://127.0.0.1:$port/api/saes/attach-set" -H 'Content-Type: application/json' \
    -d '{"name": "Demo: layers 10, 15 and 20"}' >/dev/null
report="$(curl -sf --max-time 300 -o /dev/null -D - "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
    -d '{"model":"SmolLM2-135M-Instruct","messages":[{"role":"user","content":"Tell me about your day."}],"max_tokens":24,"profile":"Demo: sea, ships and sailing","steering_intensity":1}')"
case "$report" in
    *features=2*) say "steered by the demo pack's cluster" ;;
    *) echo "unexpected steering: $report" >&2; exit 1 ;;
esac
env DISPLAY="$display" scrot --overwrite "$out/installed.png"
say "picture in $out/installed.png"
# A second start hands its document to the window that is there.
case "$("${clean[@]}" millm-desktop gui --data-dir "$data" "$here/../../assets/demo/clusters/sea.cluster.json")" in
    *"open already"*) say "a second start brought the window to the front, with a document" ;;
    *) echo "a second start did not find the first" >&2; exit 1 ;;
esac
started=$(date +%s%N)
kill -TERM "$program"
wait "$program"
program=""
say "quit with status 0 after $(milliseconds "$started") ms"

# A newcomer is asked where everything shall be kept; Return takes what is offered.
"${clean[@]}" millm-desktop gui --port "$port" >>"$out/installed.log" 2>&1 &
program=$!
wait_for "the question" 120 window
test ! -e "$home/.local/share/miLLM Desktop/millm.db"
env DISPLAY="$display" scrot --overwrite "$out/first-run.png"
env DISPLAY="$display" xdotool search --onlyvisible --name '^miLLM Desktop$' windowfocus --sync key Return
wait_for "the folder" 60 test -e "$home/.local/share/miLLM Desktop/millm.db"
wait_for "the server" 120 curl -sf "http://127.0.0.1:$port/api/health"
env DISPLAY="$display" scrot --overwrite "$out/welcome.png"
kill -TERM "$program"
wait "$program"
program=""
say "a newcomer was asked for a folder and welcomed"

$sudo apt-get remove -y -qq millm-desktop >/dev/null
for left in /opt/millm-desktop /usr/bin/millm-desktop /usr/share/applications/millm-desktop.desktop; do
    if [ -e "$left" ]; then echo "$left stayed behind" >&2; exit 1; fi
done
say "removed, nothing stayed"

#!/usr/bin/env bash
# One night: correctness first, speed only where that passed, then the history.
#
#   nightly.sh REPORTS HISTORY [pytest options]
#
# REPORTS receives correctness/ and perf/, each with report.html, report.json, report.md, findings.jsonl and junit.xml.
# HISTORY keeps one file a night; tonight's speed is compared with what is there. Options go to pytest as they are:
# none means the embedded tiny GLM-5 on this machine's CPU. Exit code: that of the first part that failed.
set -euo pipefail

reports=${1:?the directory for reports} history=${2:?the directory of earlier nights}
shift 2
mkdir -p "$reports" "$history"

run() { # run NAME MARKERS [pytest options]
    local name=$1 markers=$2 status=0 child
    shift 2
    python -m pytest -m "$markers" --glm5-report="$reports/$name" --junitxml "$reports/$name/junit.xml" "$@" &
    child=$!
    # Job systems stop this shell; pytest must hear of it, and then writes what it has.
    trap 'kill -TERM "$child"' INT TERM
    wait "$child" || status=$?
    # A signal ends the first wait before pytest has ended.
    if kill -0 "$child" 2>/dev/null; then status=0 && wait "$child" || status=$?; fi
    trap - INT TERM
    # After a crash the journal is there and the page is not.
    if [ ! -f "$reports/$name/report.html" ]; then glm5check report "$reports/$name" || true; fi
    return "$status"
}

run correctness "not perf" "$@"

baseline=()
if compgen -G "$history/*.json" >/dev/null; then baseline=(--glm5-baseline="$history"); fi
run perf perf "${baseline[@]}" "$@"

# Not decided (2) is no failure here, as it is none for pytest; --glm5-strict makes it one.
glm5check report "$reports/perf" --history "$history" || [ "$?" -eq 2 ]

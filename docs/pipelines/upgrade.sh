#!/usr/bin/env bash
# May a new vLLM or plugin go live? The same model and options in two environments: right in the new one, and no slower.
#
#   upgrade.sh REPORTS OLD_PYTHON NEW_PYTHON [pytest options]
#
# OLD_PYTHON and NEW_PYTHON are the interpreters of two environments that both have glm5check installed. Exit code 0
# means that the new one may replace the old one on this machine.
set -euo pipefail

reports=${1:?the directory for reports} old=${2:?the python of today} new=${3:?the python of tomorrow}
shift 3

"$new" -m pytest -m "not perf" --glm5-report="$reports/new-correctness" "$@"
"$old" -m pytest -m perf --glm5-report="$reports/old-perf" "$@"
"$new" -m pytest -m perf --glm5-report="$reports/new-perf" --glm5-baseline="$reports/old-perf/report.json" "$@"

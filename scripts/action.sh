#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The step "Run" of action.yml. Input: COMMAND, ARGS, JARS, SUITE, PLAN, MATRIX and FAIL_ON, as the action's inputs.
# The exit code, and the output `code`, are those of the harness.
set -u

finish() {
  echo "code=$1" >> "$GITHUB_OUTPUT"
  exit "$1"
}

store="$HOME/harness-store"
facts=$(mktemp -d)
began=$(date +%Y-%m-%dT%H:%M:%S)
python="$GITHUB_ACTION_PATH/.venv/bin/python"

# Words of a shell, over all lines; nothing is expanded.
split='import os, shlex, sys
words = shlex.split(os.environ["ARGS"].replace("\\\n", " "))
sys.stdout.write("".join(word + "\0" for word in words))'
if ! python3 -c "$split" > "$facts/words" 2> "$facts/why"; then
  echo "::error title=args::$(tail -n 1 "$facts/why"): close every quote in the input args"
  finish 64
fi
mapfile -d '' -t more < "$facts/words"

refuse() {
  echo "::error title=$1::$2"
  finish 64
}

command="${COMMAND:-}" suite="${SUITE:-}" plan="${PLAN:-}" matrix="${MATRIX:-}"
if [ -z "$command" ]; then
  if [ -n "$matrix" ]; then command=nightly
  elif [ -n "$plan" ] || [ -z "$JARS" ]; then command=run
  else command=compare
  fi
fi
[ -z "$matrix" ] || [ "$command" = nightly ] || refuse matrix "it is for the command nightly, not $command"
[ -z "$plan" ] || [ "$command" = run ] || refuse plan "it is for the command run, not $command"
[ -z "$suite" ] || [ "$command" = compare ] || refuse suite "it is for the command compare, not $command"

words=("$command" --store "$store")
case "$command" in
  run) words+=(--fail-on "$FAIL_ON" --json "$facts/run.json" ${plan:+--plan "$plan"}) ;;
  nightly) words+=(${matrix:+"$matrix" --once}) ;;
  compare) words+=(--json "$facts/compare.json" ${suite:+--suite "$suite"}) ;;
esac
words+=(${more[@]+"${more[@]}"})
if [ -n "$JARS" ]; then
  if ! jars=$(realpath -e -- "$JARS"); then
    echo "::error title=server-jars::$JARS: no such folder"
    finish 64
  fi
  if [ "$command" = nightly ]; then
    words+=(--option "--server-jars $(printf %q "$jars")")
  else
    words+=(--server-jars "$jars")
  fi
fi

code=0
sudo env "PATH=$PATH" "JAVA_HOME=$JAVA_HOME" HARNESS_CACHE="$HOME/harness-cache" \
  "$GITHUB_ACTION_PATH/.venv/bin/harness" "${words[@]}" || code=$?
mkdir -p "$store" "$HOME/harness-cache"
sudo chown -R "$(id -u):$(id -g)" "$store" "$HOME/harness-cache" "$facts"

case "$command" in
  run) summary=(run "$code" "$facts/run.json") ;;
  compare) summary=(compare "$code" "$facts/compare.json") ;;
  nightly) summary=(nightly "$code" "$store" "$began") ;;
  *) summary=() ;;
esac
if [ "${#summary[@]}" -gt 0 ]; then
  (cd "$GITHUB_ACTION_PATH" && "$python" -m harness.cli.job_summary "${summary[@]}") || echo "::warning::no job summary"
fi
finish "$code"

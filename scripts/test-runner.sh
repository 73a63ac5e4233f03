#!/usr/bin/env bash
# Runs a test, and writes what it and its children used of the processors into a file of the
# directory that TEST_CPU names: test program and test, then times as the shell writes them, its own
# and its children's (user and system).
"$@"
status=$?
if [ -n "${TEST_CPU:-}" ] && [ -n "${NEXTEST_TEST_NAME:-}" ]; then
    { echo "$NEXTEST_BINARY_ID $NEXTEST_TEST_NAME" && times; } >"$TEST_CPU/$$"
fi
exit $status

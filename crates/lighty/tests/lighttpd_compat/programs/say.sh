#!/bin/sh
# Answers as its query says, percent-decoded: the head's lines, an empty line, the body.
/usr/bin/printf '%b' "$(printf '%s' "$QUERY_STRING" | sed 's/+/ /g; s/%\(..\)/\\x\1/g')"

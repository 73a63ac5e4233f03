#!/bin/sh
# Answers as its query says, percent-decoded, `|` being a line's end and `^` one with CR:
# the head's lines, an empty line, the body.
/usr/bin/printf '%b' "$(printf '%s' "$QUERY_STRING" | sed 's/%7[Cc]/|/g; s/%5[Ee]/^/g; s/|/\\n/g; s/\^/\\r\\n/g; s/+/ /g; s/%\(..\)/\\x\1/g')"

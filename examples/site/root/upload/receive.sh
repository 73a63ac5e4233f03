#!/bin/sh
# Counts what is uploaded and keeps none of it.
bytes=$(wc -c)
printf 'Content-Type: text/plain; charset=utf-8\n\n%s bytes came.\n' "$((bytes))"

#!/bin/sh
# Writes what it was given: variables in order, arguments, standard input.
printf 'Content-Type: text/plain\nX-Program: env\n\n'
env | grep -vE '^(REMOTE_PORT|SERVER_SOFTWARE|PATH|SHLVL|_|OLDPWD|LD_.*|LIGHTTPD_CGI_.*)=' | LC_ALL=C sort
printf 'arguments: %s\n' "$*"
cat

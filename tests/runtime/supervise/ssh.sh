#!/bin/bash
# ssh.sh - stands in for ssh: HOST COMMAND runs here, unless the file down.HOST is there: then nobody answers.
host=$1
shift
echo "$host" >>errands
if [ -e "down.$host" ]; then
    exit 255
fi
exec sh -c "$*"

#!/bin/bash
# lead.sh - notices that leave 30 s, 5 s and none, with a bucket whose rate is limited; see lead.py.
#   lead.sh TERN STORE_SERVER.py       LEAD_COUNT=100 LEAD_UPLOAD=18 LEAD_AT_ONCE=10: the full measure, by hand
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
server=$(realpath "$2")
. "$here/../train/lib.sh"
export TERN_THREADS=1 AWS_ACCESS_KEY_ID=tern AWS_SECRET_ACCESS_KEY=secret AWS_EC2_METADATA_DISABLED=true
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION HTTP_PROXY http_proxy
make_data
config llama bf16 >config.yaml
python3 -B "$here/lead.py" "$TERN" "$server"

#!/bin/sh
# The GPUs of a container, as Spark's resource discovery wants to be told.
indices=$(nvidia-smi --query-gpu=index --format=csv,noheader | sed 's/.*/"&"/' | paste -sd, -)
printf '{"name": "gpu", "addresses": [%s]}\n' "$indices"

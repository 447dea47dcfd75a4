#!/bin/sh
# The GPUs of a container, as Spark's resource discovery wants to be told.
found=${CUDA_VISIBLE_DEVICES-$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd, -)}
indices=$(printf %s "$found" | sed 's/[^,][^,]*/"&"/g')
printf '{"name": "gpu", "addresses": [%s]}\n' "$indices"

#!/bin/sh
# Prints the GPUs of a container in the JSON format of Spark's resource discovery.
found=${CUDA_VISIBLE_DEVICES-$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd, -)}
indices=$(printf %s "$found" | sed 's/[^,][^,]*/"&"/g')
printf '{"name": "gpu", "addresses": [%s]}\n' "$indices"

"""The mini-cluster of docker/ for tests: an engine, the image, a cluster that goes up and down."""

"""A machine with RDMA devices in software (Soft-RoCE), emulated, for tests on machines that have none."""

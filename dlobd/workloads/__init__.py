"""What is measured. `training` runs in the driver, `trainer` in each rank."""

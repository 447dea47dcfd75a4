"""The evidence of one application, brought into its bundle while the cluster still has it. One file a way to get it."""

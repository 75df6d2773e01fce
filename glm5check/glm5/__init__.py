"""What GLM-5 is: its dimensions, its tensors, how each splits under tensor parallelism."""

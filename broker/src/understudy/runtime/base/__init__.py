"""Parts that the whole shell uses: turns of the loop, files, threads, the environment of a node."""

"""Training steps as graphs, and the loop that runs them."""

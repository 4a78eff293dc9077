"""What the machine can do: facts that choices of precision rest on, and that measurements name."""

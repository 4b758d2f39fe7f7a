"""The commands that compare what sweeps left: compare, gate, plan."""

"""Checking a judge: against itself, against another one, and against people."""

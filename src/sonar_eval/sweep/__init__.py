"""The sweep: Hydra composes the cells, each cell runs its trials, results go to the tracker."""

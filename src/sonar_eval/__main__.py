"""`python -m sonar_eval`: the same as the command `sonar-eval`."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="python -m sonar_eval")
